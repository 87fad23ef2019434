"""Carry out the text of a remedy, as ``--fix`` prints it, in a copy of the application."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path


def carry_out(folder: Path, line: str, where: str) -> list[str]:
    """Change the application in ``folder`` as the text says; return the argv that starts its command.

    ``command`` and what follows is another command to start. What is given to ``python -c`` is in no file:
    see ``carry_out_in``.
    """
    where = where.removesuffix(", then pack the program again")  # which is left to the caller
    if found := re.fullmatch(r"the first line of (\S+)", where):
        _insert(folder / found[1], 1, line)
    elif found := re.fullmatch(r"the last line of (\S+)", where):
        path = folder / found[1]
        path.write_text(f"{path.read_text()}\n{line}\n")
    elif found := re.fullmatch(r"in front of (\S+):(\d+)", where):
        _insert(folder / found[1], int(found[2]), line)
    elif found := re.fullmatch(r"remove it at (\S+):(\d+)", where):
        _remove(folder / found[1], int(found[2]), line)
    elif found := re.fullmatch(r"instead of (\S+) at (\S+):(\d+)", where):
        _replace(folder / found[2], int(found[3]), found[1], line)
    elif where == "as the command":
        return ["command", *shlex.split(line)]
    elif found := re.fullmatch(r"as the file (\S+), and as the command: (.+)", where):
        (folder / found[1]).write_text(f"{line}\n")
        return ["command", *shlex.split(found[2])]
    elif found := re.fullmatch(r"as the file (\S+\.pth)", where):
        (folder / found[1]).write_text(f"{line}\n")
    elif found := re.fullmatch(r"as the file (\S+) beside (\S+), which it precedes", where):
        (folder / found[2]).with_name(found[1]).write_text(f"{line}\n")
    elif where == "in the shell that starts the process":
        return ["sh", "-c", f'{line} && exec "$@"', "sh"]
    else:
        raise ValueError(f"nobody can carry this out: {line!r} {where!r}")
    return []


def carry_out_in(text: str, line: str, where: str) -> str:
    """Return the text of ``python -c`` or of a cell, changed as the remedy says."""
    lines = text.split("\n")
    if where.startswith("the first line of "):
        return "\n".join([line, *lines])
    if found := re.search(r"in front of .+, line (\d+)$", where):
        return "\n".join([*lines[: int(found[1]) - 1], line, *lines[int(found[1]) - 1 :]])
    raise ValueError(f"nobody can carry this out: {line!r} {where!r}")


def _insert(path: Path, number: int, line: str) -> None:
    lines = path.read_text().splitlines(keepends=True)
    there = lines[number - 1] if number <= len(lines) else ""
    lines.insert(number - 1, there[: len(there) - len(there.lstrip())].strip("\n") + line + "\n")
    path.write_text("".join(lines))


def _remove(path: Path, number: int, line: str) -> None:
    lines = path.read_text().splitlines(keepends=True)
    assert lines[number - 1].strip() == line
    for node in ast.walk(ast.parse("".join(lines))):
        if isinstance(node, ast.Expr) and node.lineno <= number <= (node.end_lineno or 0):
            lines[node.lineno - 1 : node.end_lineno] = [" " * node.col_offset + "pass\n"]
            path.write_text("".join(lines))
            return
    raise ValueError(f"there is no statement at {path}:{number}")


def _replace(path: Path, number: int, old: str, new: str) -> None:
    lines = path.read_text().splitlines(keepends=True)
    assert old in lines[number - 1].replace(" ", "")
    lines[number - 1] = re.sub(old.replace("=", r"\s*=\s*"), new, lines[number - 1])
    path.write_text("".join(lines))
