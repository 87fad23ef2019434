"""Run libcurl's multi interface through pycurl: handles are created once and reused, driven by epoll.

``socket_action`` is told which sockets are ready, so that an iteration costs what is ready, not what is
open; a body is collected in memory and written in one piece.
"""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Iterator

import pycurl

from benchmarks.peers.task import Task

_EVENTS = {
    pycurl.POLL_IN: select.EPOLLIN,
    pycurl.POLL_OUT: select.EPOLLOUT,
    pycurl.POLL_INOUT: select.EPOLLIN | select.EPOLLOUT,
}


class Loop:
    """An epoll and a timer, as libcurl requires them."""

    def __init__(self) -> None:
        self.multi = pycurl.CurlMulti()
        self.multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        self.multi.setopt(pycurl.M_TIMERFUNCTION, self._time)
        self._epoll = select.epoll()
        self._watched: set[int] = set()
        self._due: float | None = None

    def _watch(self, event: int, descriptor: int, multi: object, payload: object) -> None:
        if event == pycurl.POLL_REMOVE:
            if descriptor in self._watched:
                self._watched.discard(descriptor)
                with contextlib.suppress(OSError):  # libcurl may have closed it already
                    self._epoll.unregister(descriptor)
        elif descriptor in self._watched:
            self._epoll.modify(descriptor, _EVENTS[event])
        else:
            self._watched.add(descriptor)
            self._epoll.register(descriptor, _EVENTS[event])

    def _time(self, milliseconds: int) -> None:
        self._due = None if milliseconds < 0 else time.monotonic() + milliseconds / 1000

    def turn(self) -> None:
        """Wait for the next events and pass them to libcurl."""
        act = self.multi.socket_action
        wait = None if self._due is None else max(0.0, self._due - time.monotonic())
        for descriptor, mask in self._epoll.poll(wait):
            ready = pycurl.CSELECT_IN if mask & ~select.EPOLLOUT else 0
            act(descriptor, ready | (pycurl.CSELECT_OUT if mask & select.EPOLLOUT else 0))
        if self._due is not None and self._due <= time.monotonic():
            self._due = None
            act(pycurl.SOCKET_TIMEOUT, 0)


def fetch_all(task: Task) -> None:
    loop = Loop()
    urls = iter(task.urls)
    running = sum(_next(loop, _handle(task), urls) for _ in range(min(task.connections, len(task.urls))))
    while running:
        loop.turn()
        more = 1
        while more:
            more, done, failed = loop.multi.info_read()
            for handle, code, message in failed:
                raise RuntimeError(f"{handle.url}: {code} {message}")
            for handle in done:
                task.store(handle.url, b"".join(handle.parts))
                loop.multi.remove_handle(handle)
                running -= not _next(loop, handle, urls)


def _handle(task: Task) -> pycurl.Curl:
    handle = pycurl.Curl()
    handle.parts = []
    handle.setopt(pycurl.WRITEFUNCTION, handle.parts.append)
    handle.setopt(pycurl.FAILONERROR, True)
    handle.setopt(pycurl.NOSIGNAL, True)
    handle.setopt(pycurl.PROXY, "")
    if task.cafile:
        handle.setopt(pycurl.CAINFO, task.cafile)
    return handle


def _next(loop: Loop, handle: pycurl.Curl, urls: Iterator[str]) -> bool:
    """Set ``handle`` to the next URL; return False when there is none."""
    url = next(urls, None)
    if url is None:
        return False
    handle.url = url
    handle.parts.clear()
    handle.setopt(pycurl.URL, url)
    loop.multi.add_handle(handle)
    return True


def main() -> None:
    task = Task.given()
    fetch_all(task)
    task.say()


if __name__ == "__main__":
    main()
