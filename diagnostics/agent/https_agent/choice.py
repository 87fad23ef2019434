"""Decide whether this process of a command may be probed: gevent is in use, and the set-up is complete."""

import os
import sys

from . import facts, wrapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, ModuleType
    from typing import Any, Callable, Dict, List, Optional, Tuple

# Processes that only supervise workers: by module, the class whose instance makes the process one, and its
# attribute that counts the workers it has started; and their workers: the class, and the method that boots
# one and lets it serve then.
_OVERSEERS = {"gunicorn.arbiter": ("Arbiter", "worker_age")}
_WORKERS = {"gunicorn.workers.base": ("Worker", "init_process")}
_overseer = [0, None, ""]  # type: List[Any]  # the process id, the instance, the attribute
_worker = [0, None]  # type: List[Any]  # the process id, and its worker
IMPORTS = "it is still importing "
PATCHES = "it is still patching"
UNSERVED = "it ended before it came to serve"
OVERSEES = "it only starts and watches workers"
WORKERLESS = "it has started no worker yet"
_IMPORTERS = ("importlib._bootstrap", "_frozen_importlib")
UNUSED = "gevent is imported, but runs no hub and has patched nothing"


def hub():
    # type: () -> Any
    """Return gevent's hub of this thread; None if there is none."""
    local = sys.modules.get("gevent._hub_local")
    return local.get_hub_if_exists() if local is not None else None


def current():
    # type: () -> Any
    """Return the current greenlet; None if greenlet is not loaded."""
    greenlet = sys.modules.get("greenlet")
    return greenlet.getcurrent() if greenlet is not None else None


def uses_gevent():
    # type: () -> bool
    """Return True if a hub exists or something is patched.

    That gevent is loaded does not count: many libraries import it only to find out whether it is in use.
    """
    if "gevent" not in sys.modules:
        return False
    return hub() is not None or any(facts.patched().values())


def in_greenlet():
    # type: () -> bool
    """Return True in a greenlet that a hub switches to, but not in the main greenlet of the thread."""
    own = hub()
    return own is not None and current() is not own and current() is not own.parent


def obstacle(frame):
    # type: (Optional[FrameType]) -> str
    """Return why this process, interrupted in ``frame``, must not be probed now; "" if it may be."""
    if oversees() and getattr(_overseer[1], _overseer[2], False):
        return OVERSEES
    # Patching comes first, whatever is imported meanwhile.
    sets_up = PATCHES if patching(frame) is not None else _set_up(_of_main(frame))
    if oversees():
        # It may import the application before its workers, which share that then, and wait there for ever.
        return _but(WORKERLESS, sets_up)
    if "gevent" not in sys.modules:
        return "it has not loaded gevent"
    return sets_up or ("" if uses_gevent() else UNUSED)


def _of_main(frame):
    # type: (Optional[FrameType]) -> Optional[FrameType]
    """Return where the main greenlet is, which is in ``frame`` if it is the current one."""
    own = hub()
    if own is None or current() is own.parent:
        return frame
    found = getattr(own.parent, "gr_frame", None)  # type: Optional[FrameType]
    return found


def patching(frame):
    # type: (Optional[FrameType]) -> Optional[Tuple[FrameType, FrameType]]
    """Return where a thread, or the main greenlet, is in a call that patches, and the frame of that call.

    Return None where there is no such call; the process was interrupted in ``frame``. Where greenlets run,
    other threads do not count: the program does not wait for them.
    """
    threads = [] if in_greenlet() else list(sys._current_frames().values())
    for at in [frame, _of_main(frame)] + threads:
        call, outer = None, at
        while outer is not None:
            call, outer = (outer if _patches(outer) else call), outer.f_back
        if at is not None and call is not None:
            return at, call
    return None


def _patches(frame):
    # type: (FrameType) -> bool
    """Return whether ``frame`` runs a function of gevent that patches."""
    function = frame.f_code.co_name.lstrip("_")
    return str(frame.f_globals.get("__name__")).startswith("gevent.") and function.startswith(
        ("patch", "reinit")
    )


def _but(what, since):
    # type: (str, str) -> str
    return "%s: %s" % (what, since) if since else what


def oversees():
    # type: () -> bool
    """Return True in a process that supervises others, such as gunicorn's arbiter."""
    return bool(_overseer[0] == os.getpid())


def never_serves():
    # type: () -> bool
    """Return True in a worker whose application or hook has not let it come to serve."""
    return _worker[0] == os.getpid() and getattr(_worker[1], "booted", None) is False


def _set_up(frame):
    # type: (Optional[FrameType]) -> str
    """Return which part of its set-up the program is executing in ``frame``; "" if that is complete."""
    while frame is not None:
        name, function = str(frame.f_globals.get("__name__")), frame.f_code.co_name
        if function == "<module>" and name != "__main__":
            return IMPORTS + name
        if name in _IMPORTERS and function == "_find_and_load":
            # Before and after the module's own code, too: who imports it now gets one that is not complete.
            return IMPORTS + str(frame.f_locals.get("name"))
        frame = frame.f_back
    return ""


def note_overseers(on_import):
    # type: (Dict[str, Callable[[ModuleType], None]]) -> None
    """Detect which process becomes a supervisor or a worker, from the import of their modules on."""

    for module_name, (class_name, count) in _OVERSEERS.items():

        def before(frame, arguments, count=count):
            # type: (Optional[FrameType], Dict[str, Any], str) -> None
            _overseer[:] = [os.getpid(), arguments["self"], count]

        def change(module, class_name=class_name, before=before):
            # type: (Any, str, Any) -> None
            wrapping.wrap(getattr(module, class_name), "__init__", before)

        on_import[module_name] = change

    def boots(frame, arguments):
        # type: (Optional[FrameType], Dict[str, Any]) -> None
        _worker[:] = [os.getpid(), arguments["self"]]

    for module_name, (class_name, method) in _WORKERS.items():

        def follow(module, class_name=class_name, method=method):
            # type: (Any, str, str) -> None
            wrapping.wrap(getattr(module, class_name), method, boots)

        on_import[module_name] = follow
