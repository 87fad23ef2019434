"""Who did it: the stack, told as file and line of the code that a person would look at."""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType
    from typing import Any, Dict, List, Optional, Tuple

    Spot = Tuple[str, int, str]  # file, line, function

_HERE = os.path.dirname(os.path.abspath(__file__))
_ABOVE = os.path.dirname(_HERE)
_EARLY = os.path.join(_ABOVE, "early")
_LIBRARY = os.path.dirname(os.path.abspath(os.__file__))
try:
    _START = os.getcwd()  # where the process was started: it may go elsewhere
except OSError:
    _START = ""  # it was removed
_kinds = {}  # type: Dict[CodeType, str]
MOST = 60
_COUNTS_FROM_ONE = sys.version_info >= (3, 13)  # `site`, the lines of a .pth file


def kind(code):
    # type: (CodeType) -> str
    """``user``, ``package``, ``library``, ``gevent``, ``import`` (the import machinery) or ``agent``."""
    found = _kinds.get(code)
    if found is None:
        found = _kinds[code] = kind_of_file(code.co_filename)
    return found


def kind_of_file(name):
    # type: (str) -> str
    """The same for the name of a source file."""
    if name.startswith("<frozen importlib") or ("importlib" in name and "_bootstrap" in name):
        return "import"
    if name.startswith("<"):
        return "library"
    path = absolute(name)
    if path.startswith((_HERE + os.sep, _EARLY + os.sep)) or os.path.dirname(path) == _ABOVE:
        return "agent"
    parts = path.replace("\\", "/").split("/")
    if "site-packages" in parts or "dist-packages" in parts:
        return "gevent" if "gevent" in parts or "greenlet" in parts else "package"
    if path.startswith(_LIBRARY + os.sep):
        return "library"
    if path.startswith(os.path.join(sys.prefix, "bin") + os.sep):
        return "package"  # a console script: it only calls what is installed
    return "user"


def absolute(path):
    # type: (str) -> str
    """The path in full, seen from where the process was started."""
    return os.path.normpath(os.path.join(_START, path))


def stack(frame):
    # type: (Optional[FrameType]) -> List[Spot]
    """The frames from ``frame`` outwards, innermost first, without the import machinery and us."""
    spots = []  # type: List[Spot]
    while frame is not None and len(spots) < MOST:
        code = frame.f_code
        if kind(code) not in ("import", "agent"):
            spots.append(_pth(frame) or (code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return spots


def _pth(frame):
    # type: (FrameType) -> Optional[Spot]
    """The line of a ``.pth`` file that ``site`` executes in ``frame``."""
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
    """The first frame outwards that is code of the user: not of the library or a package."""
    while frame is not None:
        pth = _pth(frame)
        if pth is not None:
            return pth
        if kind(frame.f_code) == "user":
            return (frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
    return None


def module_level(frame):
    # type: (Optional[FrameType]) -> Optional[Spot]
    """The line of a module of the user's from which ``frame`` is reached: the outermost, else the one that
    the main greenlet is at."""
    found = None
    outer = frame
    while outer is not None:
        if outer.f_code.co_name == "<module>" and kind(outer.f_code) == "user":
            found = (outer.f_code.co_filename, outer.f_lineno, outer.f_code.co_name)
        outer = outer.f_back
    greenlet = sys.modules.get("greenlet")
    if found is None and greenlet is not None:
        current = greenlet.getcurrent()
        main = current
        while main.parent is not None:
            main = main.parent
        outer = main.gr_frame if main is not current else None
        while outer is not None:
            if outer.f_code.co_name == "<module>" and kind(outer.f_code) == "user":
                found = (outer.f_code.co_filename, outer.f_lineno, outer.f_code.co_name)
            outer = outer.f_back
    return found


def caller(frame):
    # type: (Optional[FrameType]) -> Optional[Spot]
    """The first frame outwards that is neither gevent's, nor ours, nor the import machinery's."""
    while frame is not None:
        pth = _pth(frame)
        if pth is not None:
            return pth
        if kind(frame.f_code) in ("user", "package"):
            return (frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
    return None


def event(frame, **fields):
    # type: (Optional[FrameType], **Any) -> Dict[str, Any]
    """A record of what happens in ``frame``: ``caller``, ``user`` and ``stack``."""
    fields.update(caller=caller(frame), user=user(frame), stack=stack(frame)[:25])
    return fields
