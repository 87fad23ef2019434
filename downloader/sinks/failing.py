"""Say what an error of the file system means for a file or the destination, and what to do about it."""

from __future__ import annotations

from downloader.core.file_errors import Step, advice, advice_for_shard, code_of
from downloader.errors import DestinationError, FetchError

__all__ = ["content_error", "destination_error", "file_error", "shard_error"]

_REASONS = {
    "bad-name": "the file system of DEST refuses this name",
    "too-large": "the file system of DEST, or `ulimit -f`, takes no file of that size",
    "not-writable": "it cannot be written where it belongs",
}


def file_error(error: OSError, name: str, code: str) -> FetchError:
    """Return the FetchError of the file ``name``, with a ``code`` of ``core.file_errors``."""
    return FetchError(code, f"{name}: {_REASONS[code]} ({error.strerror})")


def content_error(error: OSError, name: str) -> FetchError | DestinationError:
    """Return what ``error``, met while the content of ``name`` was written to a file of ours, means.

    Only the size of such a file depends on the item.
    """
    code = code_of(error.errno or 0, Step.CONTENT)
    return file_error(error, name, code) if code == "too-large" else destination_error(error, name)


def shard_error(error: OSError, name: str) -> DestinationError:
    """Return the DestinationError of the shard, or the part of one, at ``name``."""
    if isinstance(error, DestinationError):
        return error
    return DestinationError(f"cannot store {name}: {advice_for_shard(error)}")


def destination_error(error: OSError, name: str, number: int | None = None) -> DestinationError:
    """Return the DestinationError of ``name``. ``number``: the errno, if not that of ``error``."""
    if isinstance(error, DestinationError):
        return error
    return DestinationError(f"cannot store {name}: {advice(error, number)}")
