"""Record the metadata of each file from its response, for sinks that want it."""

from __future__ import annotations

from downloader.process import patching

patching.require()

from time import time  # noqa: E402

from downloader.core.redact import redact_url  # noqa: E402
from downloader.http.pipelined.parser import ResponseParser  # noqa: E402
from downloader.http.response import STORED  # noqa: E402
from downloader.messages import ResponseInfo  # noqa: E402

__all__ = ["RecordingParser"]


class RecordingParser(ResponseParser):
    """A ``ResponseParser`` that sets ``FetchTask.response``."""

    __slots__ = ()

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        task = self.outstanding[0] if self.outstanding else None
        if task is None or self._status not in STORED:
            return
        fields = {name.lower(): value.decode("latin-1") for name, value in self._fields.items()}
        task.response = ResponseInfo(
            status=self._status,
            url=redact_url(task.origin.key + task.target.decode("ascii")),
            etag=fields.get(b"etag", ""),
            last_modified=fields.get(b"last-modified", ""),
            content_type=fields.get(b"content-type", ""),
            fetched_at=time(),
        )
