"""Where the items of a source are: an item becomes a job with its target, origin and host."""

from __future__ import annotations

from itertools import repeat

from downloader.config.config import Config
from downloader.core.naming import SafeName, quote_all, quote_name
from downloader.core.redact import redact, redact_url
from downloader.core.scheduler import Scheduler
from downloader.errors import FetchError
from downloader.http.session import HttpSession
from downloader.http.task import FetchTask
from downloader.messages import Item
from downloader.sources.server_urls import base_url
from downloader.worker.active_batch import ActiveBatch

__all__ = ["RequestBuilder"]


class RequestBuilder:
    """What is the same for all files of a file server is worked out once."""

    def __init__(self, config: Config, session: HttpSession, schedule: Scheduler[FetchTask]) -> None:
        self._session = session
        self._schedule = schedule
        self._secrets = config.secrets
        self._base = ""
        if config.kind == "server":
            self._base = session.normal(base_url(config))
            self._target = session.target(self._base)
            self._origin = session.origin(self._base)

    def job(self, batch: ActiveBatch, index: int, item: Item, solo: bool) -> FetchTask:
        """The job for ``item``. Raises FetchError: its fault, or ``bad-url``."""
        if item.fault:
            raise FetchError(item.fault, item.detail)
        if item.url:
            try:
                url = self._session.normal(item.url)
                origin, target = self._session.origin(url), self._session.target(url)
            except (FetchError, ValueError) as error:
                raise FetchError("bad-url", redact(str(error), self._secrets)) from None
        else:
            url, origin = "", self._origin
            target = self._target + quote_name(SafeName(item.name)).encode()
        host = self._schedule.host(origin.key)
        return FetchTask(batch, index, item, item.name, item.size, url, target, origin, host, solo, origin)

    def jobs(self, batch: ActiveBatch, items: list[Item]) -> list[FetchTask] | None:
        """The jobs for all ``items``, if each of them is a plain name and nothing else: a third of what it
        costs to make them one by one. None: they are not."""
        if not items or any([item.url or item.fault for item in items]):
            return None
        names = [item.name for item in items]
        quoted = quote_all(names)
        if quoted is None:
            return None
        origin = self._origin
        host = self._schedule.host(origin.key)
        # FetchTask by job in C; in the order of its fields.
        return list(
            map(
                FetchTask,
                repeat(batch),
                range(len(items)),
                items,
                names,
                [item.size for item in items],
                repeat(""),
                map(self._target.__add__, quoted),
                repeat(origin),
                repeat(host),
                repeat(False),
                repeat(origin),
            )
        )

    def url(self, job: FetchTask) -> str:
        """Where ``job`` is."""
        return job.url or self._base + quote_name(SafeName(job.name))

    def shown(self, item: Item) -> str:
        """Where ``item`` is, redacted; "" for one that has no place."""
        return "" if item.fault else redact_url(item.url or self._base + item.name)
