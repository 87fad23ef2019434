"""Commit finished batches; those that are shards in greenlets, since publishing one takes a while."""

from __future__ import annotations

from collections.abc import Callable

from gevent.pool import Group

from downloader.worker.active_batch import ActiveBatch

__all__ = ["BatchCommits"]


class BatchCommits:
    """The commits of a worker. ``committed`` is called after each, ``fatal`` with what it raises."""

    def __init__(
        self, committed: Callable[[ActiveBatch], None], fatal: Callable[[Exception], None]
    ) -> None:
        self._committed = committed
        self._fatal = fatal
        self._greenlets = Group()
        self._begun: set[int] = set()

    def begin(self, batch: ActiveBatch) -> None:
        """Commit ``batch``, now or soon; do nothing if that has begun."""
        if batch.seq in self._begun:
            return
        self._begun.add(batch.seq)
        if batch.is_shard:
            self._greenlets.spawn(self._commit, batch)
        else:
            self._commit(batch)

    def _commit(self, batch: ActiveBatch) -> None:
        try:
            batch.commit()
        except Exception as error:  # a greenlet that raises writes its traceback to standard error
            self._fatal(error)
        else:
            self._begun.discard(batch.seq)
            self._committed(batch)

    def drain(self, grace: float) -> None:
        """Wait until all are committed, at most ``grace`` seconds, and give up the others."""
        self._greenlets.join(grace)
        self._greenlets.kill(timeout=1)
