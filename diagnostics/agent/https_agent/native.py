"""Recognize a connection of a thread that is no greenlet, and fetch as a thread of gevent's pool does."""

import sys

from . import choice, frames, places, sampler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Callable, Dict, Optional

    Fetch = Callable[[str], Any]

# Whose functions programs give to threads of their own. Other packages have such threads for themselves.
_CLIENTS = (
    "boto3",
    "botocore",
    "geventhttpclient",
    "httpx",
    "httpx2",
    "requests",
    "requests_futures",
    "requests_toolbelt",
    "s3transfer",
    "urllib3",
)
_POOLS = ("concurrent.futures.thread", "gevent.threadpool", "multiprocessing.pool")
_AWAITED = _POOLS + ("concurrent.futures._base", "threading")
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
    """Return the line of the function that the thread was given; None if a package has it for itself.

    Pools are given what they call, and so is a thread that calls what is of no package (``urlopen``).
    """
    outer, package, pooled = None, None, False
    while frame is not None:
        kind, name = frames.kind(frame.f_code), _module(frame)
        if name in _POOLS:
            pooled = True
        elif kind == "package":
            outer, package, pooled = frame, name.partition(".")[0], False
        elif package is None and name != "threading" and kind == "library":
            outer = frame
        frame = frame.f_back
    if outer is None or not (pooled or package is None or package in _CLIENTS):
        return None
    return places.spot(outer)


def awaited():
    # type: () -> Optional[frames.Spot]
    """Return the user's line at which the main thread gives work to threads, or waits for them."""
    frame, within = sys._current_frames().get(_main[0]), False
    while frame is not None and not frames.is_users(frame):
        within = within or _module(frame) in _AWAITED
        frame = frame.f_back
    return places.spot(frame) if frame is not None and within else None


def current_frames():
    # type: () -> Dict[int, FrameType]
    """Return where each thread is; one whose hub runs, in the main greenlet, which waits there."""
    found = dict(sys._current_frames())
    for ident, frame in list(found.items()):
        own = frame.f_locals.get("self") if _module(frame) == "gevent.hub" else None
        waiting = getattr(getattr(own, "parent", None), "gr_frame", None)
        if waiting is not None:
            found[ident] = waiting
    return found


def _module(frame):
    # type: (FrameType) -> str
    return str(frame.f_globals.get("__name__"))


def pool_of(frame):
    # type: (Optional[FrameType]) -> Any
    """Return the ``gevent.threadpool.ThreadPool`` whose thread runs ``frame``; None if none does."""
    while frame is not None:
        if _module(frame) == "gevent.threadpool":
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
