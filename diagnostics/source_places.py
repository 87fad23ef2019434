"""Locate files, lines and statements in sources, and format them for the reader."""

from __future__ import annotations

import ast
import os
import re
import tokenize
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = [
    "absolute",
    "first_statement",
    "here",
    "is_own",
    "line_of",
    "source_line",
    "statement_at",
    "where",
]

Spot = Sequence[Any]  # file, line, function
_PACKED = re.compile(r"\.(whl|egg)/")  # a folder that is a package by itself, as pex makes them


def where(spot: Spot | None, facts: dict[str, Any]) -> str:
    """Return ``file:line``, relative to where the command was started, else to its folder of packages."""
    if not spot:
        return ""
    return f"{short(str(spot[0]), facts)}:{spot[1]}"


def short(path: str, facts: dict[str, Any]) -> str:
    """Return the path as it is printed."""
    if path.startswith("<"):
        return path
    full = absolute(path, facts)
    # A process that a command starts may begin in another directory ("cwd") than the command ("started").
    started = facts.get("started") or facts.get("cwd") or here()
    roots = [started, *facts.get("path", [])]
    packages = [root for root in roots if "-packages" in _from(started, root)]
    # The current directory may contain the virtual environment, so package folders come first; unless it is
    # in one itself.
    for root in [*sorted([started, *packages], key=len, reverse=True), *roots]:
        if root.strip(os.sep) and full.startswith(root.rstrip(os.sep) + os.sep):
            return os.path.relpath(full, root)
    return full


def absolute(path: str, facts: dict[str, Any]) -> str:
    """Return the absolute path, relative to where the process was started."""
    return os.path.normpath(os.path.join(facts.get("cwd") or here(), path))


def _from(work: str, path: str) -> str:
    """Return what of ``path`` is below the directory ``work`` if that is inside of an installed package."""
    return path.removeprefix(work + os.sep) if "-packages" + os.sep in work else path


def is_own(spot: Spot, facts: dict[str, Any]) -> bool:
    """Return whether ``spot`` is in the user's code: neither a package's nor the standard library's."""
    path = str(spot[0])
    if path.startswith("<"):
        return False
    # The same as the agent's `kind_of_file`: who works inside of an installed package has it for their own.
    inside = _from(facts.get("cwd") or "", path)
    if "-packages" in inside or _PACKED.search(inside):
        return False
    if inside != path:
        return True
    library = os.path.dirname(os.path.dirname(os.path.abspath(facts.get("executable") or "")))
    for root in (facts.get("library"), os.path.join(library, "lib")):
        if root and os.path.abspath(path).startswith(root + os.sep):
            return False
    return True


def source_line(spot: Spot) -> str:
    """Return the text of the line; "" if it cannot be read."""
    try:
        with open(spot[0], encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                if number == spot[1]:
                    return line.strip()
    except OSError:
        pass
    return ""


def line_of(files: Iterable[str], pattern: str) -> Spot | None:
    """Return the first line in ``files`` that matches ``pattern``; None if none does."""
    for file in files:
        try:
            with open(file, encoding="utf-8", errors="replace") as lines:
                for number, line in enumerate(lines, 1):
                    if re.search(pattern, line):
                        return (file, number, "")
        except OSError:
            continue
    return None


def first_statement(file: str) -> tuple[int, int]:
    """Return the lines of the first two statements; 0 for one that does not exist.

    A docstring and imports from ``__future__`` do not count. The source may be of any Python version.
    """
    found: list[int] = []
    begun: list[str] = []
    line = 0
    try:
        with tokenize.open(file) as source:
            for token in tokenize.generate_tokens(source.readline):
                if token.type in (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT):
                    continue
                if token.type not in (tokenize.NEWLINE, tokenize.ENDMARKER):
                    line = line if begun else token.start[0]
                    begun.append("''" if token.type == tokenize.STRING else token.string)
                    continue
                if begun and begun[:2] != ["from", "__future__"] and set(begun) != {"''"}:
                    found.append(line)
                begun = []
                if len(found) == 2:
                    break
    except (OSError, SyntaxError, UnicodeDecodeError, tokenize.TokenError):
        pass
    return (*found, 0, 0)[:2]  # type: ignore[return-value]


def statement_at(spot: Spot) -> tuple[int, int, int]:
    """Return the first and last line of a statement, and the first line of what follows it.

    The statement is the innermost simple one at ``spot``; what follows is the next statement of the module
    (0 if there is none). All are 0 where the source cannot be parsed.
    """
    try:
        with open(spot[0], "rb") as source:
            tree = ast.parse(source.read())
    except (OSError, SyntaxError, ValueError):
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
