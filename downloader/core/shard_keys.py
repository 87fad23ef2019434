"""Choose the keys of samples in shards, and the extensions of their members.

A reader of WebDataset splits the name of a member at the first dot behind the last slash: what is before
it is the key, and consecutive members of one key are one sample. So a key has no dot, and two samples of a
shard never have the same key.
"""

from __future__ import annotations

import functools
import hashlib
import mimetypes
import re
from collections.abc import Iterable

from downloader.core.naming import is_invented, split_query

__all__ = [
    "KEY_BYTES",
    "UNKNOWN",
    "extension_of",
    "index_width",
    "name_keys",
    "possible_name_keys",
]

KEY_BYTES = 80
"""The most bytes of a key. With an extension, a member's name has at most the 100 that USTAR allows."""

_DIGEST_DIGITS = 16
# Never part of an escaped name; see `naming`.
_MARK = "%~"
_LONGEST_EXTENSION = 12
UNKNOWN = "bin"
"""The extension where none is known, or may be given."""
# What people send, with the names that were used before one was registered or that never were. Not from the
# table of the system, which differs from one machine of a job to the next.
_TYPES = {
    "avif": "image/avif",
    "bmp": "image/bmp image/x-ms-bmp image/x-bmp image/x-windows-bmp",
    "gif": "image/gif image/x-gif image/x-citrix-gif",
    "heic": "image/heic image/heic-sequence",
    "heif": "image/heif image/heif-sequence",
    "ico": "image/x-icon image/vnd.microsoft.icon image/ico",
    "jp2": "image/jp2 image/jpeg2000 image/jpx",
    "jpg": "image/jpeg image/jpg image/pjpeg image/pjpg image/jfif image/pjp image/jpe image/x-jpeg "
    "image/x-jpg image/x-jfif image/x-pjpeg image/x-citrix-jpeg image/vnd.swiftview-jpeg application/jpg "
    "application/jpeg application/x-jpg application/x-jpeg",
    "jxl": "image/jxl",
    "png": "image/png image/x-png image/x-citrix-png application/png application/x-png image/apng "
    "image/vnd.mozilla.apng",
    "psd": "image/vnd.adobe.photoshop image/x-photoshop",
    "svg": "image/svg+xml image/svg",
    "tiff": "image/tiff image/tif image/x-tiff image/x-tif",
    "webp": "image/webp image/x-webp",
    "aac": "audio/aac audio/x-aac audio/aacp",
    "aiff": "audio/aiff audio/x-aiff",
    "amr": "audio/amr",
    "flac": "audio/flac audio/x-flac",
    "m4a": "audio/mp4 audio/m4a audio/x-m4a",
    "mid": "audio/midi audio/x-midi audio/mid",
    "mp3": "audio/mpeg audio/mp3 audio/mpeg3 audio/x-mp3 audio/x-mpeg audio/x-mpeg-3 audio/mpg",
    "ogg": "audio/ogg audio/x-ogg application/ogg audio/vorbis",
    "opus": "audio/opus audio/x-opus",
    "wav": "audio/wav audio/x-wav audio/wave audio/vnd.wave audio/x-pn-wav",
    "weba": "audio/webm",
    "wma": "audio/x-ms-wma",
    "3gp": "video/3gpp audio/3gpp",
    "avi": "video/x-msvideo video/avi video/msvideo",
    "flv": "video/x-flv",
    "m4v": "video/x-m4v",
    "mkv": "video/x-matroska video/matroska video/mkv",
    "mov": "video/quicktime",
    "mp4": "video/mp4 application/mp4 video/x-mp4",
    "mpeg": "video/mpeg video/mpg video/x-mpeg",
    "ogv": "video/ogg",
    "ts": "video/mp2t",
    "webm": "video/webm",
    "wmv": "video/x-ms-wmv",
    "css": "text/css",
    "csv": "text/csv application/csv text/x-csv text/comma-separated-values",
    "html": "text/html",
    "xhtml": "application/xhtml+xml",
    "js": "text/javascript application/javascript application/x-javascript text/ecmascript",
    "json": "application/json text/json application/x-json text/x-json application/ld+json",
    "jsonl": "application/jsonl application/x-ndjson application/jsonlines application/x-jsonlines "
    "application/ndjson",
    "md": "text/markdown text/x-markdown",
    "rtf": "application/rtf text/rtf",
    "tsv": "text/tab-separated-values text/tsv",
    "txt": "text/plain",
    "vtt": "text/vtt",
    "xml": "application/xml text/xml application/x-xml application/rss+xml application/atom+xml",
    "yaml": "application/yaml text/yaml application/x-yaml text/x-yaml",
    "doc": "application/msword",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "epub": "application/epub+zip",
    "pdf": "application/pdf application/x-pdf",
    "ppt": "application/vnd.ms-powerpoint",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "xls": "application/vnd.ms-excel",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "7z": "application/x-7z-compressed application/7z",
    "bz2": "application/x-bzip2 application/bzip2 application/x-bzip",
    "gz": "application/gzip application/x-gzip application/gzipped application/x-gunzip",
    "parquet": "application/vnd.apache.parquet application/x-parquet application/parquet",
    "rar": "application/vnd.rar application/x-rar-compressed application/x-rar",
    "tar": "application/x-tar application/tar",
    "warc": "application/warc",
    "wasm": "application/wasm",
    "xz": "application/x-xz application/xz",
    "zip": "application/zip application/x-zip-compressed application/x-zip",
    "zst": "application/zstd application/x-zstd",
    "otf": "font/otf application/x-font-otf application/font-otf",
    "ttf": "font/ttf application/x-font-ttf application/font-ttf",
    "woff": "font/woff application/font-woff application/x-font-woff",
    "woff2": "font/woff2 application/font-woff2",
}
_BY_TYPE = {each: extension for extension, types in _TYPES.items() for each in types.split()}
# The first one in the value, whatever is around it: quotes, blanks, parameters, another one.
_MEDIA_TYPE = re.compile(r"([a-z0-9.+-]+)[ \t]*\\?/[ \t]*\.?([a-z0-9][a-z0-9.+_-]*)").search


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
        and (stem[-1:] not in "./" or stem.rpartition("/")[2].strip("."))
    ):
        return stem, extension
    return name, ""


def _fitting(key: str, name: str) -> str:
    encoded = key.encode()
    if len(encoded) <= KEY_BYTES:
        return key
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_DIGITS]
    return f"{encoded[: KEY_BYTES - _DIGEST_DIGITS - len(_MARK)].decode('utf-8', 'ignore')}{_MARK}{digest}"


def extension_of(name: str, content_type: str, url: str = "") -> str:
    """Return the extension of a member: that of ``name``, else of ``content_type``, else ``bin``.

    One of digits alone, as of a version, counts only where the type says nothing. Where the name comes from
    ``url``, its query has none, nor have the parameters of its path, nor has ``index.html`` where the path
    ends in a slash.
    """
    if "?" in name or ";" in name:
        name = _without_parameters(split_query(name, url)[0], url)
    extension = _split(name)[1].lower()
    if extension == "html" and is_invented(name, url):
        extension = ""
    if not extension:
        return _of_type(content_type)
    if extension.isdigit() and (known := _of_type(content_type)) != UNKNOWN:
        return known  # a number, as of a version: the type says more
    return extension


def _without_parameters(name: str, url: str) -> str:
    path, _, parameters = name.partition(";")
    return path if f";{parameters}" in url else name


@functools.cache
def _python_types() -> mimetypes.MimeTypes:
    """Return Python's own table. To make it reads that of the system, too, which takes milliseconds."""
    return mimetypes.MimeTypes()


@functools.lru_cache(maxsize=1024)
def _of_type(content_type: str) -> str:
    text = content_type.lower()
    if match := _MEDIA_TYPE(text):
        candidates = [f"{match[1]}/{match[2]}"]
    else:
        word = text.strip(" \t\"'.")
        candidates = [f"{kind}/{word}" for kind in ("image", "video", "audio", "application", "text")]
    for media_type in candidates:
        known = _BY_TYPE.get(media_type) or (_python_types().guess_extension(media_type) or "").lstrip(".")
        if known.isalnum():
            return known
    return UNKNOWN
