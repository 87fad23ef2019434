"""Detect when the main module ends, on Python 3.12: afterwards, at exit, it starts no threads."""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType
    from typing import Any, Callable, Optional

_NAME = "https_agent"


def call(over):
    # type: (Callable[[Optional[BaseException]], None]) -> None
    """Call ``over`` when the code of ``__main__`` returns, or with the exception that ends it."""
    monitoring = getattr(sys, "monitoring", None)  # type: Any
    if monitoring is None or sys.version_info[:2] != (3, 12):
        return
    tool = next((number for number in (3, 4) if monitoring.get_tool(number) is None), None)
    if tool is None:
        return
    monitoring.use_tool_id(tool, _NAME)
    events = monitoring.events

    def ended(frame, error):
        # type: (FrameType, Optional[BaseException]) -> None
        if _is_main(frame):
            monitoring.set_events(tool, 0)
            monitoring.free_tool_id(tool)
            if not _threads_run():
                over(error)

    def returned(code, offset, value):
        # type: (CodeType, int, Any) -> Any
        if code.co_name != "<module>":
            return monitoring.DISABLE  # report each place only once
        ended(sys._getframe(1), None)
        return None

    def unwound(code, offset, error):
        # type: (CodeType, int, BaseException) -> None
        ended(sys._getframe(1), error)

    monitoring.register_callback(tool, events.PY_RETURN, returned)
    monitoring.register_callback(tool, events.PY_UNWIND, unwound)
    monitoring.set_events(tool, events.PY_RETURN | events.PY_UNWIND)


def _is_main(frame):
    # type: (FrameType) -> bool
    if frame.f_code.co_name != "<module>" or frame.f_globals.get("__name__") != "__main__":
        return False
    return frame.f_back is None or frame.f_back.f_globals.get("__name__") == "runpy"


def _threads_run():
    # type: () -> bool
    """Return whether threads are left that the interpreter waits for before it exits."""
    threading = sys.modules.get("threading")  # type: Any
    if threading is None:
        return False
    main = threading.main_thread()
    return any(each is not main and not each.daemon for each in threading.enumerate())
