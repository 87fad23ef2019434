"""Execute a remedy in this process: the line of code that is printed, at the place that is printed.

A remedy is a dictionary: ``code``, ``line`` (the code), ``place`` (a key of ``_PLACES``) and what the place
needs: ``file``, ``number`` and ``last`` (lines), ``name``. ``diagnostics.remedy`` chooses lines and places;
nothing here depends on a remedy's code.
"""

import os
import sys

from . import frames, places, wrapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, ModuleType
    from typing import Any, Callable, Dict, List, Optional

    from .recorder import Record

    Remedy = Dict[str, Any]

applied = []  # type: List[str]  # codes of the remedies that were executed
# The functions of `site` that read the files of a folder, read one, and go on when all are read.
AT_PTH_FILES = ("addsitedir", "addpackage", "execsitecustomize")
_read = []  # type: List[str]  # the folders whose .pth files are read
_waiting = {}  # type: Dict[str, List[Remedy]]  # by the moment at which the agent executes it: pth, set-up, fetch


def prepare(wanted, record):
    # type: (List[Remedy], Record) -> None
    """Arrange for each of ``wanted`` to be executed when its place is reached.

    Raises KeyError for an unknown place.
    """
    for remedy in wanted:
        _PLACES[remedy["place"]](remedy, record)


def reach(moment):
    # type: (str) -> None
    """Execute the remedies for ``moment``."""
    for remedy in _waiting.pop(moment, []):
        _run(remedy, {})


def before_pth_files(site):
    # type: (Any) -> None
    """Arrange for the remedies that are a ``.pth`` file to run where it would be read, or after it."""
    for remedy in _waiting.pop("pth", []):
        for name in AT_PTH_FILES:

            def before(frame, arguments, remedy=remedy, name=name):
                # type: (Optional[FrameType], Dict[str, Any], Remedy, str) -> None
                if is_due(remedy, name, arguments):
                    _run(remedy, {})

            wrapping.wrap(site, name, before)


def is_due(remedy, function, arguments):
    # type: (Remedy, str, Dict[str, Any]) -> bool
    """Return whether ``remedy`` is a ``.pth`` file that has been read where ``site`` calls ``function``.

    ``function`` is one of ``AT_PTH_FILES``, called with ``arguments``. It has been read where a file of its
    folder is read that sorts behind it, or where all have been read. It was not executed yet.
    """
    if remedy["place"] != "pth" or remedy["code"] in applied:
        return False
    if function == "execsitecustomize":
        return any(_same(folder, remedy["file"]) for folder in _read)
    if function == "addsitedir":
        _read.append(arguments["sitedir"])
        return False
    return _same(arguments["sitedir"], remedy["file"]) and arguments["name"] > remedy["name"]


def run_early(remedy):
    # type: (Remedy) -> None
    """Execute the remedy now."""
    _run(remedy, {})


def _run(remedy, names):
    # type: (Remedy, Dict[str, Any]) -> None
    applied.append(remedy["code"])
    file = remedy.get("file") or "<remedy>"
    exec(compile("\n" * (remedy.get("number", 1) - 1) + remedy["line"], file, "exec"), names)  # noqa: S102


def _same(path, other):
    # type: (str, str) -> bool
    if path.startswith("<") or other.startswith("<"):
        return path == other
    if os.path.basename(path) != os.path.basename(other):
        return False
    return os.path.realpath(frames.absolute(path)) == os.path.realpath(other)


class _Insertion(object):
    """Executes the line as if it stood in the module of ``file``.

    It does so before the module's first statement, after its last one, or before the lines ``number`` to
    ``last``.
    """

    def __init__(self, remedy, record):
        # type: (Remedy, Record) -> None
        self._remedy = remedy
        self._files = {}  # type: Dict[str, bool]
        sys.setprofile(self._profile)

    def _is(self, frame):
        # type: (FrameType) -> bool
        if self._remedy["file"].startswith("<"):
            return places.name_of(frame) == str(self._remedy["file"])
        name = frame.f_code.co_filename
        if name not in self._files:
            self._files[name] = _same(name, self._remedy["file"])
        return self._files[name]

    def _profile(self, frame, event, arg):
        # type: (FrameType, str, Any) -> None
        place = self._remedy["place"]
        if not frames.is_module(frame.f_code) or event != ("return" if place == "end" else "call"):
            return
        if not self._is(frame):
            return
        if place == "line" and places.cell_of(self._remedy["file"]):
            # IPython compiles each statement of a cell by itself.
            sys.settrace(lambda *told: None)
            frame.f_trace = self._line
            return
        sys.setprofile(None)
        if place == "line":
            frame.f_trace = self._line
            sys.settrace(lambda *told: None)
        else:
            _run(self._remedy, frame.f_globals)

    def _line(self, frame, event, arg):
        # type: (FrameType, str, Any) -> Any
        if event == "line" and self._remedy["number"] <= frame.f_lineno <= self._remedy["last"]:
            sys.settrace(None)
            sys.setprofile(None)
            _run(self._remedy, frame.f_globals)
            return None
        return self._line


def _called_at(frame, remedy):
    # type: (FrameType, Remedy) -> bool
    """Return whether ``remedy`` is for the line of the innermost frame of the user's, or of a package's."""
    for spot in (frames.caller(frame), frames.user(frame)):
        if spot is None or not _same(spot[0], remedy["file"]):
            continue
        if remedy["number"] <= spot[1] <= remedy["last"]:
            return True
    return False


def _leave_out(remedy, record):
    # type: (Remedy, Record) -> None
    """Make the call of the function ``name`` at these lines do nothing."""

    def instead(function):
        # type: (Callable[..., Any]) -> Callable[..., Any]
        def call(*args, **kwargs):
            # type: (*Any, **Any) -> Any
            if _called_at(sys._getframe(1), remedy):
                applied.append(remedy["code"])
                return None
            return function(*args, **kwargs)

        return call

    record.instead[remedy["name"]] = instead


def _without_argument(remedy, record):
    # type: (Remedy, Record) -> None
    """Make the objects that are created at these lines with ``name=False``."""

    def change(module):
        # type: (ModuleType) -> None
        for name in (
            "HTTPAdapter",
            "PoolManager",
            "ProxyManager",
            "HTTPConnectionPool",
            "HTTPSConnectionPool",
        ):
            kind = getattr(module, name, None)
            if kind is not None and kind.__module__ == module.__name__:
                kind.__init__ = _turned_off(kind.__init__, remedy)

    for name in ("requests.adapters", "urllib3.poolmanager", "urllib3.connectionpool"):
        record.on_import[name] = change


def _turned_off(begin, remedy):
    # type: (Callable[..., None], Remedy) -> Callable[..., None]
    def init(self, *args, **kwargs):
        # type: (Any, *Any, **Any) -> None
        if kwargs.get(remedy["name"]) and _called_at(sys._getframe(1), remedy):
            applied.append(remedy["code"])
            kwargs[remedy["name"]] = False
        begin(self, *args, **kwargs)

    return init


def _limit(remedy, record):
    # type: (Remedy, Record) -> None
    """Set the limit as ``ulimit -n`` in the shell that starts the process does."""
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (remedy["number"], remedy["number"]))
    applied.append(remedy["code"])


def _started(remedy, record):
    # type: (Remedy, Record) -> None
    """The command itself is the remedy, as it was started."""
    applied.append(remedy["code"])


def _begin(remedy, record):
    # type: (Remedy, Record) -> None
    """Execute the line now, as a ``.pth`` file of this environment does."""
    if os.path.realpath(sys.prefix) == os.path.realpath(remedy["prefix"]):
        _run(remedy, {})


class _Module(object):
    """Gives the program a module that has the line alone, as a file of that name in its folder does."""

    def __init__(self, remedy, record):
        # type: (Remedy, Record) -> None
        self._remedy = remedy
        sys.meta_path.append(self)

    def find_spec(self, name, path=None, target=None):
        # type: (str, Any, Any) -> Any
        if name != self._remedy["name"]:
            return None
        from importlib.machinery import ModuleSpec

        return ModuleSpec(name, self)  # type: ignore[arg-type]

    def create_module(self, spec):
        # type: (Any) -> None
        return None

    def exec_module(self, module):
        # type: (ModuleType) -> None
        _run(self._remedy, vars(module))

    if sys.version_info[0] == 2:

        def find_module(self, name, path=None):
            # type: (str, Any) -> Any
            return self if name == self._remedy["name"] else None

        def load_module(self, name):
            # type: (str) -> Any
            module = sys.modules.setdefault(name, type(sys)(name))
            _run(self._remedy, vars(module))
            return module


def _wait(remedy, record):
    # type: (Remedy, Record) -> None
    _waiting.setdefault(remedy["place"], []).append(remedy)


_PLACES = {
    "start": _Insertion,
    "end": _Insertion,
    "line": _Insertion,
    "pth": _wait,
    "begin": _begin,
    "command": _started,
    "module": _Module,
    "set-up": _wait,
    "fetch": _wait,
    "ulimit": _limit,
    "call": _leave_out,
    "argument": _without_argument,
}  # type: Dict[str, Callable[[Remedy, Record], Any]]
