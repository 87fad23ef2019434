"""Identify what keeps a hub from running: the stacks of its thread, distinguished and aggregated."""

import os

from . import frames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType
    from typing import Any, Dict, List, Optional, Tuple

    Line = Tuple[CodeType, int]
    Stack = Tuple[Line, ...]  # outermost first
    Spot = Tuple[str, int, str, str]  # file, line (0: it varies), function, kind of code

_LOOP = ("gevent/_ffi/loop.py", "gevent/libuv/loop.py", "gevent/libev/corecffi.py")
_DEEP = 40  # frames that are reported
_SAMPLES = 100  # stacks of one hold that are kept
_MAJORITY = 2.0 / 3  # fraction of the samples that decides
# By address: a code object computes its hash every time, from all of its bytecode.
_loops = {}  # type: Dict[int, Tuple[CodeType, bool]]


def _is_loop(code):
    # type: (CodeType) -> bool
    """Return whether it is the loop itself, or the agent, not what the loop calls."""
    known = _loops.get(id(code))
    if known is None:
        name = code.co_filename.replace("\\", "/")
        own = name.endswith(_LOOP) or (name.endswith("gevent/hub.py") and code.co_name == "run")
        known = _loops[id(code)] = (code, own or frames.kind(code) == "agent")
    return known[1]


class Hold(object):
    """A time in which something kept the hub from running, since one ``stamp``.

    ``root``: the address of the frame that began it; ``seconds`` of wall time, ``spent`` of CPU time;
    ``own``: the wall time without the time in which the machine had no CPU for it.
    """

    def __init__(self, stamp, root, stack, seconds, spent):
        # type: (float, int, Stack, float, float) -> None
        self.stamp = stamp
        self.root = root
        self.seconds = self.own = seconds
        self.spent = spent
        self.samples = [[stack, 1]]  # type: List[List[Any]]

    def lasts(self, seconds, own, spent):
        # type: (float, float, float) -> None
        """Extend the hold."""
        self.seconds += max(0.0, seconds)
        self.own += max(0.0, own)
        self.spent += spent

    def seen(self, stack):
        # type: (Stack) -> None
        """Add a sample."""
        if self.samples[-1][0] == stack:
            self.samples[-1][1] += 1
        elif len(self.samples) < _SAMPLES:
            self.samples.append([stack, 1])

    def place(self):
        # type: () -> Tuple[List[Line], Dict[int, int]]
        """Return the stack that most samples share, and how often its innermost frame was at which line.

        The stack is as deep as the samples agree. There is more than one line only if they part there.
        """
        remaining, found = self.samples, []  # type: List[List[Any]], List[Line]
        minimum = _MAJORITY * sum(times for _, times in remaining)
        while True:
            depth = len(found)
            lines = {}  # type: Dict[Tuple[int, int], int]
            codes = {}  # type: Dict[int, int]
            for stack, times in remaining:
                if len(stack) > depth:
                    code, line = stack[depth]
                    lines[id(code), line] = lines.get((id(code), line), 0) + times
                    codes[id(code)] = codes.get(id(code), 0) + times
            code_id = max(codes, key=lambda each: codes[each]) if codes else 0
            if not codes or codes[code_id] < minimum:
                return found, {found[-1][1]: 1} if found else {}
            remaining = [
                each for each in remaining if len(each[0]) > depth and id(each[0][depth][0]) == code_id
            ]
            at = max((line for code, line in lines if code == code_id), key=lambda n: lines[code_id, n])
            found.append((remaining[0][0][depth][0], at))
            if lines[code_id, at] < minimum:
                return found, dict((line, n) for (code, line), n in lines.items() if code == code_id)
            remaining = [each for each in remaining if each[0][depth][1] == at]


def spots(stack, moves):
    # type: (List[Line], bool) -> Tuple[Spot, ...]
    """Return the stack as it is reported: innermost first; with line 0 for the innermost if it
    ``moves``."""
    told = []
    for code, line in stack[-_DEEP:]:
        whose = frames.kind(code)
        if whose not in ("import", "agent"):
            path = code.co_filename
            path = path if path.startswith("<") else os.path.abspath(path)
            told.append((path, 0 if moves and code is stack[-1][0] else line, code.co_name, whose))
    return tuple(reversed(told))


class Folded(object):
    """The sums of all holds at one place."""

    def __init__(self):
        # type: () -> None
        self.count = 0
        self.seconds = self.longest = self.own = self.spent = 0.0
        self.lines = {}  # type: Dict[int, int]

    def add(self, hold, lines):
        # type: (Hold, Dict[int, int]) -> None
        self.count += 1
        self.seconds += hold.seconds
        self.longest = max(self.longest, hold.seconds)
        self.own += hold.own
        self.spent += hold.spent
        for line, times in lines.items():
            self.lines[line] = self.lines.get(line, 0) + times

    def told(self, place):
        # type: (Tuple[Spot, ...]) -> Dict[str, Any]
        """Return the sums as they are reported."""
        return {
            "stack": place,
            "line": max(self.lines, key=lambda each: self.lines[each]) if self.lines else 0,
            "count": self.count,
            "seconds": self.seconds,
            "longest": self.longest,
            "own": self.own,
            "cpu": self.spent,
        }


def walk(frame):
    # type: (Optional[FrameType]) -> Tuple[Stack, int, bool]
    """Return the stack outside of the loop, the address of its outermost frame, and if that is known.

    A known frame has been seen by an earlier call. Its address alone does not show that: the next
    greenlet's frame may have the same one.
    """
    stack = []  # type: List[Line]
    root = None
    while frame is not None:
        if not _is_loop(frame.f_code):
            root = frame
            stack.append((frame.f_code, frame.f_lineno or 0))
        frame = frame.f_back
    if root is None:
        return (), 0, False
    # So mark the frame, in a field that only a debugger's line events use. Python 3.6 has no such field.
    known = not getattr(root, "f_trace_lines", False)
    if not known:
        root.f_trace_lines = False
    return tuple(reversed(stack)), id(root), known
