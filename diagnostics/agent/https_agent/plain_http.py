"""Tell whether a greenlet that is inside of a client makes a request without TLS.

It uses no client of HTTPS then: it polls a local service, or visits a server of the program's own.
"""

from . import frames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Optional, Set

PLAIN, SECURE = "http", "https"


class Schemes(object):
    """What the stack of ``frame`` says: ``every`` scheme; ``own``: those inside of the user's functions."""

    def __init__(self, frame):
        # type: (Optional[FrameType]) -> None
        self.every, self.own = set(), set()  # type: Set[str], Set[str]
        inside = True
        while frame is not None:
            users = frames.is_users(frame)
            inside = inside and not users
            found = _of_object(frame.f_locals.get("self")) or (not users and _of_locals(frame))
            if found:
                self.every.add(found)
                if inside:
                    self.own.add(found)
            frame = frame.f_back

    @property
    def is_plain(self):
        # type: () -> bool
        """Return whether it has to do with requests without TLS alone."""
        return self.every == {PLAIN}

    @property
    def is_busy(self):
        # type: () -> bool
        """Return whether the library makes such a request now, and calls nothing of the user's in it."""
        return self.is_plain and bool(self.own)


def of(frame):
    # type: (Optional[FrameType]) -> Schemes
    """Return what the stack of ``frame`` says; nothing where the application's objects raise an error."""
    try:
        return Schemes(frame)
    except Exception:
        return Schemes(None)


def _of_object(own):
    # type: (Any) -> Optional[str]
    """Return the scheme of a connection, a pool of one host or a client of one host."""
    names = [cls.__name__ for cls in type(own).__mro__]
    if "HTTPConnectionPool" in names:
        return _known(getattr(own, "scheme", None))
    if "HTTPConnection" in names and hasattr(own, "default_port"):
        return SECURE if own.default_port == 443 else PLAIN
    if "HTTPClient" in names and type(getattr(own, "ssl", None)) is bool:
        return SECURE if own.ssl else PLAIN
    return _known(getattr(getattr(own, "_origin", None), "scheme", None)) if _is_of_httpcore(own) else None


def _is_of_httpcore(own):
    # type: (Any) -> bool
    return str(getattr(type(own), "__module__", "")).startswith(("httpcore.", "httpcore2."))


def _of_locals(frame):
    # type: (Any) -> Optional[str]
    """Return the scheme of the URL that a library's function was given, itself or in a request."""
    url = frame.f_locals.get("url")
    if not isinstance(url, str):
        url = getattr(frame.f_locals.get("request"), "url", None)
    if isinstance(url, str):
        return _known(url.partition("://")[0].lower()) if "://" in url else None
    return _known(getattr(url, "scheme", None))


def _known(scheme):
    # type: (Any) -> Optional[str]
    text = scheme.decode("ascii", "replace") if isinstance(scheme, bytes) else scheme
    return text if text in (PLAIN, SECURE) else None
