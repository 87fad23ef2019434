"""Recognize a connection of a thread that is no greenlet, and fetch as a thread of gevent's pool does."""

from . import choice, frames, places, sampler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Callable, Optional

    Fetch = Callable[[str], Any]

# Whose functions programs give to threads to call. Others have threads for what they do themselves.
_CLIENTS = (
    "boto3",
    "botocore",
    "geventhttpclient",
    "httpx",
    "requests",
    "requests_futures",
    "requests_toolbelt",
    "s3transfer",
    "urllib3",
)
_main = [sampler.get_ident()]  # the thread in which the agent, so the program, has begun


def begin():
    # type: () -> None
    """Take the current thread for the main one: at the beginning, and after a fork."""
    _main[0] = sampler.get_ident()


def is_here():
    # type: () -> bool
    """Return whether this is a thread of the operating system beside the main one, not a greenlet."""
    return sampler.get_ident() != _main[0] and not choice.in_greenlet()


def given(frame):
    # type: (Optional[FrameType]) -> Optional[frames.Spot]
    """Return the line of the client whose function the thread was given to call; None if it has another."""
    outer = None
    while frame is not None:
        if frames.kind(frame.f_code) == "package":
            outer = frame
        frame = frame.f_back
    if outer is None or str(outer.f_globals.get("__name__")).partition(".")[0] not in _CLIENTS:
        return None
    return places.spot(outer)


def pool_of(frame):
    # type: (Optional[FrameType]) -> Any
    """Return the ``gevent.threadpool.ThreadPool`` whose thread runs ``frame``; None if none does."""
    while frame is not None:
        if frame.f_globals.get("__name__") == "gevent.threadpool":
            own = frame.f_locals.get("self")
            # A worker knows its pool by one of its methods; in older versions a method of the pool works.
            pool = getattr(getattr(own, "_unregister_worker", None), "__self__", None) or own
            if hasattr(pool, "spawn") and hasattr(pool, "maxsize"):
                return pool
        frame = frame.f_back
    return None


def through(pool, fetch):
    # type: (Any, Fetch) -> Fetch
    """Return a fetch that runs ``fetch`` in the threads of ``pool``."""

    def fetched(url):
        # type: (str) -> None
        pool.spawn(fetch, url).get()

    return fetched
