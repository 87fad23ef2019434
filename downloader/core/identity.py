"""What identifies a source: the journal keeps its digest, and refuses to go on with another source.

A file server is where its listing and its files are asked for, however that is written, and with
whatever credentials. A list of URLs is its content, not its path: here all lists are alike, and the
CRC-32 that each cursor has (``sources.url_list``) tells whether a list is the one that was read.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple
from urllib.parse import urlsplit

from downloader.core.redact import is_secret_param

__all__ = ["Identity", "identify_list", "identify_server"]

_PORTS = {"http": 80, "https": 443}
# These are cut from messages as if they were secrets, but may say what is listed.
_MAY_SELECT = frozenset({"code", "key", "session", "sid"})


class Identity(NamedTuple):
    """``digest`` goes into the journal. ``older``: what an earlier version wrote for the same source;
    None where the kind of the source is enough."""

    digest: str
    older: str | None

    def owns(self, digest: str) -> bool:
        """Return whether a journal with ``digest``, of a source of the same kind, is of this source."""
        return self.older is None or digest in (self.digest, self.older)


def identify_server(source: str, list_path: str, get_path: str, list_url: str, files_url: str) -> Identity:
    """The identity of a file server. ``source`` and the two paths are as they were given; the URLs are
    those of the first page of the listing and of what stands before each name."""
    older = f"{source.rstrip('/')}\0{list_path}\0{get_path}"
    return Identity(
        _digest("server", f"{_normal(list_url)}\0{_normal(files_url)}"), _digest("server", older)
    )


def identify_list() -> Identity:
    """The identity of any list of URLs."""
    return Identity(_digest("urls", ""), None)


def _digest(kind: str, text: str) -> str:
    return hashlib.sha256(f"{kind}\0{text}".encode("utf-8", "surrogateescape")).hexdigest()


def _normal(url: str) -> str:
    """``url`` without credentials; its scheme and host in lower case, without the default port."""
    parts = urlsplit(url)
    scheme, host = parts.scheme.lower(), parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    port = "" if parts.port in (None, _PORTS.get(scheme)) else f":{parts.port}"
    path = re.sub("%[0-9A-Fa-f]{2}", lambda hit: hit[0].upper(), parts.path)
    query = "&".join(part for part in parts.query.split("&") if part and not _is_credential(part))
    return f"{scheme}://{host}{port}{path}?{query}"


def _is_credential(part: str) -> bool:
    name = part.partition("=")[0]
    return name.lower() not in _MAY_SELECT and is_secret_param(name)
