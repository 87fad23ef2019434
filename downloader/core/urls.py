"""Write a URL as it is sent, and resolve a reference: RFC 3986, and as little else as possible.

A target is sent as it was written, since a signature may cover it: ``%7E`` is not ``~``, ``%c3`` is not
``%C3``, and ``/s?`` is not ``/s``. Only what no URI may contain (RFC 3986 §2) is escaped: blanks,
control characters, ``"<>\\^`{|}`` and all that is not ASCII. curl and browsers send some of these as
they are, and servers refuse that (Tomcat) or take it for the end of the target. Brackets and a lone
``%`` may stand in a URI and stay, as with curl and browsers. Dot segments are removed (RFC 3986
§5.2.4), also as by both; ``%2e%2e`` is none.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote_from_bytes, unquote

from downloader.core.host_names import ascii_host

__all__ = ["login_of", "resolve", "sent_url"]

_PARTS: Final = re.compile(  # RFC 3986, appendix B and §3.1
    r"(?:([A-Za-z][A-Za-z0-9+.\-]*):)?(?://([^/?#]*))?([^?#]*)(\?[^#]*)?(?:#.*)?", re.DOTALL
).fullmatch
_HOST_AND_PORT: Final = re.compile(r"(\[[^\]]*\]|[^:]*)(?::([0-9]*))?").fullmatch
_ILLEGAL: Final = re.compile(r"[^!#$%&'()*+,\-./0-9:;=?@A-Z\[\]_a-z~]+")
# A URL that is sent as it is: nothing to escape, no dot segment, a host in lower case without userinfo.
_AS_IT_IS: Final = re.compile(
    r"https?://[a-z0-9]+(?:(?:\.|-+)[a-z0-9]+)*(?::(?:[1-5][0-9]{4}|6[0-4][0-9]{3}|[1-9][0-9]{0,3}))?"
    r"(?:/(?!\.)[!$%&'()*+,\-.0-9:;=@A-Z\[\]_a-z~]*)+(?:\?[!$%&'()*+,\-./0-9:;=?@A-Z\[\]_a-z~]*)?"
).fullmatch
_MAX_PORT: Final = 65535
_START: Final = re.compile(r"(?:(https?):)?([/\\]*)([^/?#]*)", re.IGNORECASE).match
_BLANKS_AND_CONTROLS: Final = "".join(map(chr, range(33)))  # as the URL standard strips them


def sent_url(url: str) -> str:
    """Return ``url`` as it is sent: its host in ASCII, without fragment; userinfo stays in it.

    Bytes that are not UTF-8 ("surrogateescape") are escaped as they are. Raises ValueError, with a clause.
    """
    if _AS_IT_IS(url):
        return url
    scheme, authority, path, query = _split(url.strip(" \t\r\n"))
    scheme = (scheme or "").lower()
    if scheme not in ("http", "https") or authority is None:
        raise ValueError("not an http(s) URL")
    userinfo, at, place = authority.rpartition("@")
    match = _HOST_AND_PORT(place)
    if match is None:
        raise ValueError("its host or port is not one")
    host, port = ascii_host(match[1]), ""
    if match[2]:
        number = int(match[2].lstrip("0")[:6] or 0)
        if not 0 < number <= _MAX_PORT:
            raise ValueError("its port is not one")
        port = f":{number}"
    userinfo = _escaped(userinfo).replace("[", "%5B").replace("]", "%5D")
    target = _escaped(_without_dots(path) or "/") + _escaped(query)
    return f"{scheme}://{userinfo}{at}{host}{port}{target}"


def resolve(base: str, reference: str) -> str:
    """Return the URL that ``reference`` means in the document at ``base`` (RFC 3986 §5.2.2).

    It has no fragment, and is not yet as it is sent. Raises ValueError, with a clause, where the host that
    it means is not clear.
    """
    scheme, authority, path, query = _split(_with_clear_host(reference, base.partition(":")[0]))
    base_scheme, base_authority, base_path, base_query = _split(base)
    if scheme is not None and (authority is not None or scheme.lower() != base_scheme):
        base_scheme, base_authority = scheme, authority
    elif authority is not None:
        base_authority = authority
    elif not path:
        path, query = base_path, query or base_query
    elif path[:1] != "/":
        path = f"{base_path.rpartition('/')[0]}/{path}"
    start = "" if base_authority is None else f"//{base_authority}"
    return f"{base_scheme}:{start}{path}{query}"


def _with_clear_host(reference: str, base_scheme: str) -> str:
    """Return ``reference`` with two slashes before its host, if it has one. Raises ValueError.

    ``https:/host`` and ``///host`` are read as by browsers and curl. For ``http:/x`` in a document of http,
    and for backslashes, browsers go to one host and curl to another, and either may be the wrong one.
    """
    reference = reference.strip(_BLANKS_AND_CONTROLS)
    match = _START(reference)
    assert match is not None  # it matches any text
    scheme, slashes, authority = match.groups()
    if "\t" in reference:
        raise ValueError("it has a tab in it")
    has_host = scheme is not None or len(slashes) > 1
    if "\\" in slashes or (has_host and "\\" in authority):
        raise ValueError("it has a backslash where its host begins or ends")
    if scheme is not None and len(slashes) < 2 and scheme.lower() == base_scheme:
        raise ValueError(f"no // follows {scheme.lower()}:, so it may be a path or a host")
    if not has_host:
        return reference
    start = f"{scheme}:" if scheme is not None else ""
    return f"{start}//{reference[match.end(2) :]}"


def login_of(url: str) -> tuple[str, str | None] | None:
    """Return user and password of ``url``, a result of ``sent_url``; None for one that it does not have.

    Bytes that are not UTF-8 are "surrogateescape".
    """
    userinfo = url.partition("://")[2].partition("/")[0].rpartition("@")[0]
    if not userinfo:
        return None
    user, colon, password = userinfo.partition(":")
    decoded = unquote(password, errors="surrogateescape") if colon else None
    return unquote(user, errors="surrogateescape"), decoded


def _split(url: str) -> tuple[str | None, str | None, str, str]:
    """Return scheme, authority, path, and query with its mark. None: there is none."""
    match = _PARTS(url)
    assert match is not None  # it matches any text
    scheme, authority, path, query = match.groups()
    return scheme, authority, path, query or ""


def _escaped(text: str) -> str:
    return _ILLEGAL.sub(
        lambda hit: quote_from_bytes(hit[0].encode("utf-8", "surrogateescape"), safe=""), text
    )


def _without_dots(path: str) -> str:
    """Return ``path``, which begins with a slash or is empty, without dot segments (RFC 3986 §5.2.4)."""
    if "/." not in path:
        return path
    kept: list[str] = []
    segments = path.split("/")[1:]
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in (".", ".."):
        kept.append("")
    return "/" + "/".join(kept)
