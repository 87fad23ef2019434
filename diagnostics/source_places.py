"""Locate files, lines and statements in sources, and format them for the reader."""

from __future__ import annotations

import ast
import io
import os
import re
import tokenize
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from diagnostics.redaction import redact

__all__ = [
    "absolute",
    "ending",
    "first_statement",
    "here",
    "is_own",
    "is_package",
    "line_of",
    "source_line",
    "statement_at",
    "text_of",
    "where",
]

Spot = Sequence[Any]  # file, line, function; column, in what the user wrote without a file

_LONGEST = 80  # characters of a statement
_LARGEST = 4 << 20  # bytes of a source
_FOLDERS = ("-packages", ".whl", ".egg")
_PACKED = re.compile(r"\.(whl|egg)/")  # a folder that is a package by itself, as pex makes them


def ending(word: str, place: str) -> str:
    """Return ``place`` as the end of a clause, with the ``word`` in front; "" where there is none."""
    return f" {word} {place}" if place else ""


def where(spot: Spot | None, facts: dict[str, Any]) -> str:
    """Return the place as it is printed.

    A file is ``file:line``, relative to where the command was started, else to its folder of packages. What
    the user wrote without a file is its line with its text; of all else it is said what it is.
    """
    if not spot:
        return ""
    name = str(spot[0])
    if name in facts.get("sources", {}):
        text = redact(_statement(spot, facts))
        return f"{short(name, facts)}, line {spot[1]}{f': {text}' if text else ''}"
    if name.startswith("<"):
        return short(name, facts)
    if name.endswith(".pyc"):
        return f"{short(name, facts)}, line {spot[1]} (its source is not there)"
    return f"{short(name, facts)}:{spot[1]}"


def short(path: str, facts: dict[str, Any]) -> str:
    """Return the path, or the name of what is in no file, as it is printed."""
    if path.startswith("<"):
        return _described(path[1:].rstrip(">"))
    full = absolute(path, facts)
    # A process that a command starts may begin in another directory ("cwd") than the command ("started").
    started = facts.get("started") or facts.get("cwd") or here()
    roots = [started, *facts.get("path", [])]
    # Not what is within one: a tool that puts such a folder on the path has a sitecustomize.py there.
    packages = [root for root in roots if _from(started, root).endswith(_FOLDERS)]
    packages += [os.path.dirname(file) for file in facts.get("start_code", [])]  # sources may be beside it
    # The current directory may contain the virtual environment, so package folders come first; unless it is
    # in one itself.
    for root in sorted([started, *packages], key=len, reverse=True):
        if _is_in(full, root):
            return os.path.relpath(full, root)
    # What was packed is unpacked in a cache, where nobody opens it.
    if is_own((full, 0, ""), facts) and not facts.get("start_code"):
        # A person opens it from there, also where one of the two paths goes through a link.
        real, start = map(_without_links, (full, started))
        return os.path.relpath(real, start) if _is_in(real, start) else full
    return next((os.path.relpath(full, root) for root in roots if _is_in(full, root)), full)


def _without_links(path: str) -> str:
    """Return ``path`` without links; as it is where there is no current directory that it is below."""
    return os.path.realpath(path) if os.path.isabs(path) else path


def _is_in(path: str, folder: str) -> bool:
    return bool(folder.strip(os.sep)) and path.startswith(folder.rstrip(os.sep) + os.sep)


def _described(name: str) -> str:
    """Return what code is that is in no file, by what Python calls it."""
    frozen, _, module = name.partition(" ")
    if frozen == "frozen":
        return f"{module} of Python"
    known = name.startswith(("In [", "python -c", "standard input", "compiled code", "generated code"))
    return name if known else f"generated code {name}"


def _statement(spot: Spot, facts: dict[str, Any]) -> str:
    """Return the statement at a place that is in no file, its first line; that line where it is not known.

    The agent says in which column it is, from Python 3.11 on: a line may have several.
    """
    line = source_line(spot, facts)
    column = spot[3] if len(spot) > 3 else None
    if ";" in line and column is not None:
        try:
            tree = ast.parse(text := "\n".join(facts["sources"][spot[0]]))
        except (SyntaxError, ValueError):
            return line[:_LONGEST]
        for node in ast.walk(tree):
            if isinstance(node, ast.stmt) and not hasattr(node, "body") and _is_at(node, spot[1], column):
                line = (ast.get_source_segment(text, node) or line).partition("\n")[0]
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def _is_at(node: ast.stmt, line: int, column: int) -> bool:
    begins, ends = (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)
    return begins <= (line, column) < ends


def absolute(path: str, facts: dict[str, Any]) -> str:
    """Return the absolute path, relative to where the process was started."""
    if path.startswith("<"):
        return path
    return os.path.normpath(os.path.join(facts.get("cwd") or here(), path))


def _from(work: str, path: str) -> str:
    """Return what of ``path`` is below the directory ``work`` if that is inside of an installed package."""
    return path.removeprefix(work + os.sep) if "-packages" + os.sep in work else path


def is_own(spot: Spot, facts: dict[str, Any]) -> bool:
    """Return whether ``spot`` is in the user's code: neither a package's nor the standard library's."""
    path = str(spot[0])
    if path.startswith("<"):
        return path in facts.get("sources", {})
    # The same as the agent's `kind_of_file`: who works inside of an installed package has it for their own.
    inside = _from(facts.get("cwd") or "", path)
    if is_package(inside) or absolute(path, facts) in facts.get("start_code", []):
        return False
    if inside != path:
        return True
    library = os.path.dirname(os.path.dirname(os.path.abspath(facts.get("executable") or "")))
    for root in (facts.get("library"), os.path.join(library, "lib")):
        if root and os.path.abspath(path).startswith(root + os.sep):
            return False
    return True


def is_package(path: str) -> bool:
    """Return whether the file is an installed package's, or one's that is packed."""
    return "-packages" in path or bool(_PACKED.search(path))


def text_of(file: str, facts: dict[str, Any]) -> str | None:
    """Return the source that has this name in ``facts``, also in an archive; None if it cannot be read."""
    if file.startswith("<"):
        lines = facts.get("sources", {}).get(file)
        return "\n".join(lines) if lines else None
    if file.endswith(".pyc"):
        return None
    try:
        if (content := _bytes_of(absolute(file, facts))) is None:
            return None
        text = content.decode(_encoding(content), errors="replace")
    except (OSError, LookupError, zipfile.BadZipFile):
        return None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _bytes_of(path: str) -> bytes | None:
    """Return the content of a file, or of one in an archive; None for what is none or too large."""
    if os.path.isfile(path):
        if os.path.getsize(path) > _LARGEST:
            return None
        with open(path, "rb") as source:
            return source.read()
    archive = os.path.dirname(path)
    while archive not in ("", os.path.dirname(archive)) and not os.path.exists(archive):
        archive = os.path.dirname(archive)
    if not os.path.isfile(archive):
        return None
    with zipfile.ZipFile(archive) as members:
        try:
            found = members.getinfo(os.path.relpath(path, archive).replace(os.sep, "/"))
        except KeyError:
            return None
        return members.read(found) if found.file_size <= _LARGEST else None


def _encoding(content: bytes) -> str:
    try:
        return tokenize.detect_encoding(io.BytesIO(content).readline)[0]
    except SyntaxError:
        return "utf-8"


def source_line(spot: Spot, facts: dict[str, Any]) -> str:
    """Return the text of the line; "" if it cannot be read."""
    lines = (text_of(str(spot[0]), facts) or "").split("\n")
    return lines[spot[1] - 1].strip() if spot[1] and 0 < spot[1] <= len(lines) else ""


def line_of(files: Iterable[str], pattern: str, facts: dict[str, Any]) -> Spot | None:
    """Return the first line of code in ``files`` that matches ``pattern``; None if none does."""
    return next(lines_of(files, pattern, facts), None)


def lines_of(files: Iterable[str], pattern: str, facts: dict[str, Any]) -> Iterator[Spot]:
    """Yield the lines of code in ``files`` that match ``pattern``.

    Comments, and strings of several lines, are no code.
    """
    for file in files:
        text = text_of(file, facts) or ""
        lines = text.split("\n")
        numbers = [number for number, line in enumerate(lines, 1) if re.search(pattern, line)]
        if numbers:
            code = _code(text)
            for number in numbers:
                if re.search(pattern, code.get(number, "") if code is not None else lines[number - 1]):
                    yield (file, number, "")


def _code(text: str) -> dict[int, str] | None:
    """Return the code of each line, without comments and strings of several lines; None if unreadable."""
    lines = text.split("\n")
    found = dict(enumerate(lines, 1))
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            (first, begins), (last, _) = token.start, token.end
            if token.type == tokenize.COMMENT:
                found[first] = lines[first - 1][:begins]
            elif token.type == tokenize.STRING and first != last:
                found.update(dict.fromkeys(range(first + 1, last + 1), ""))
                found[first] = lines[first - 1][:begins]
    except (SyntaxError, tokenize.TokenError, IndentationError):
        return None  # of another version of Python, or with the magics of a notebook
    return found


def first_statement(file: str, facts: dict[str, Any]) -> tuple[int, int]:
    """Return the lines of the first two statements; 0 for one that does not exist.

    A docstring and imports from ``__future__`` do not count. The source may be of any Python version.
    """
    found: list[int] = []
    begun: list[str] = []
    line = 0
    text = text_of(file, facts) or ""
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT):
                continue
            if token.type not in (tokenize.NEWLINE, tokenize.ENDMARKER) and token.string != ";":
                line = line if begun else token.start[0]
                begun.append("''" if token.type == tokenize.STRING else token.string)
                continue
            if begun and begun[:2] != ["from", "__future__"] and set(begun) != {"''"}:
                found.append(line)
            begun = []
            if len(found) == 2:
                break
    except (SyntaxError, tokenize.TokenError):
        pass
    return (*found, 0, 0)[:2]  # type: ignore[return-value]


def statement_at(spot: Spot, facts: dict[str, Any]) -> tuple[int, int, int]:
    """Return the first and last line of a statement, and the first line of what follows it.

    The statement is the innermost simple one at ``spot``; what follows is the next statement of the module
    (0 if there is none). All are 0 where the source cannot be parsed.
    """
    try:
        tree = ast.parse(text_of(str(spot[0]), facts) or "")
    except (SyntaxError, ValueError):
        return 0, 0, 0
    first = last = after = 0
    for number, node in enumerate(tree.body):
        if node.lineno <= spot[1] <= (node.end_lineno or 0):
            after = tree.body[number + 1].lineno if number + 1 < len(tree.body) else 0
    for inner in ast.walk(tree):
        if not isinstance(inner, ast.stmt) or hasattr(inner, "body"):
            continue
        if inner.lineno <= spot[1] <= (inner.end_lineno or 0):
            first, last = inner.lineno, inner.end_lineno or 0
    return first, last, after


def here() -> str:
    """Return the current directory; "" if it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return ""
