"""Observe the imports of a process: who imports what, and when a module is complete.

In Python 3, the function of importlib that asks all finders is replaced. A finder in ``sys.meta_path``
would not do: programs replace the list, and put finders of their own in front. In Python 2 there is no such
function, so a finder at the front observes; it finds nothing itself.
"""

import sys

from . import frames, harmless, wrapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, ModuleType
    from typing import Any, Callable, List, Optional, Tuple

    Change = Callable[[ModuleType], None]
    ChangeOf = Callable[[str], Optional[Change]]
    Noting = Callable[[str, Optional[FrameType]], None]

_observers = []  # type: List[Tuple[ChangeOf, Optional[Noting]]]


def observe(change_of, noting=None):
    # type: (ChangeOf, Optional[Noting]) -> None
    """Call what ``change_of(name)`` returns with the module of that name once it is complete.

    It returns None for a module of no interest. ``noting(name, frame)`` is called before a module is looked
    for that ``frame`` imports.
    """
    if sys.version_info[0] == 2:
        sys.meta_path.insert(0, _Finder(change_of, noting))
        return
    _observers.append((change_of, noting))
    wrapping.replace(sys.modules["_frozen_importlib"], "_find_spec", _observing)


def _observing(find):
    # type: (Callable[..., Any]) -> Callable[..., Any]
    """Return ``find``, which asks all finders for a spec, with calls of the observers."""

    def _find_spec(name, path, target=None):
        # type: (str, Any, Any) -> Any
        frame = _importing(sys._getframe().f_back)
        for _, noting in _observers:
            if noting is not None and frame is not None:
                noting(name, frame)
        spec = find(name, path, target)
        for change_of, _ in _observers:
            change = change_of(name) if spec is not None else None
            if change is not None:
                _call_after(spec.loader, change)
        return spec

    return _find_spec


def _importing(frame):
    # type: (Optional[FrameType]) -> Optional[FrameType]
    """Return the frame that a module is looked for in; None if it is none of an import.

    The program only asks for a spec, as `importlib.util.find_spec` does.
    """
    outer = frame
    while outer is not None:
        kind, caller = frames.kind(outer.f_code), outer.f_back
        if _is_import(outer) or kind == "agent":
            return frame
        if kind in ("user", "package"):
            # It may have put a function of its own around the one that looks.
            return caller if caller is not None and _is_import(caller) else None
        outer = caller
    return frame


def _is_import(frame):
    # type: (FrameType) -> bool
    return frame.f_code.co_name.startswith("_find_and_load")


def _call_after(loader, change):
    # type: (Any, Change) -> None
    """Have ``change`` called once after ``loader`` has executed the code of a module."""
    execute = getattr(loader, "exec_module", None)
    if execute is None or type(loader) is type:
        return

    def exec_module(module):
        # type: (ModuleType) -> None
        loader.__dict__.pop("exec_module", None)
        execute(module)
        harmless.made(change)(module)

    try:
        loader.exec_module = exec_module
    except AttributeError:
        pass  # a loader without a dictionary: the module is not changed


class _Finder(object):
    """A finder of Python 2 that only observes."""

    def __init__(self, change_of, noting):
        # type: (ChangeOf, Optional[Noting]) -> None
        self._change_of = change_of
        self._noting = noting

    def find_module(self, name, path=None):
        # type: (str, Any) -> Any
        if self._noting is not None:
            self._noting(name, sys._getframe().f_back)  # no frame where the interpreter imports: runpy
        change = self._change_of(name)
        return None if change is None else _Loader.of(name, path, change)


class _Loader(object):
    """A loader for Python 2 that imports with ``imp``, then calls the change.

    Everything else is pkgutil's: runpy, for example, gets the code object from it.
    """

    def __init__(self, name, found, change):
        # type: (str, Any, Callable[[ModuleType], None]) -> None
        import pkgutil

        source, path, description = found
        plain = pkgutil.ImpLoader(name, source, path, description)  # type: Any
        self._plain = plain
        self._change = change

    def __getattr__(self, name):
        # type: (str) -> Any
        return getattr(self._plain, name)

    @classmethod
    def of(cls, name, path, change):
        # type: (str, Any, Callable[[ModuleType], None]) -> Any
        import imp

        try:
            return cls(name, imp.find_module(name.rpartition(".")[2], path), change)
        except ImportError:
            return None

    def load_module(self, name):
        # type: (str) -> Any
        if name in sys.modules:
            return sys.modules[name]
        module = self._plain.load_module(name)
        harmless.made(self._change)(module)
        return module
