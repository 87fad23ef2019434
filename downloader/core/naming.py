"""Convert untrusted names to safe file names.

``SafeName`` is one path segment: never empty, ``.`` or ``..``, without ``/`` and NUL, at most 255
bytes, without terminal control characters, and never one of the tool's own (``.downloader…``).
``escape`` is injective and ``unescape`` is its inverse, so two names of a server never share a file, and
the server's name can be derived from the file's. Sinks detect names that the file system itself folds
(case, NFC).
"""

from __future__ import annotations

import json
import re
import unicodedata
from base64 import b32encode
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, NewType, cast
from urllib.parse import quote_from_bytes, unquote_to_bytes

from downloader.core.redact import NAMING, is_secret_param, precedes_host, redact_url, without_secrets

__all__ = [
    "COLON",
    "ESCAPED_COLON",
    "PATH_BYTES",
    "BadName",
    "SafeName",
    "cut_path",
    "cut_url_name",
    "escape",
    "escape_all",
    "folded",
    "hashed",
    "is_invented",
    "is_keyed",
    "list_path",
    "literal_path",
    "mirror_path",
    "numbered",
    "one_line",
    "printable",
    "printable_json",
    "quote_all",
    "quote_name",
    "shown",
    "split_query",
    "unescape",
    "url_name",
    "url_path",
    "with_colon",
]

SafeName = NewType("SafeName", str)

_NAME_BYTES: Final = 255  # NAME_MAX of every file system in use
PATH_BYTES: Final = 4096  # PATH_MAX of Linux
COLON: Final = ":"
ESCAPED_COLON: Final = "%3A"  # `escape` leaves colons alone, so it makes this of nothing else
_SHOWN: Final = 120  # characters

# Categories Cc, Cf, Zl and Zp of Unicode 15.1, and the surrogates. Listed here instead of read from
# `unicodedata`: a job that is resumed under another Python version must produce the same names.
_CONTROLS: Final = (
    r"\x00-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f"
    r"\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb\U000110bd\U000110cd"
    r"\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001"
    r"\U000e0020-\U000e007f\ud800-\udfff"
)
_UNSAFE: Final = re.compile(rf"[%/\\{_CONTROLS}]")
_UNSHOWABLE: Final = re.compile(rf"[{_CONTROLS}]")
_UNPRINTABLE: Final = re.compile(rf"(?!\n)[{_CONTROLS}]")
_RESERVED: Final = re.compile(r"\.(?:\.?\Z|downloader)")
_RESERVED_FOLDED: Final = re.compile(_RESERVED.pattern, re.IGNORECASE)
# What a file system without case (ext4, APFS) leaves out of names: the Default_Ignorable_Code_Points of
# Unicode 15.1, but those that are escaped anyway.
_LEFT_OUT: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8"
    "\U000e0000-\U000e0fff]"
)

# Printable ASCII without `%`, `/` and `\`; no leading dot.
_PLAIN: Final = re.compile(r"[ -$&-\-0-\[\]-~][ -$&-.0-\[\]-~]{0,254}").fullmatch
_PLAIN_BYTES: Final = re.compile(rb"[ -$&-\-0-\[\]-~][ -$&-.0-\[\]-~]{0,254}").fullmatch
_PLAIN_ALPHABET: Final = bytes(byte for byte in range(0x20, 0x7F) if byte not in b"%/\\")
_UNRESERVED: Final = re.compile(r"[A-Za-z0-9_.~\-]+").fullmatch
_UNRESERVED_ALPHABET: Final = bytes(byte for byte in range(128) if _UNRESERVED(chr(byte)))

_URL: Final = re.compile(  # RFC 3986, appendix B, with a scheme and an authority
    r"([A-Za-z][A-Za-z0-9+.\-]*)://([^/?#]*)([^?#]*)(?:\?([^#]*))?(?:#.*)?", re.DOTALL
)
_DEFAULT_PORTS: Final = {"http": "80", "https": "443", "ftp": "21"}

# Precedes a digest. `escape` never produces it: its `%` is followed by two hexadecimal digits.
_MARK: Final = "%~"
_KEYED: Final = re.compile(r"%~[a-z2-7]{16}").search
_DIGEST_BYTES: Final = (
    10  # 16 characters; among 10**9 names, the probability of a collision is below 10**-6
)
_INDEX: Final = "index.html"  # for the file at a path that ends in a slash
_INVENTED: Final = re.compile(r"index(?:%~[a-z2-7]+)?(?:-[0-9]+)?\.html").fullmatch
_NO_NAME: Final = re.compile(
    r"[A-Za-z][A-Za-z0-9+.\-]*://[^/?#]*(?:/(?:[^?#]*/)?)?(?:[?#].*)?", re.DOTALL
).fullmatch
_NAMING_5: Final = 5  # see ``storage.records.JobSpec``
_NAMING_6: Final = 6
_SCHEME: Final = "http://"  # stands before the host of a URL within a URL
# What is certainly no part of a secret at the end of one.
_COMMON_EXTENSION: Final = re.compile(
    rb"(?<=.)\.(?:avif|bin|bmp|bz2|csv|flac|gif|gz|heic|html?|jpe?g|jsonl?|m4a|mkv|mov|mp[34]|ogg|parquet|pdf|png|svg"
    rb"|tar|tgz|tiff?|tsv|txt|wav|webm|webp|xml|xz|zip|zst)\Z",
    re.DOTALL | re.IGNORECASE,
)
_EXTENSION: Final = re.compile(rb"(?<=.)\.[A-Za-z0-9]{1,8}\Z", re.DOTALL)


class BadName(ValueError):
    """The name cannot be stored safely; the message says why, with the name escaped and truncated."""


def shown(text: str) -> str:
    """Return ``text`` for a message: one line, without terminal control characters, at most 120 characters.

    Controls, ESC, line separators, bidi controls and surrogates are written as in ``repr``; a text that
    is too long ends in an ellipsis.
    """
    if len(text) <= _SHOWN and _UNSHOWABLE.search(text) is None:
        return text
    out: list[str] = []
    room = _SHOWN
    for position, char in enumerate(text[: _SHOWN + 1]):
        form = char.encode("unicode_escape").decode() if _UNSHOWABLE.match(char) else char
        last = position == len(text) - 1
        if len(form) > (room if last else room - 1):
            out.append("…")
            break
        out.append(form)
        room -= len(form)
    return "".join(out)


def printable(text: str) -> str:
    """Return ``text`` for a terminal: what ``shown`` escapes is escaped, except the ends of lines."""
    if _UNPRINTABLE.search(text) is None:
        return text
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def printable_json(text: str) -> str:
    """Return the JSON ``text`` with the same escaped as JSON has it; it means what it meant."""
    return _UNPRINTABLE.sub(lambda match: json.dumps(match[0])[1:-1], text)


def one_line(text: str) -> str:
    """Return ``text``, of any length, with terminal control characters written as in ``repr``."""
    if text.isprintable():
        return text
    return _UNSHOWABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def folded(name: str) -> str:
    """Return what ``name`` has in common with those that a file system without case may take for it."""
    return unicodedata.normalize("NFC", name).casefold().rstrip(". ")


def _refuse(why: str, raw: str | bytes) -> BadName:
    head = raw[: _SHOWN * 4]
    text = head if isinstance(head, str) else head.decode("utf-8", "backslashreplace")
    return BadName(f"the name {why}: '{shown(text)}'")


def _percent(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8, see `escape`
        return f"%{code - 0xDC00:02X}"
    return "".join(f"%{byte:02X}" for byte in match[0].encode())


def escape(raw: str | bytes, naming: int = NAMING) -> SafeName:
    """Return the name under which ``raw`` is stored: one path segment, reversible by ``unescape``.

    These are percent-encoded, with upper-case digits: ``%``, ``/``, ``\\``, control and format characters,
    line separators, surrogates, bytes that are not UTF-8, and the first character of ``.``, ``..``,
    ``.downloader…``, and what a file system without case takes for one of these. Everything else is
    unchanged. A str is encoded as UTF-8 ("surrogatepass"). ``naming``: the rules of the job. Raises
    BadName for an empty name and for more than 255 bytes after escaping.
    """
    if isinstance(raw, str):
        if _PLAIN(raw):
            return SafeName(raw)
        if len(raw) > _NAME_BYTES:  # escaping never shortens
            raise _refuse(f"takes more than {_NAME_BYTES} bytes", raw)
        data = raw.encode("utf-8", "surrogatepass")
    else:
        if _PLAIN_BYTES(raw):
            return SafeName(raw.decode("ascii"))
        data = raw
    if not data:
        raise BadName("the name is empty")
    if len(data) > _NAME_BYTES:
        raise _refuse(f"takes more than {_NAME_BYTES} bytes", raw)
    text = _escaped(data, naming)
    if len(text.encode()) > _NAME_BYTES:
        raise _refuse(f"takes more than {_NAME_BYTES} bytes when escaped", raw)
    return SafeName(text)


def _is_reserved(segment: str, naming: int) -> bool:
    """Return whether ``segment`` leads elsewhere or to the tool's own, on any file system."""
    if naming < _NAMING_6:
        return _RESERVED.match(segment) is not None
    left = segment if segment.isascii() else _LEFT_OUT.sub("", segment)
    return _RESERVED_FOLDED.match(left) is not None


def _escaped(data: bytes, naming: int = NAMING) -> str:
    """Return ``data`` escaped as by ``escape``, of any length."""
    # Bytes that are not UTF-8, including encoded surrogates, become U+DC80 … U+DCFF.
    text = _UNSAFE.sub(_percent, data.decode("utf-8", "surrogateescape"))
    if not _is_reserved(text, naming):
        return text
    return "".join(f"%{byte:02X}" for byte in text[0].encode()) + text[1:]


def unescape(name: SafeName) -> bytes:
    """Return the bytes that ``escape`` was given; b"" for ``%``, the empty segment of ``mirror_path``."""
    if "%" not in name:
        return name.encode()
    return b"" if name == "%" else unquote_to_bytes(name)


def escape_all(names: list[str]) -> list[SafeName] | None:
    """Return ``names`` itself if all are plain (``escape`` would return each unchanged), else None.

    A plain name is printable ASCII without ``%``, ``/``, ``\\`` and a leading dot, 1 to 255 characters.
    If the result is None, call ``escape`` for each name. This function costs a quarter of that.
    ``bytes.translate`` is faster than a regular expression and needs no backtracking stack.
    """
    if not all(names):
        return None
    joined = "/".join(names)
    if not joined.isascii() or joined[:1] == "." or ("." in joined and "/." in joined):
        return None
    # Only the separators may remain, and no other `/`: a name that contains one is not plain.
    left = joined.encode("ascii").translate(None, _PLAIN_ALPHABET)
    if left != b"/" * (len(names) - 1) or not _parts_fit(joined):
        return None
    return cast("list[SafeName]", names)


def _parts_fit(joined: str) -> bool:
    """Return whether all parts between slashes have at most 255 characters.

    Looks at one slash in every 256 characters.
    """
    start = 0
    while len(joined) - start > _NAME_BYTES:
        start = joined.rfind("/", start, start + _NAME_BYTES + 1) + 1
        if not start:
            return False
    return True


def hashed(name: SafeName) -> str:
    """Return ``ab/cd/name``: two levels of 256 directories, by the blake2b digest of the UTF-8 name."""
    digest = blake2b(name.encode(), digest_size=2).hexdigest()
    return f"{digest[:2]}/{digest[2:]}/{name}"


def mirror_path(segments: Iterable[str | bytes], naming: int = NAMING) -> str:
    """Return the relative path of the escaped segments, joined by ``/``; injective.

    An empty segment (``a//b``, ``/a``) becomes a single ``%``, which ``escape`` never produces and
    ``unescape`` converts back. Raises BadName for no segments at all, for a bad segment, and for more
    than 4096 bytes.
    """
    return _joined([escape(segment, naming) if segment else "%" for segment in segments])


def list_path(name: str, naming: int = NAMING) -> str:
    """Return the relative path for the name that a list gives to a file, which may have directories.

    Each segment is escaped, so ``..`` and a leading slash lead nowhere else. Undecodable bytes
    ("surrogateescape") are escaped as they are. Raises BadName.
    """
    if "/" not in name:
        return escape(name.encode("utf-8", "surrogateescape") if not name.isascii() else name, naming)
    return mirror_path([part.encode("utf-8", "surrogateescape") for part in name.split("/")], naming)


def literal_path(name: str, below: str = "", naming: int = NAMING) -> str:
    """Return ``name`` itself, as the relative path under which a file must be stored.

    Unlike other names it may have ``%``, ``\\`` and control characters. Raises BadName where no file can
    have it, or where it leads elsewhere than ``below``, a directory with its slash.
    """
    segments = name.split("/")
    if not name.isascii() and any("\ud800" <= char <= "\udfff" for char in name):
        raise _refuse("is not text in the encoding of the list", name)
    if not all(segments) or any(_is_reserved(segment, naming) for segment in segments):
        raise _refuse("leads elsewhere, or is one of the downloader's own", name)
    if not name.startswith(below):
        raise _refuse(f"is not below {below}, where it must be", name)
    if "\0" in name:
        raise _refuse("has a NUL, which no file can have", name)
    if max(len(segment.encode()) for segment in segments) > _NAME_BYTES:
        raise _refuse(f"takes more than {_NAME_BYTES} bytes", name)
    return _joined(segments)


def cut_path(name: str) -> SafeName:
    """Return a name for one that is too long for ``list_path``: its last segment, cut, and a digest of it.

    For stores that have no file of the name. Different names are cut to different ones.
    """
    return _cut(name.rpartition("/")[2].encode("utf-8", "surrogateescape"), name)


def cut_url_name(url: str) -> SafeName:
    """Return a name for a URL whose ``url_name`` is too long, without query and secrets. Raises BadName."""
    segments = _split(url)[2]
    return _cut(_decoded(segments[-1], NAMING)[1] or _INDEX.encode(), redact_url(url))


def _cut(name: bytes, whole: str) -> SafeName:
    extension = _EXTENSION.search(name)
    end = extension.start() if extension else len(name)
    return _marked(name[:end], name[end:], whole, b"")


def split_query(name: str, url: str) -> tuple[str, str]:
    """Return the part of ``name`` that is of the path of ``url``, and that of the query, from its ``?`` on.

    A name that a list gives may have a ``?`` of its own: what follows is a query only if ``url`` has it.
    """
    if "?" not in name or "?" not in url:
        return name, ""
    head, mark, tail = name.partition("?")
    query = url.partition("?")[2].partition("#")[0].encode("utf-8", "surrogatepass")
    known = {_escaped(part) for part in query.split(b"&")}
    return (head, mark + tail) if known.issuperset(tail.split("&")) else (name, "")


def is_invented(name: str, url: str) -> bool:
    """Return whether ``name``, without a query, is what ``url_name`` makes of the empty end of a path.

    Digests and numbers that were added to it count as part of it.
    """
    return _INVENTED(name.rpartition("/")[2]) is not None and _NO_NAME(url) is not None


def numbered(path: str, number: int, url: str = "") -> str:
    """Return ``path`` with ``-number`` before the extension of its last segment, truncated if too long.

    ``url``: where the path may come from; what it has of a query is behind the extension.
    """
    directory, slash, name = path.rpartition("/")
    name, query = split_query(name, url)
    extension = _EXTENSION.search(name.encode())
    tail = extension[0].decode() if extension else ""
    head = name[: len(name) - len(tail)]
    tail = f"-{number}{tail}{query}"
    if len(tail.encode()) > _NAME_BYTES:
        return numbered(path, number)
    return f"{directory}{slash}{_truncated(head, _NAME_BYTES - len(tail.encode()))}{tail}"


def _joined(segments: list[str]) -> str:
    path = "/".join(segments)
    if not path:
        raise BadName("the name is empty")
    if len(path.encode()) > PATH_BYTES:
        raise _refuse(f"takes more than {PATH_BYTES} bytes as a path", path)
    return path


def _harmless(url: str) -> bool:
    """Return whether ``url`` has nothing to decode and no place for a secret, as most URLs."""
    return not ("%" in url or "=" in url or "@" in url or "?" in url)


def _split(url: str) -> tuple[str, str, list[str], str]:
    """Return scheme, authority, path segments and query, undecoded; drop the fragment."""
    match = _URL.fullmatch(url)
    if match is None:
        raise BadName("the URL has no scheme and host, so it gives no name")
    scheme, authority, path, query = match.groups()
    return scheme.lower(), authority, path.split("/")[1:] or [""], query or ""


def _marked(before: bytes, after: bytes, secret: str, key: bytes | None, naming: int = NAMING) -> SafeName:
    """Return ``before``, the digest of ``secret`` and ``after`` as one name, truncated if it is too long.

    Without a key there is no digest.
    """
    head, tail, mark = _escaped(before, naming), _escaped(after, naming), _MARK
    if key is not None:
        data = secret.encode("utf-8", "surrogatepass")
        digest = blake2b(data, digest_size=_DIGEST_BYTES, key=key).digest()
        mark += b32encode(digest).decode().lower()
    elif head or tail:
        mark = ""
    room = _NAME_BYTES - len(mark) - len(tail.encode())
    if room < 0:
        tail, room = "", _NAME_BYTES - len(mark)
    return SafeName(_truncated(head, room) + mark + tail)


def _truncated(name: str, room: int) -> str:
    """Return the beginning of an escaped name, at most ``room`` bytes, without an incomplete escape."""
    if len(name.encode()) <= room:
        return name
    return re.sub(r"%[0-9A-F]?\Z", "", name.encode()[:room].decode("utf-8", "ignore"))


def _contexts(url: str, segments: list[str], naming: int) -> list[str]:
    """Return "http://" for each segment that begins with the host of a URL within ``url``, else ""."""
    if naming < _NAMING_5 or not ("@" in url or "%" in url):
        return [""] * len(segments)
    before = ["/".join(segments[max(index - 4, 0) : index]) + "/" for index in range(len(segments))]
    return [_SCHEME if precedes_host(each) else "" for each in before]


def _kept(text: str, naming: int, scheme: str) -> str:
    return without_secrets(scheme + text, naming).removeprefix(scheme)


def _decoded(raw: str, naming: int, scheme: str = "") -> tuple[bytes, bytes]:
    """Return a percent-decoded segment, and the same without its secrets; ``scheme``: see ``_contexts``."""
    data = unquote_to_bytes(raw.encode("utf-8", "surrogatepass"))
    if not ("=" in raw or "%" in raw or "@" in raw):
        return data, data  # the usual case: no place for a secret
    text = data.decode("utf-8", "surrogateescape")
    kept = _kept(text, naming, scheme)
    if kept == text and _kept(raw, naming, scheme) != raw:
        kept = ""
    return data, data if kept == text else kept.encode("utf-8", "surrogateescape")


def _directory(raw: str, key: bytes | None, naming: int, scheme: str) -> str:
    data, kept = _decoded(raw, naming, scheme)
    if kept != data:
        return _marked(kept, b"", raw, key, naming)
    return escape(data, naming) if data else "%"


def _leaf(
    raw: str, query: str, key: bytes | None, naming: int, scheme: str, *, apart: bool = False
) -> SafeName:
    """Return the name for the last segment and the query. A digest precedes the extension, to keep that.

    ``apart``: a ``?`` of the segment is escaped, so that it is not the one before a query. ``scheme``: see
    ``_contexts``.
    """
    if naming < _NAMING_5:
        apart = False
    data, kept = _decoded(raw, naming, scheme)
    name = kept if data else _INDEX.encode()
    public = without_secrets(query, naming, query=True) if query else ""
    if public:
        parts = public.split("&")
        public = "&".join([part for part in parts if not is_secret_param(part.partition("=")[0], naming)])
    rest = b"?" + public.encode("utf-8", "surrogatepass") if public else b""
    if b"@" in rest:  # together with the text before it, it may look like a password
        both = (name + rest).decode("utf-8", "surrogateescape")
        if (less := _kept(both, naming, scheme)) != both:
            return _marked(less.encode("utf-8", "surrogateescape"), b"", f"{raw}?{query}", key, naming)
    if kept == data and public == query:
        return _with_query(name, rest, naming) if apart else escape(name + rest, naming)
    extension = _EXTENSION.search(name)
    end = extension.start() if extension else len(name)
    tail = name[end:]
    if not tail and kept != data and naming >= _NAMING_5 and (found := _COMMON_EXTENSION.search(data)):
        tail = found[0]
    return _marked(name[:end], tail + rest, f"{raw}?{query}", key, naming)


def _with_query(name: bytes, rest: bytes, naming: int) -> SafeName:
    """Return ``name`` and ``rest``, a query, escaped; the query begins at the first ``?`` of the result."""
    if b"?" not in name:
        return escape(name + rest, naming)
    text = _escaped(name, naming).replace("?", "%3F") + _escaped(rest, naming)
    if len(text.encode()) > _NAME_BYTES:
        raise _refuse(f"takes more than {_NAME_BYTES} bytes when escaped", name + rest)
    return SafeName(text)


def url_name(url: str, key: bytes, naming: int = NAMING) -> SafeName:
    """Return the file name for a URL: its last path segment, decoded, and its query, escaped.

    An empty segment gives ``index.html``. The query is not decoded; the fragment is dropped. Secrets
    (whatever ``redact_url`` cuts) are left out; ``%~`` and a digest of them, keyed with ``key``, precede
    the extension. Two URLs may give the same name (other directories, other hosts). ``naming``: the
    rules of the job. Raises BadName.
    """
    _, _, segments, query = _split(url)
    if _harmless(url):
        return escape(segments[-1] or _INDEX, naming)
    return _leaf(segments[-1], query, key, naming, _contexts(url, segments, naming)[-1])


def url_path(url: str, key: bytes | None, colon: str = ":", naming: int = NAMING) -> str:
    """Return the path for a URL in the mirror layout: ``host[:port]/segment/…/name``.

    ``colon``: COLON where the file system takes colons, ESCAPED_COLON elsewhere; both are reversible.

    The host is in lower case, without the default port; the last segment is as in ``url_name``; dot
    segments are escaped, never resolved, and so is a ``?`` that is not before the query.
    A digest replaces the secrets in each segment, and the userinfo.
    Without a key there is no digest: use that for a part that all URLs of a job share. Raises BadName.
    """
    scheme, authority, segments, query = _split(url)
    userinfo, at, host = authority.rpartition("@")
    host = host.lower()
    name, found, port = host.rpartition(COLON)
    if found and port.isascii() and (port.isdigit() or not port):
        port = port.lstrip("0") or port[:1]
        host = name if port in ("", _DEFAULT_PORTS.get(scheme)) else f"{name}:{port}"
    if not host:
        raise BadName("the URL has no host, so it gives no name")
    if _harmless(url):
        path = mirror_path([host, *segments[:-1], segments[-1] or _INDEX], naming)
        return path if colon == COLON else with_colon(colon, path)
    kept = without_secrets(host, naming)
    if kept != host or (at and key is not None):
        top = _marked(kept.encode("utf-8", "surrogatepass"), b"", f"{userinfo}{at}{host}", key, naming)
    else:
        top = escape(host, naming)
    top = SafeName(top.replace(COLON, colon))
    contexts = _contexts(url, segments, naming)
    directories = [
        _directory(s, key, naming, context) for s, context in zip(segments[:-1], contexts, strict=False)
    ]
    leaf = _leaf(segments[-1], query, key, naming, contexts[-1], apart=True)
    return _joined([top, *directories, leaf])


def is_keyed(name: str) -> bool:
    """Return whether ``name`` has a digest of a secret, which depends on the key of the job."""
    return _KEYED(name) is not None


def with_colon(colon: str, path: str) -> str:
    """Return ``path`` with the colons of its first segment written as ``colon``. Raises BadName."""
    top, slash, rest = path.partition("/")
    return _joined([top.replace(COLON, colon) + slash + rest])


def quote_name(name: SafeName) -> str:
    """Return the server's own name, percent-encoded as one segment of a URL's path.

    RFC 3986 unreserved characters are not encoded, except for the dots of ``.`` and ``..``: clients and
    proxies would resolve dot segments.
    """
    if _UNRESERVED(name):
        return name
    raw = unescape(name)
    if raw in (b".", b".."):
        return "%2E" * len(raw)
    return quote_from_bytes(raw, safe="")


def quote_all(names: list[str]) -> list[bytes] | None:
    """Return ``names`` in ASCII if none needs quoting, else None.

    ``quote_name`` would return each of them unchanged. If the result is None, call ``quote_name`` for each
    name. See ``escape_all``, which works the same way.
    """
    joined = "/".join(names).encode("utf-8", "surrogatepass")
    if joined.translate(None, _UNRESERVED_ALPHABET) != b"/" * (len(names) - 1):
        return None
    return joined.split(b"/")
