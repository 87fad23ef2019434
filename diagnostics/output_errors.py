"""Find the error in what a program wrote before it ended. Pure.

The last line is seldom the error: messages have several lines and end in a bracket, servers log that they
shut down after they have said why, and frames are drawn around texts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["error_in"]

_LONGEST = 300
_BOTH = 140  # of an exception, where an error that follows it is shown, too
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)|\r(?!$)")
# What is drawn around a text: box-drawing characters, the bars of exception groups, pytest's margin.
_DRAWN = re.compile(
    r"^[\s\u2500-\u257f]*[\u2500-\u257f]\s?|\s*[\u2500-\u257f]+\s*$|^\s*[|+]\s(?=\s*\S)|^E\s{3,}"
)
_RULE = re.compile(r"^[\s|+]*\+-+[-+]{3,}")
_TRACEBACK = "Traceback (most recent call last)"
# The name of an exception at the start of a line, with its text.
_NAMED = re.compile(r"^([A-Za-z_]\w*\.)*[A-Za-z_]\w*(Error|Exception|Exit|Interrupt)\b(?=:|$)")
_RAISED = re.compile(r"^([A-Za-z_]\w*\.)*[A-Za-z_]\w*(:\s|$)")
_TELLING = re.compile(
    r"\b(error|exception|fatal|failed|failure|cannot|can't|could not|unable|no such|not found|denied"
    r"|refused|invalid|missing|critical|panic|usage)\b",
    re.IGNORECASE,
)
_MARKED = re.compile(r"^(\S+: )?(error|fatal)\b", re.IGNORECASE)
# Where another text begins: a line of a log, a heading of pytest.
_LOGGED = re.compile(
    r"^[=!_-]{3,}|^\W{0,3}(\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d|(DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL)\b)"
)
# What a server writes about the end of a worker, whatever the reason was that the worker has told.
_EPILOGUE = re.compile(
    r"\bReason: (Worker failed to boot|App failed to load)\.|\bWorker \(pid:\s*\d+\) "
    r"|\bShutting down: Master|\bWorker exiting \(pid|\bBooting worker with pid"
    r"|\[INFO\] Control socket listening at "
)
# The level of a line of a log that tells of an error, with its text.
_LEVEL = re.compile(r"^\W{0,3}\d{4}-.*?\[?\b(ERROR|CRITICAL)\b\]?:?\s+(\S.*)")
_LAST = 3  # different lines of them that are shown
_REFUSED = "HTTPS would be serialized here: "  # of a hook with ``exit_if_serial``: why the program ended
_CHAINED = ("The above exception was", "During handling of the above")


def error_in(output: str) -> str:
    """Return the error in ``output`` in one line; the last statement where nothing looks like one."""
    written = _ESCAPES.sub("", output).splitlines()
    lines = [_DRAWN.sub("", _DRAWN.sub("", line.rstrip())) for line in written if not _RULE.match(line)]
    lines = [line for line in lines if not _EPILOGUE.search(line)] or lines
    if refused := next((line for line in lines if _REFUSED in line), ""):
        return _cut(refused[refused.index(_REFUSED) :], _LONGEST)
    raised, end = _raised(lines)
    rest = lines[end:]
    telling = next((line for line in reversed(rest) if _TELLING.search(line)), "")
    if raised:
        return f"{_cut(raised, _BOTH)} … {_cut(telling, _BOTH)}" if telling else _cut(raised, _LONGEST)
    if telling and _LEVEL.match(telling):
        return _cut(_logged(rest), _LONGEST)
    if telling:
        number = len(rest) - 1 - rest[::-1].index(telling)
        return _cut(_joined(rest, _marked(rest, _start(rest, number))), _LONGEST)
    return _cut(_joined(lines, _start(lines, len(lines) - 1)), _LONGEST)


def _logged(lines: Sequence[str]) -> str:
    """Return the last different errors of a log; a worker that is started again logs the same again."""
    found = {text.group(2): line for line in lines if (text := _LEVEL.match(line))}
    return " … ".join(list(found.values())[-_LAST:])


def _raised(lines: Sequence[str]) -> tuple[str, int]:
    """Return the last exception that a traceback shows, or a line names, and the line behind it."""
    begin = max((number for number, line in enumerate(lines) if _TRACEBACK in line), default=None)
    if begin is not None:
        for number in range(begin + 1, len(lines)):
            line = lines[number]
            indented = line[:1].isspace() or not line
            if not indented and _RAISED.match(line):
                return _joined(lines, number), _end(lines, number)
    named = [number for number, line in enumerate(lines) if _NAMED.match(line)]
    return (_joined(lines, named[-1]), _end(lines, named[-1])) if named else ("", 0)


def _end(lines: Sequence[str], start: int) -> int:
    """Return the line behind the text that begins at ``start``."""
    for number in range(start + 1, len(lines)):
        line = lines[number]
        if not line.strip() or _LOGGED.match(line) or _TRACEBACK in line or line.startswith(_CHAINED):
            return number
    return len(lines)


def _start(lines: Sequence[str], last: int) -> int:
    """Return where the statement begins that has the line ``last``: not indented, no bracket alone."""
    while last > 0 and (not lines[last].strip() or _continues(lines[last])):
        last -= 1
    return max(0, last)


def _marked(lines: Sequence[str], last: int) -> int:
    """Return the line of the same paragraph that says that it is an error; ``last`` if none does."""
    first = last
    while first >= 0 and lines[first].strip() and not _LOGGED.match(lines[first]):
        if _MARKED.match(lines[first]):
            return first
        first -= 1
    return last


def _continues(line: str) -> bool:
    return line[:1].isspace() or not re.search(r"\w", line) or line[0] in ")]}"


def _joined(lines: Sequence[str], start: int) -> str:
    return " ".join(" ".join(lines[start : _end(lines, start)]).split())


def _cut(text: str, longest: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= longest else text[: longest - 2] + " …"
