"""Build the tasks of the clients from the items of a source, with the source's RequestBuilder."""

from __future__ import annotations

from itertools import repeat

import msgspec

from downloader.config.config import Config
from downloader.core.content_check import check_item
from downloader.core.headers import header_problem
from downloader.core.naming import SafeName, quote_all, quote_name
from downloader.core.redact import redact, redact_url
from downloader.core.scheduler import Scheduler
from downloader.core.urls import sent_url
from downloader.errors import FetchError
from downloader.http.session import HttpSession
from downloader.http.task import FetchTask, TaskBatch
from downloader.messages import Item
from downloader.sources.registry import source_kind
from downloader.sources.source import Request
from downloader.worker.active_batch import ActiveBatch

__all__ = ["TaskBuilder", "awaits"]

# Header fields that urllib3 writes, or that define framing: the pipelined client must not add another.
_CLIENT_FIELDS = frozenset(
    {"accept-encoding", "connection", "content-length", "cookie", "expect", "host", "te"}
    | {"transfer-encoding", "upgrade", "user-agent"}
)


class TaskBuilder:
    """The builder of a worker's tasks. What is the same for all names below one URL is computed once.

    ``mirrored``: an item had mirrors.
    """

    def __init__(self, config: Config, session: HttpSession, schedule: Scheduler[FetchTask]) -> None:
        self._session = session
        self._schedule = schedule
        self._secrets = config.secrets
        self._echoes = config.echoes
        self._checking = config.checking
        self._builder = source_kind(config).request_builder(config)
        self.mirrored = False
        self._base = ""
        if self._builder.base_url:
            self._base = session.normal(self._builder.base_url)
            self._target = session.target(self._base)
            self._origin = session.origin(self._base)

    def task(self, batch: TaskBatch, index: int, item: Item, solo: bool) -> FetchTask:
        """Return the task for ``item``. Raises FetchError: its fault, ``bad-url`` or ``bad-checksum``."""
        if item.fault:
            raise FetchError(item.fault, item.detail)
        # Without a call for each, as this is done for each file.
        promised = item.size >= 0
        if item.checksum and self._checking.checksums != "off":
            check_item(item)
            promised = True
        if self._base and not item.url:
            url, origin = "", self._origin
            target = self._target + quote_name(SafeName(item.name)).encode()
            host = self._schedule.host(origin.key)
            return FetchTask(batch, index, item, promised, url, target, origin, host, solo, origin)
        request = self._builder.request(item)
        try:
            url = sent_url(request.url)
            origin, target = self._session.place(url)
        except (FetchError, ValueError) as error:
            if item.mirrors:
                return self.task(batch, index, _moved(item, item.mirrors[1:]), solo)
            why = error.detail if isinstance(error, FetchError) else str(error)
            raise FetchError("bad-url", redact(why, self._secrets)) from None
        host = self._schedule.host(origin.key)
        task = FetchTask(batch, index, item, promised, url, target, origin, host, solo, origin)
        if item.mirrors:
            task.extra, task.movable = len(item.mirrors), True
            self.mirrored = True
        if request.headers or request.expected_status != 200:
            self._add_request(task, request)
        return task

    def next_mirror(self, task: FetchTask, *, drop: bool) -> FetchTask | None:
        """Return the task for the next URL of an item that has mirrors, None if it cannot be requested.

        ``drop``: the present URL is not tried again.
        """
        item = task.item
        rest = item.mirrors[1:] if drop else (*item.mirrors[1:], item.url)
        try:
            other = self.task(task.batch, task.index, _moved(item, rest), task.solo)
        except FetchError:
            return None
        other.attempts, other.extra, other.mismatches = task.attempts, task.extra, task.mismatches
        other.tried, other.until, other.demotions = task.tried, task.until, task.demotions
        other.cookie_tries = task.cookie_tries
        return other

    def untried(self, task: FetchTask) -> FetchTask | None:
        """Return the task for the next mirror at which no attempt was made, None if there is none."""
        other: FetchTask | None = task
        for _ in task.item.mirrors:
            other = other and self.next_mirror(other, drop=False)
            if other is not None and other.item.url not in task.tried:
                other.movable = False
                return other
        return None

    def soonest(self, task: FetchTask, at: float, now: float) -> FetchTask:
        """Return the task for the mirror that may be requested first and before ``at``, or ``task``.

        ``at``: when ``task`` itself may be. What is left out is tried after the others.
        """
        best, other = task, task
        for _ in task.item.mirrors:
            following = self.next_mirror(other, drop=False) if at > now else None
            if following is None:
                break
            other = following
            opens = max(self._schedule.opens_at(other.host, now), awaits(other))
            if opens < at:
                best, at = other, opens
        if other is not task:
            best.host = self._schedule.host(best.host.key)  # hosts without work may have been dropped
        return best

    def _add_request(self, task: FetchTask, request: Request) -> None:
        """Add ``request``, which is not a plain GET, to ``task``. Raises FetchError."""
        for name, value in request.headers:
            if problem := header_problem(name, value):
                raise FetchError("bad-url", f"the source gives a header that cannot be sent: {problem}")
        task.request = request
        names = [name.lower() for name, _ in request.headers]
        ours = {name.lower() for name in task.origin.headers}
        can_append = (
            len(set(names)) == len(names) and ours.isdisjoint(names) and _CLIENT_FIELDS.isdisjoint(names)
        )
        if can_append and request.expected_status == 200:
            task.origin.has_extra_headers = True
        else:
            task.path = None  # the requests client replaces the run's own fields by them

    @property
    def has_base(self) -> bool:
        """Return whether the URL of an item that has none of its own is given by its name."""
        return self._base != ""

    def tasks(self, batch: ActiveBatch, items: list[Item]) -> list[FetchTask] | None:
        """Return the tasks for all ``items`` if each is a plain name below one URL, otherwise None.

        Takes a third of the time of making them one by one.
        """
        if not (items and self._base) or any([item.url or item.fault or item.checksum for item in items]):
            return None
        quoted = quote_all([item.name for item in items])
        if quoted is None:
            return None
        origin = self._origin
        host = self._schedule.host(origin.key)
        # map() calls FetchTask in C; the arguments are in the order of its fields.
        return list(
            map(
                FetchTask,
                repeat(batch),
                range(len(items)),
                items,
                [item.size >= 0 for item in items],
                repeat(""),
                map(self._target.__add__, quoted),
                repeat(origin),
                repeat(host),
                repeat(False),
                repeat(origin),
            )
        )

    def url(self, task: FetchTask) -> str:
        """Return the URL of ``task``."""
        return task.url or self._base + quote_name(SafeName(task.item.name))

    def without_echoes(self, detail: str, item: Item) -> str:
        """Return ``detail`` of a failure without the credentials of the request for ``item``."""
        return self._echoes.cut(detail, item.url, item.headers)

    def shown(self, item: Item) -> str:
        """Return the URL of ``item``, redacted, or "" if it has none."""
        if item.fault:
            return ""
        if self._base or item.url:
            return redact_url(item.url or self._base + item.name)
        try:
            return redact_url(self._builder.request(item).url)
        except FetchError:
            return ""


def _moved(item: Item, rest: tuple[str, ...]) -> Item:
    """Return ``item`` with its next mirror as its URL, and ``rest`` as its mirrors."""
    return msgspec.structs.replace(item, url=item.mirrors[0], mirrors=rest)


def awaits(task: FetchTask) -> float:
    """Return when the host may be requested that the URL of ``task`` led to, 0 if that is not known."""
    return task.until.get(task.item.url, 0.0) if task.until else 0.0
