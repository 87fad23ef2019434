"""Compute the identity of a source.

The journal stores its digest and refuses to resume with another source. A file server is identified by the
URLs of its listing and of its files, normalized and without credentials. A list of URLs is identified by
its content, not by its path. In this module all lists are equal; the CRC-32 in each cursor
(``sources.lines``) detects a list other than the one that was read.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple
from urllib.parse import urlsplit

from downloader.core.redact import is_secret_param

__all__ = ["Identity", "identify_list", "identify_server"]

_PORTS = {"http": 80, "https": 443}
# Redacted from messages as if they were secrets, but they may select what is listed.
_MAY_SELECT = frozenset({"code", "key", "session", "sid"})
_NAMING = 6  # the rules for parameters that are secret: those of the digests in journals


class Identity(NamedTuple):
    """The identity of a source, as the journal stores it.

    ``digest`` is stored in the journal. ``older`` is the digest that an earlier version stored for the
    same source, None if the kind of the source identifies it.
    """

    digest: str
    older: str | None

    def owns(self, digest: str) -> bool:
        """Return whether ``digest``, from a journal of the same kind of source, is of this source."""
        return self.older is None or digest in (self.digest, self.older)


def identify_server(source: str, list_path: str, get_path: str, list_url: str, files_url: str) -> Identity:
    """Return the identity of a file server.

    ``source`` and the two paths are as the user gave them. ``list_url`` is the URL of the first page of
    the listing, ``files_url`` the prefix of each file's URL.
    """
    older = f"{source.rstrip('/')}\0{list_path}\0{get_path}"
    return Identity(
        _digest("server", f"{_normal(list_url)}\0{_normal(files_url)}"), _digest("server", older)
    )


def identify_list() -> Identity:
    """Return the identity that all lists of URLs share."""
    return Identity(_digest("urls", ""), None)


def _digest(kind: str, text: str) -> str:
    return hashlib.sha256(f"{kind}\0{text}".encode("utf-8", "surrogateescape")).hexdigest()


def _normal(url: str) -> str:
    """Return ``url`` without credentials and default port, its scheme and host in lower case."""
    parts = urlsplit(url)
    scheme, host = parts.scheme.lower(), parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    port = "" if parts.port in (None, _PORTS.get(scheme)) else f":{parts.port}"
    path = re.sub("%[0-9A-Fa-f]{2}", lambda hit: hit[0].upper(), parts.path)
    query = "&".join(part for part in parts.query.split("&") if part and not _is_credential(part))
    return f"{scheme}://{host}{port}{path}?{query}"


def _is_credential(part: str) -> bool:
    name = part.partition("=")[0]
    return name.lower() not in _MAY_SELECT and is_secret_param(name, _NAMING)
