"""Tell places in a bucket, ``s3://BUCKET/PREFIX``, from directories, and check the addresses of stores."""

from __future__ import annotations

import ipaddress
import re
from typing import Final
from urllib.parse import urlsplit

from downloader.core.host_names import ascii_host
from downloader.core.naming import shown
from downloader.core.redact import redact_url

__all__ = [
    "bucket_and_prefix",
    "endpoint_problem",
    "is_bucket",
    "is_same_place",
    "local_place",
    "place",
    "prefix_problem",
]

_SCHEME: Final = "s3://"
# Two letters at least: C:/x is a path.
_url: Final = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]+):(/.*)", re.DOTALL).fullmatch
_ends_in_a_number: Final = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)\.?").fullmatch
_own_authority: Final = re.compile(r"^//(localhost)?(?=/)", re.IGNORECASE)
_path: Final = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@%/-]*").fullmatch


def is_bucket(place: str) -> bool:
    """Return whether ``place`` is in a bucket."""
    return place[: len(_SCHEME)].lower() == _SCHEME


def bucket_and_prefix(place: str) -> tuple[str, str]:
    """Return the bucket of ``place`` and the prefix in it, each "" if it is missing."""
    bucket, _, prefix = place[len(_SCHEME) :].partition("/")
    return bucket, prefix.strip("/")


def place(text: str) -> str:
    """Return the directory or the place in a bucket that is ``text``: ``s3://`` in lower case.

    Raises ValueError, with a clause, for a prefix that no client of a store takes, and for what has the
    form of another URL: as a path, it would be a directory of the name of its scheme.
    """
    if not is_bucket(text):
        return local_place(text)
    if problem := prefix_problem(text):
        raise ValueError(problem)
    return _SCHEME + text[len(_SCHEME) :]


def is_same_place(one: str, other: str) -> bool:
    """Return whether two places are the same: a slash at the end means nothing."""
    return one.rstrip("/") == other.rstrip("/")


def prefix_problem(place: str) -> str:
    """Return why no object can be below the prefix of ``place``, a clause, or "" if one can."""
    bucket, prefix = bucket_and_prefix(place)
    parts = prefix.split("/") if prefix else []
    if any(ord(char) < 32 or ord(char) == 127 or "\ud800" <= char <= "\udfff" for char in prefix):
        return "the prefix has a control character, or is not UTF-8; leave that out"
    if {".", ".."} & set(parts):
        return "the prefix has a part . or .., which a bucket has not; leave that out"
    if "" in parts:
        meant = "/".join([bucket, *filter(None, parts)])
        return f"the prefix has two slashes in a row; is {_SCHEME}{shown(meant)} meant?"
    return ""


def local_place(text: str) -> str:
    """Return ``text``, a path. Raises ValueError, with a clause, for what has the form of a URL."""
    match = _url(text)
    if match is None:
        return text
    scheme, rest = match[1].lower(), match[2]
    if scheme == "file":
        raise ValueError(f"is a URL; give the path alone: {shown(_own_authority.sub('', rest))}")
    if scheme in ("s3", "s3a", "s3n") and not is_bucket(text):
        raise ValueError(f"is no place in a bucket; is {_SCHEME}{shown(rest.strip('/'))} meant?")
    if scheme == "s3":
        raise ValueError("is in a bucket, and has to be on this machine")
    path = shown(redact_url(text.strip()))
    raise ValueError(
        f"URLs of {match[1]}: are not available here; for a directory of that name write ./{path}"
    )


def endpoint_problem(url: str) -> str:
    """Return why ``url`` cannot be the address of a store of buckets, a clause, or "" if it can."""
    wanted = "must be the URL of a server, as http://127.0.0.1:9000 or https://s3.example.com"
    try:
        if not url.isascii() or not url.isprintable() or " " in url:
            raise ValueError  # which urlsplit passes over
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname or ""
        if parts.scheme not in ("http", "https") or not host or port == 0:
            return wanted
        name = ascii_host(f"[{host}]" if ":" in host else host)
        if _ends_in_a_number(name):
            ipaddress.IPv4Address(name)
        if "xn--" in name:
            import idna  # it takes milliseconds to import

            idna.decode(name)
    except ValueError:
        return wanted
    if "@" in parts.netloc:
        return f"{wanted}; credentials come from the environment or a profile"
    if "?" in url or "#" in url or not _path(parts.path):
        return f"{wanted}; no query, no fragment, no such path"
    return ""
