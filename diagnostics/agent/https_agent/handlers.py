"""Call what a client of botocore calls around its HTTP session: the program's handlers of its events.

The copy that is measured is of the HTTP session. The handlers that are called with a request before it is
sent can be called with the probe's, too. Others are called with what only the client makes of a response,
or of the parameters of a call: they are named.
"""

import functools
import sys

from . import frames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Callable, Dict, List, Optional, Tuple

    Fetch = Callable[[str], Any]
    Handler = Tuple[str, Callable[..., Any]]  # with the event

_OWN = ("botocore", "boto3", "s3transfer")
_CREATED, _SENT = _CALLED = "request-created", "before-send"
# What it emits for each call, as EVENT.SERVICE.OPERATION.
_EVENTS = (
    "provide-client-params",
    "before-parameter-build",
    "before-endpoint-resolution",
    "before-call",
    _CREATED,
    "choose-signer",
    "before-sign",
    _SENT,
    "response-received",
    "before-parse",
    "needs-retry",
    "after-call",
)


class Handlers(object):
    """The program's handlers of the client in the stack of ``frame``, which may be none of botocore's."""

    def __init__(self, frame):
        # type: (Optional[FrameType]) -> None
        self._found = []  # type: List[Handler]
        self._context = {}  # type: Dict[str, Any]  # of the request that the program makes
        self._names = ("", "")  # of the service and the operation
        while frame is not None and not _is_endpoint(frame):
            frame = frame.f_back
        self.is_of_botocore = frame is not None
        if frame is not None:
            try:
                self._look_at(dict(frame.f_locals))
            except (AttributeError, KeyError, TypeError):
                pass  # an older botocore has these by other names

    def _look_at(self, names):
        # type: (Dict[str, Any]) -> None
        model, events = names["operation_model"], names["self"]._event_emitter
        self._context = dict(names["request_dict"].get("context") or {})
        self._names = model.service_model.service_id.hyphenize(), model.name
        registered = getattr(events, "_emitter", events)._handlers
        for event in _EVENTS:
            for each in registered.prefix_search(".".join((event,) + self._names)):
                if not _module_of(each).startswith(_OWN):
                    self._found.append((event, each))

    def told(self):
        # type: () -> Optional[Dict[str, Any]]
        """Return which of them are called with the probe's requests, or that none are, for the report."""
        if not self.is_of_botocore:
            return None
        first = sorted(self._found, key=lambda each: each[0] in _CALLED)  # those that cannot be called
        spots = [(event, _spot(each)) for event, each in first]
        return {"called": spots, "left_out": []} if self._can_call() else {"called": [], "left_out": spots}

    def before(self, found):
        # type: (Optional[Tuple[Fetch, str]]) -> Optional[Tuple[Fetch, str]]
        """Return the fetch ``found`` with its name as one that calls them first; None where it is None."""
        if found is None or not self._found or not self._can_call():
            return found
        fetch, name = found

        def call(url):
            # type: (str) -> Any
            self._call(url)
            return fetch(url)

        return call, name

    def _can_call(self):
        # type: () -> bool
        # One that is called later may release what one of these has taken.
        return all(event in _CALLED for event, _ in self._found)

    def _call(self, url):
        # type: (str) -> None
        request = sys.modules["botocore.awsrequest"].AWSRequest(method="GET", url=url)  # type: Any
        request.context.update(self._context)
        self._emit(_CREATED, request=request, operation_name=self._names[1])
        self._emit(_SENT, request=request.prepare())

    def _emit(self, event, **keywords):
        # type: (str, **Any) -> None
        for other, each in self._found:
            if other == event:
                each(event_name=".".join((event,) + self._names), **keywords)


def _is_endpoint(frame):
    # type: (FrameType) -> bool
    """Return whether botocore sends the request of a call in ``frame``."""
    return (
        frame.f_code.co_name == "_send_request" and frame.f_globals.get("__name__") == "botocore.endpoint"
    )


def _function_of(handler):
    # type: (Any) -> Any
    """Return the function that ``handler`` is, or calls."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    handler = getattr(handler, "__func__", handler)
    if not hasattr(handler, "__code__"):
        handler = type(handler).__call__
    return handler


def _module_of(handler):
    # type: (Any) -> str
    return str(getattr(_function_of(handler), "__module__", None) or "")


def _spot(handler):
    # type: (Any) -> Optional[frames.Spot]
    """Return where the function is; None where it has no code."""
    code = getattr(_function_of(handler), "__code__", None)  # type: Any
    return (frames.absolute(code.co_filename), code.co_firstlineno, code.co_name) if code else None
