"""Cut what a server sends back of the credentials that it was sent, in a redirect, an ETag, a name.

It would stand in a published dataset, in rows and manifests.
"""

from __future__ import annotations

import base64
import binascii
import html
import re
from collections.abc import Iterable, Iterator, Set
from functools import cached_property, lru_cache
from typing import Final
from urllib.parse import unquote

from downloader.core.redact import (
    SHORTEST,
    credentials_in,
    forms_of,
    is_secret_param,
    pattern_of,
    redact_url,
    spellings,
)
from downloader.core.urls import login_of

__all__ = ["Echoes", "basic_login", "secrets_of_headers"]

Headers = Iterable[tuple[str, str]]

_CUT: Final = "***"
_SHORTEST_OTHER: Final = 8  # of a field whose name does not say that it is secret
_LAYERS: Final = 8  # of percent-encoding, of entities of HTML, of escapes of JSON
_MOST_CODED_TWICE: Final = 32  # secrets: each has some hundred forms
_SHORTEST_CODED: Final = 8  # bytes of a secret that is found by accident in no other coding
# Fields of requests that are no credentials, and whose values servers repeat as they should.
_HARMLESS: Final = frozenset(
    {
        "accept",
        "accept-charset",
        "accept-encoding",
        "accept-language",
        "cache-control",
        "connection",
        "content-type",
        "dnt",
        "host",
        "if-modified-since",
        "if-none-match",
        "origin",
        "pragma",
        "prefer",
        "range",
        "referer",
        "te",
        "upgrade-insecure-requests",
        "user-agent",
        "x-requested-with",
    }
)
# A value like this, of what is not called a secret, is none: `imagenet`, `dark`, `true-love`.
_WORDS: Final = re.compile(r"[A-Za-z]?[a-z]*(?:[ _.,;/-][A-Za-z]?[a-z]*)*").fullmatch
_PARAMETER: Final = re.compile(r"[?&;#]([^=&;#?]{1,64})=([^&#]+)").finditer
_LAST_GROUP: Final = "(?:[A-Za-z0-9+/_-]{2}[A-Za-z0-9+_-]{0,2}={0,2})?"  # hardly anything of what follows
_ESCAPED: Final = re.compile(r"\\(?:(/)|u([0-9a-fA-F]{4}))").sub
_NULS: Final = re.compile(r"\x00|\\x00").sub
_LONGEST_URL: Final = 8 << 10  # characters; servers take as many, RFC 9110 §4.1
_ORIGIN: Final = re.compile(r"https?://[^/?#]*", re.I).match


def basic_login(user: str, password: str) -> list[str]:
    """Return what a Basic ``Authorization`` has for this login, as a server may spell it."""
    encoded = base64.b64encode(f"{user}:{password}".encode("utf-8", "surrogateescape")).decode()
    plain = encoded.rstrip("=")
    return [plain, plain.replace("+", "-").replace("/", "_")]


def secrets_of_headers(headers: Headers) -> list[str]:
    """Return the credentials that these header fields of a request have, each as a whole and in parts."""
    found: list[str] = []
    for name, value in headers:
        lower = name.lower()
        if lower in _HARMLESS or lower.startswith("sec-"):
            continue
        is_secret = lower in ("cookie", "authorization", "proxy-authorization") or is_secret_param(name)
        if lower == "cookie":
            found += _secrets_of_cookies(value)
            continue
        values = [value, *value.split(None, 1)[1:]]
        if lower.endswith("authorization") and value[:6].lower() == "basic ":
            values += _parts_of_login(value[6:].strip())
        found += [each for each in values if _may_be_secret(each, is_secret)]
    return found


def _secrets_of_cookies(cookies: str) -> list[str]:
    found = [cookies]
    for each in cookies.split(";"):
        name, _, value = each.strip().partition("=")
        if len(value) >= SHORTEST and (is_secret_param(name) or not _WORDS(value)):
            found.append(value)
    return found


def _may_be_secret(value: str, is_secret: bool) -> bool:
    """Return whether ``value`` may be a secret, of what is called one (``is_secret``) or is not."""
    if is_secret:
        return len(value) >= SHORTEST
    return len(value) >= _SHORTEST_OTHER and not _WORDS(value)


def _parts_of_login(encoded: str) -> list[str]:
    try:
        login = base64.b64decode(encoded).decode("utf-8", "replace")
    except (ValueError, binascii.Error):
        return []
    return [encoded.rstrip("="), login, login.partition(":")[2]]


@lru_cache(1024)
def _codings(secret: str) -> Set[str]:
    """Return a secret in base64, behind any number of other bytes (RFC 4648), and in hexadecimal."""
    raw = secret.encode("utf-8", "surrogateescape")
    if len(raw) < _SHORTEST_CODED:
        return set()
    # Hexadecimal in both cases, as others have it in a further coding.
    return {raw.hex(), raw.hex().upper(), *_whole_groups(raw)}


def _whole_groups(raw: bytes) -> dict[str, bool]:
    """Return the base64 of ``raw``, and whether a part of it is in one more group, with what follows."""
    found: dict[str, bool] = {}
    for before in range(3):
        whole = (before + len(raw)) // 3 * 3
        coded = base64.b64encode((bytes(before) + raw)[:whole]).decode()
        text = coded[-(-before * 4 // 3) :]  # without what the bytes before share
        for each in (text, text.replace("+", "-").replace("/", "_")):
            found[each] = whole < before + len(raw)
    return found


def _coded_twice(secret: str) -> Set[str]:
    """Return the codings of what codings, URLs, JSON and reprs make of a secret."""
    raw = secret.encode("utf-8", "surrogateescape")
    every = {"".join(f"%{byte:{form}}" for byte in raw) for form in ("02x", "02X")}
    within = (spellings(secret) | _codings(secret) | every) - {secret}
    return {form for each in within for form in _codings(each)}


def _layers(text: str) -> Iterator[str]:
    """Yield ``text``, and what it is when the codings around it are taken away, one after the other."""
    yield text
    if (plain := _NULS("", text)) != text:  # UTF-16, read as bytes
        text = plain
        yield text
    for _ in range(_LAYERS):
        before, text = text, _decoded(text)
        if text == before:
            break
        yield text


def _decoded(text: str) -> str:
    """Return ``text`` with one layer less of what URLs, HTML and JSON write for a sign."""
    if "%" in text:
        text = unquote(text)
    if "&" in text:
        text = html.unescape(text)
    if "\\" in text:
        text = _ESCAPED(lambda hit: hit[1] or chr(int(hit[2], 16)), text)
    return text


class Echoes:
    """The credentials of a run, which a server may send back. ``secrets``: of all its requests."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._own = tuple(dict.fromkeys(secret for secret in secrets if len(secret) >= SHORTEST))
        forms = []
        for secret in filter(_codings, self._own):
            raw = secret.encode("utf-8", "surrogateescape")
            forms.append(f"(?i:{raw.hex()})")
            groups = _whole_groups(raw).items()
            forms += [re.escape(text) + _LAST_GROUP * is_open for text, is_open in groups]
        self._coded = re.compile("|".join(forms)) if forms else None

    @property
    def has_any(self) -> bool:
        """Return whether there are credentials of all requests."""
        return bool(self._own)

    def cut(self, text: str, url: str = "", headers: Headers = (), hops: Iterable[str] = ()) -> str:
        """Return ``text``, which a server has sent, without the credentials that it was sent.

        ``url``, ``headers``: of the request, which may have some of its own, as may the URLs ``hops``, to
        which it was redirected. Of a URL that has one in a spelling of its own, its origin is left; of
        another text nothing.
        """
        of_request = _secrets_of((url, *hops), headers) if text else ()
        if of_request and not _has_any(text, of_request):
            of_request = ()  # hardly any is there; a pattern of long signatures takes a millisecond
        own = (*self._own, *of_request) if text else ()
        pattern = pattern_of(own) if own else None
        if pattern is None:
            return text
        found = pattern.sub(_CUT, text)
        if self._coded is not None:
            found = self._coded.sub(_CUT, found)
        if self._is_there(pattern, of_request, found):
            origin = _ORIGIN(found)
            if origin and not self._is_there(pattern, of_request, origin[0]):
                return f"{origin[0]}/{_CUT}"
            return _CUT
        return found

    def cut_all(self, text: str, url: str = "") -> str:
        """Return the same, without what has a credential of the run in a coding of a coding, too.

        For what is not said of each file: this takes longer.
        """
        found = self.cut(text, url)
        if not self._is_coded_twice(found):
            return found
        origin = _ORIGIN(found)
        return f"{origin[0]}/{_CUT}" if origin and not self._is_coded_twice(origin[0]) else _CUT

    def _is_coded_twice(self, text: str) -> bool:
        return any(form in plain for plain in _layers(text) for form in self._twice)

    @cached_property
    def _twice(self) -> Set[str]:
        return {form for secret in self._own[:_MOST_CODED_TWICE] for form in _coded_twice(secret)}

    def _is_there(self, pattern: re.Pattern[str], of_request: tuple[str, ...], text: str) -> bool:
        """Return whether ``text`` has a credential, in whatever coding."""
        for plain in _layers(text):
            if pattern.search(plain) or (self._coded is not None and self._coded.search(plain)):
                return True
            if _is_coded_in(plain, of_request):
                return True
        return False

    def cut_url(self, at: str, url: str = "", headers: Headers = (), hops: Iterable[str] = ()) -> str:
        """Return the URL ``at``, to which a server has redirected, without all that may be secret.

        Of one that is long without a good reason, only its origin: to read it would hold up all others.
        """
        if len(at) > _LONGEST_URL:
            origin = _ORIGIN(at)
            return f"{self.cut_url(origin[0])}/{_CUT}" if origin and len(origin[0]) <= 1024 else _CUT
        # In this order: a part of a credential may look like the name of a parameter, whose value is cut.
        shown = redact_url(self.cut(at, url, headers, [hop for hop in hops if hop != at]))
        # Its own credentials, once more: they are where they should be, and hardly ever elsewhere.
        return self.cut(shown, at)

    def has(self, text: str) -> bool:
        """Return whether ``text`` has a credential of the run, as ``cut_all`` finds it."""
        pattern = pattern_of(self._own) if self._own else None
        return pattern is not None and (self._is_there(pattern, (), text) or self._is_coded_twice(text))


def _has_any(text: str, secrets: tuple[str, ...]) -> bool:
    """Return whether ``text`` has one of ``secrets``, in whatever coding."""
    for plain in _layers(text):
        folded = plain.casefold()
        if any(form.casefold() in folded for secret in secrets for form in forms_of(secret)):
            return True
        if _is_coded_in(plain, secrets):
            return True
    return False


def _is_coded_in(text: str, secrets: tuple[str, ...]) -> bool:
    return any(form in text for secret in secrets for form in _codings(secret))


def _secrets_of(urls: Iterable[str], headers: Headers) -> tuple[str, ...]:
    """Return the credentials of a request to ``urls``, one after the other, with ``headers``."""
    found: list[str] = []
    for url in urls:
        if "=" in url or "@" in url:
            found += _secrets_of_url(url)
    if headers:
        found += secrets_of_headers(headers)
    return tuple(dict.fromkeys(found))


def _secrets_of_url(url: str) -> list[str]:
    found = []
    for match in _PARAMETER(url):
        # Also code=, key=, sid=: short values of these are words, as in key=image.
        if len(match[2]) >= _SHORTEST_OTHER and is_secret_param(match[1]):
            found += [match[2], unquote(match[2])]
    if "@" in url:
        found += credentials_in(url)
        if (login := login_of(url)) is not None:
            found += basic_login(login[0], login[1] or "")
    return found
