"""Choose the keys of samples in shards, and the extensions of their members.

A reader of WebDataset splits the name of a member at the first dot behind the last slash: what is before
it is the key, and consecutive members of one key are one sample. So a key has no dot, and two samples of a
shard never have the same key.
"""

from __future__ import annotations

import functools
import hashlib
import mimetypes
from collections.abc import Iterable

__all__ = ["KEY_BYTES", "extension_of", "index_width", "name_keys", "possible_name_keys"]

KEY_BYTES = 80
"""The most bytes of a key. With an extension, a member's name has at most the 100 that USTAR allows."""

_DIGEST_DIGITS = 16
# Never part of an escaped name; see `naming`.
_MARK = "%~"
_LONGEST_EXTENSION = 12
_UNKNOWN = "bin"
# Extensions that several types have, or that Python's table does not know.
_BY_TYPE = {"image/jpeg": "jpg", "image/webp": "webp", "image/avif": "avif", "audio/mpeg": "mp3"}


def index_width(shard_files: int) -> int:
    """Return the digits of an item's number in keys, when a shard has ``shard_files`` items.

    At least four, as img2dataset has it.
    """
    return max(4, len(str(shard_files - 1)))


def name_keys(names: Iterable[str]) -> list[str]:
    """Return a key for each of ``names``, safe relative paths: without the extension, dots as ``%2E``.

    ``naming.unescape`` undoes that. A key that takes more than KEY_BYTES is cut, and gets a digest of the
    name. Where several names of the list have one key, the later ones get their number in the list.
    """
    keys: list[str] = []
    seen: set[str] = set()
    for number, name in enumerate(names):
        key = _name_key(name)
        if key in seen:
            key = _other_key(key, name, number)
        seen.add(key)
        keys.append(key)
    return keys


def possible_name_keys(name: str, number: int) -> tuple[str, str]:
    """Return the key of ``name``, item ``number`` of a shard, and the one if another item has that key."""
    key = _name_key(name)
    return key, _other_key(key, name, number)


def _name_key(name: str) -> str:
    key = _split(name)[0].replace(".", "%2E")
    return key if len(key) <= KEY_BYTES and key.isascii() else _fitting(key, name)


def _other_key(key: str, name: str, number: int) -> str:
    return _fitting(f"{key}{_MARK}{number}", f"{name}\0{number}")


def _split(name: str) -> tuple[str, str]:
    """Return ``name`` without its extension, and that, which is "" if it has none."""
    if "." not in name:
        return name, ""
    stem, _, extension = name.rpartition(".")
    if (
        len(extension) <= _LONGEST_EXTENSION
        and extension.isalnum()
        and extension.isascii()
        and stem.rpartition("/")[2].strip(".")
    ):
        return stem, extension
    return name, ""


def _fitting(key: str, name: str) -> str:
    encoded = key.encode()
    if len(encoded) <= KEY_BYTES:
        return key
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_DIGITS]
    return f"{encoded[: KEY_BYTES - _DIGEST_DIGITS - len(_MARK)].decode('utf-8', 'ignore')}{_MARK}{digest}"


def extension_of(name: str, content_type: str) -> str:
    """Return the extension of a member: that of ``name``, else that of ``content_type``, else ``bin``."""
    return _split(name)[1].lower() or _of_type(content_type)


@functools.lru_cache(maxsize=1024)
def _of_type(content_type: str) -> str:
    media_type = content_type.partition(";")[0].strip().lower()
    known = _BY_TYPE.get(media_type) or (mimetypes.guess_extension(media_type) or "").lstrip(".")
    return known if known.isalnum() else _UNKNOWN
