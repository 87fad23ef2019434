"""Attribute a stack to the code that a person would look at, by file and line."""

import os
import sys

from . import https_inspection, places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType
    from typing import Any, Dict, List, Optional, Tuple

    Spot = Tuple[Any, ...]  # see `places`

_HERE = os.path.dirname(os.path.abspath(__file__))
_ABOVE = os.path.dirname(_HERE)
_EARLY = os.path.join(_ABOVE, "early")
_kinds = {}  # type: Dict[str, str]  # by file
_MAX_FRAMES = 60
_COUNTS_FROM_ONE = sys.version_info >= (3, 13)  # `site`, the lines of a .pth file


def kind(code):
    # type: (CodeType) -> str
    """Return ``user``, ``package``, ``library``, ``gevent``, ``import`` (the import machinery) or
    ``agent``."""
    # Not by the code: two that differ in their file alone are equal.
    found = _kinds.get(code.co_filename)
    if found is None:
        found = _kinds[code.co_filename] = kind_of_file(code.co_filename)
    return found


def kind_of_file(name):
    # type: (str) -> str
    """Return the same as ``kind`` for the name of a source file."""
    if not name.startswith("<"):
        path = absolute(name)
        if path.startswith((_HERE + os.sep, _EARLY + os.sep)) or os.path.dirname(path) == _ABOVE:
            return "agent"
    return https_inspection.kind_of_file(name)


absolute = https_inspection.absolute


def _kind(frame):
    # type: (FrameType) -> str
    """Return the same for a frame: what the user wrote without a file is the user's, too."""
    plain = kind(frame.f_code)
    if plain != "user" and not (plain == "library" and frame.f_code.co_filename.startswith("<")):
        return plain
    place = places.spot(frame)[0]
    if place in places.sources:
        return "user"
    return "library" if place.startswith("<") else kind_of_file(place)


def stack(frame, end=None):
    # type: (Optional[FrameType], Optional[FrameType]) -> List[Spot]
    """Return the frames from ``frame`` outwards, innermost first, without import machinery and agent.

    The last one is that within ``end``.
    """
    spots = []  # type: List[Spot]
    while frame is not None and frame is not end and len(spots) < _MAX_FRAMES:
        code = frame.f_code
        if kind(code) not in ("import", "agent"):
            spots.append(_pth(frame) or places.spot(frame))
        frame = frame.f_back
    return spots


def _pth(frame):
    # type: (FrameType) -> Optional[Spot]
    """Return the line of a ``.pth`` file that ``site`` executes in ``frame``, if it does."""
    code = frame.f_code
    if code.co_name != "addpackage" or not code.co_filename.endswith(("site.py", "<frozen site>", "site>")):
        return None
    seen = frame.f_locals
    path, line = seen.get("fullname"), seen.get("n", 1)
    if not path:
        return None
    return (str(path), line + (not _COUNTS_FROM_ONE) if isinstance(line, int) else 1, ".pth")


def user(frame):
    # type: (Optional[FrameType]) -> Optional[Spot]
    """Return the first frame outwards that is the user's code: not the library's or a package's."""
    while frame is not None:
        pth = _pth(frame)
        if pth is not None:
            return pth
        if _kind(frame) == "user":
            return places.spot(frame)
        frame = frame.f_back
    return None


def is_within(frame, other):
    # type: (Optional[FrameType], Optional[FrameType]) -> bool
    """Return whether ``frame`` is called from ``other``, or is it."""
    while frame is not None and frame is not other:
        frame = frame.f_back
    return frame is not None


def is_users(frame):
    # type: (FrameType) -> bool
    """Return whether ``frame`` is the user's code."""
    return _kind(frame) == "user"


def is_module(code):
    # type: (CodeType) -> bool
    """Return whether it is the code of a module, or of a cell of IPython."""
    return code.co_name == "<module>" or code.co_name.startswith("<cell line")


def main_file(frame):
    # type: (Optional[FrameType]) -> str
    """Return the file of the user's that runs as ``__main__`` around ``frame``, the outermost; "" if none
    does.

    In a packed program it may be a package's.
    """
    found = packed = ""
    while frame is not None:
        if is_module(frame.f_code) and frame.f_globals.get("__name__") == "__main__":
            file, whose = absolute(frame.f_code.co_filename), kind(frame.f_code)
            if whose == "user":
                found = file
            elif whose == "package":
                packed = file
            elif https_inspection.is_start_code(file):
                found = found or packed
        frame = frame.f_back
    return found


def start_code():
    # type: () -> List[str]
    """Return the files of a packer that have run, as far as a stack had them; [] if nothing is packed."""
    files = [absolute(name) for name in list(_kinds) if not name.startswith("<")]
    return sorted(file for file in files if https_inspection.is_start_code(file))


def module_level(frame):
    # type: (Optional[FrameType]) -> Optional[Spot]
    """Return the line in a module of the user's from which ``frame`` is reached.

    It is the outermost such line of the stack, else the one that the main greenlet is at.
    """
    found = None
    outer = frame
    while outer is not None:
        if is_module(outer.f_code) and _kind(outer) == "user":
            found = places.spot(outer)
        outer = outer.f_back
    greenlet = sys.modules.get("greenlet")
    if found is None and greenlet is not None:
        current = greenlet.getcurrent()
        main = current
        while main.parent is not None:
            main = main.parent
        outer = main.gr_frame if main is not current else None
        while outer is not None:
            if is_module(outer.f_code) and _kind(outer) == "user":
                found = places.spot(outer)
            outer = outer.f_back
    return found


def caller(frame):
    # type: (Optional[FrameType]) -> Optional[Spot]
    """Return the first frame outwards that is the user's or a package's, not gevent's or the agent's."""
    while frame is not None:
        pth = _pth(frame)
        if pth is not None:
            return pth
        if _kind(frame) in ("user", "package"):
            return places.spot(frame)
        frame = frame.f_back
    return None


def event(frame, **fields):
    # type: (Optional[FrameType], **Any) -> Dict[str, Any]
    """Return a record of what happens in ``frame``: ``fields``, ``caller``, ``user`` and ``stack``."""
    fields.update(caller=caller(frame), user=user(frame), stack=stack(frame)[:25])
    return fields
