"""Make items of the rows of a list: check URLs, make names safe, read sizes, checksums and header fields.

A row that cannot be fetched becomes an item with a fault, so it is counted and reported, and ends nothing.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from itertools import repeat
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import UUID

import msgspec

from downloader.core.column_types import MOST_COLUMNS
from downloader.core.content_check import ALGORITHMS, is_checksum
from downloader.core.headers import row_headers
from downloader.core.invisible import INVISIBLE, invisible_in
from downloader.core.naming import (
    COLON,
    BadName,
    cut_path,
    cut_url_name,
    escape_all,
    list_path,
    literal_path,
    shown,
    url_name,
    url_path,
)
from downloader.core.redact import NAMING, redact, redact_url
from downloader.messages import Item
from downloader.process.long_work import Pauses
from downloader.sources.lines import LONGEST_LINE, TOO_LONG
from downloader.sources.lists.columns import Columns
from downloader.sources.lists.nested import without
from downloader.sources.lists.rows import Table

__all__ = ["ItemMaker", "encodable"]

# A URL that is valid and whose last segment is its name as it is: nothing to decode, no place for a secret.
_PLAIN: Final = re.compile(
    r"https?://[A-Za-z0-9.-]*[A-Za-z0-9](?::(?:[1-5][0-9]{4}|[1-9][0-9]{0,3}))?"
    r"/(?:[A-Za-z0-9._~!$&'()*+,;:/-]{0,4000}/)?([A-Za-z0-9_~!$&'()*+,;:-][A-Za-z0-9._~!$&'()*+,;:-]{0,254})"
).fullmatch
# The same in two parts, for a whole page at a time.
_HEAD: Final = re.compile(
    r"https?://[A-Za-z0-9.-]*[A-Za-z0-9](?::(?:[1-5][0-9]{4}|[1-9][0-9]{0,3}))?/"
).match
_ALPHABET: Final = b"".join(
    [bytes([byte]) for byte in range(0x21, 0x7F) if re.match(r"[A-Za-z0-9._~!$&'()*+,;:/-]", chr(byte))]
)
_HEADS: Final = 16
# Controls, and halves of surrogate pairs (also bytes that are not UTF-8). What else is not printable may be
# part of an emoji, or one that this Python does not know yet.
_UNSENDABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]").search
_MORE_THAN_A_URL: Final = re.compile(
    rf"(?<=[^ \t{INVISIBLE}])[ \t{INVISIBLE}]+(#|https?://)|([\t\r])", re.IGNORECASE
).search
# Names of files have blanks and colons, but nobody's name is such a field or option: what it says would get
# into the name, the report and the journal.
_CREDENTIALS: Final = re.compile(
    r"[ ,]\W*(?:(?:proxy-)?authorization|cookie|x-[a-z0-9-]*(?:token|key|secret|auth)[a-z0-9-]*)[\"']?\s*:"
    r"| --(?:[a-z]+-)*(?:password|passwd|user)[ =]| -u +\S+:",
    re.IGNORECASE,
).search
_MORE: Final = {"#": "a comment", "\t": "a tab", "\r": "a line end (CR)"}
_BLANKS: Final = " \t\n\r\f\v"  # what lines of text are stripped of, too
_BLANKS_ARE_KEPT: Final = 5  # from these rules for names on
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
_DIGITS: Final = re.compile(r"([0-9]{1,18})(?:\.0*)?").fullmatch
_EXPONENT: Final = re.compile(r"[0-9]{1,19}(?:\.[0-9]{0,19})?[eE][+-]?[0-9]{1,2}").fullmatch
# What programs write for no value: R, pandas, MySQL, PostgreSQL. No size, checksum or header field is
# called so, but a file may be, except the last.
_NOTHING: Final = frozenset({"na", "n/a", "<na>", "nan", "null", "none", "\\n"})
_MOST_SHOWN: Final = 5  # URLs of a row
_NO_NAME: Final = "\\N"
_CRCS: Final = ("crc32", "crc32c")  # checksums that are numbers, where a column has numbers
_BASE64: Final = re.compile(r"(sha\d+-|)([a-z0-9+/_-]+)={0,2}").fullmatch  # in lower case


class _Fault(Exception):
    """The row cannot be fetched: a failure code, and why."""

    def __init__(self, code: str, why: str) -> None:
        super().__init__(code, why)
        self.code = code
        self.why = why


class ItemMaker:
    """Makes the items of a list that has ``columns``.

    ``mirror``: names come from the URLs, whatever the list says. ``name_key``: see ``url_name``; ``colon``:
    see ``url_path``.
    ``checksums``: use those of the list; else its rows have none, not even a bad one. ``cut``: no file has
    the names, so one that is too long is cut. ``literal``: names are stored as they are where the list
    demands that. ``naming``: the rules for names, see ``storage.records.JobSpec``.
    """

    def __init__(
        self,
        columns: Columns,
        name_key: bytes,
        *,
        mirror: bool,
        colon: str = COLON,
        checksums: bool = True,
        cut: bool = False,
        literal: bool = False,
        naming: int = NAMING,
    ) -> None:
        self._columns = columns
        self._key = name_key
        self._mirror = mirror
        self._verifies = checksums
        self._cut = cut
        self._literal = literal and columns.literal
        self._strips = naming < _BLANKS_ARE_KEPT
        self._naming = naming
        self._heads: tuple[str, ...] = ()  # the beginnings of valid URLs, up to the path
        of_url = functools.partial(url_path, colon=colon) if mirror else url_name
        self._of_url = functools.partial(of_url, naming=naming)
        self._hidden = columns.hidden
        self._encode = msgspec.msgpack.Encoder(enc_hook=str).encode

    def items(self, table: Table, where: Callable[[int], str]) -> list[Item]:
        """Return an item for each row of ``table``; ``where`` makes a row's number its name in messages."""
        columns, values = self._columns, table.columns
        code = "bad-url" if columns.whole_lines else "bad-row"
        faults = {index: _Fault(code, f": {why}") for index, why in table.faults.items()}
        urls: Sequence[Any] = values.get(columns.url, ())
        mirrors: Sequence[tuple[str, ...]] | None = None
        if columns.mirrors:
            urls, mirrors = _valid_urls(urls, values[columns.mirrors], faults)
        given = values[columns.name] if columns.name and not self._mirror else None
        names = self._plain_names(urls, given)
        if names is None:
            names, urls = self._names(urls, faults)
            if given is not None:
                names = self._given_names(given, names, faults)
        sizes = checksums = headers = kept = None
        if columns.size:
            sizes = _sizes(values[columns.size]) or _each(_size, values[columns.size], -1, faults)
        if columns.checksums and self._verifies:
            checksums = self._checksums(values, len(urls), faults)
        if columns.header:
            headers = _each(_headers, values[columns.header], (), faults)
        if table.extra is not None:
            for index, row in enumerate(table.extra):
                if len(row) > MOST_COLUMNS:
                    faults.setdefault(index, _too_many(row))
            kept = [self._packed(row) if len(row) <= MOST_COLUMNS else b"" for row in table.extra]
        elif columns.keep:
            rows = zip(*[values[name] for name in columns.keep], strict=True)
            kept = [self._packed(dict(zip(columns.keep, row, strict=True))) for row in rows]
        items = list(
            map(
                Item,
                names,
                urls,
                sizes or repeat(-1),
                repeat(""),
                repeat(""),
                checksums or repeat(""),
                kept or repeat(b""),
                headers or repeat(()),
                mirrors or repeat(()),
            )
        )
        for index, fault in faults.items():
            name = where(table.numbers[index])
            # Of a row with too few or too many fields, nobody knows which is which.
            known = b"" if index in table.faults else items[index].columns
            items[index] = Item(name, fault=fault.code, detail=f"{name}{fault.why}", columns=known)
        return items

    def _plain_names(self, urls: Sequence[Any], given: Sequence[Any] | None) -> Sequence[str] | None:
        """Return the names of a page if all its URLs and all names ``given`` are plain, else None."""
        try:
            text = "\n".join(urls)
            if given is not None and (not all(given) or escape_all(list(given)) is None):
                return None
            if given is not None and (self._literal or (not self._strips and _has_blank(given))):
                return None  # a bag's paths have slashes, unless they are wrong
        except TypeError:
            return None  # not all are text
        if self._mirror or not text.isascii() or max(map(len, urls), default=0) >= LONGEST_LINE:
            return None
        if text.encode().translate(None, _ALPHABET) != b"\n" * (len(urls) - 1):
            return None
        if others := [url for url in urls if not url.startswith(self._heads)]:
            heads = [match[0] for match in map(_HEAD, others) if match]
            if len(heads) < len(others):
                return None
            self._heads = tuple(dict.fromkeys(heads))[:_HEADS]
        names = [url.rpartition("/")[2] for url in urls] if given is None else given
        return names if given is not None or escape_all(list(names)) is not None else None

    def _names(
        self, given: Sequence[Any], faults: dict[int, _Fault]
    ) -> tuple[Sequence[str], Sequence[str]]:
        """Return the names that the URLs give, "" where there is none, and the URLs as text.

        Adds the faults of the URLs.
        """
        urls = list(map(_as_text, given))
        found = list(map(_PLAIN, urls))
        names = []
        pause = Pauses()
        for index, (url, match) in enumerate(zip(urls, found, strict=True)):
            name = ""
            try:
                if match is not None and not self._mirror:
                    name = match[1]
                else:
                    pause()  # a URL of 64 KiB takes 10 ms
                    if match is None:
                        if self._columns.whole_lines:
                            _check_one_url(url)
                        _check_url(url)
                    name = self._name_of(url)
            except _Fault as fault:
                faults.setdefault(index, fault)
            except BadName as error:
                faults.setdefault(index, _Fault("bad-name", f": {error}"))
            names.append(name)
        return names, urls

    def _name_of(self, url: str) -> str:
        try:
            return self._of_url(url, self._key)
        except BadName:
            if not self._cut:
                raise
            return cut_url_name(url)

    def _path_of(self, name: str) -> str:
        if self._literal:
            return literal_path(name, self._columns.below, self._naming)
        try:
            return list_path(name, self._naming)
        except BadName:
            if not self._cut:
                raise
            return cut_path(name)

    def _given_names(
        self, given: Sequence[Any], of_urls: Sequence[str], faults: dict[int, _Fault]
    ) -> Sequence[str]:
        names = []
        pause = Pauses()
        for index, (name, of_url) in enumerate(zip(given, of_urls, strict=True)):
            pause()
            directory, leaf = name if type(name) is tuple and len(name) == 2 else ("", name)
            text = leaf if self._literal else self._name_text(leaf)
            safe = of_url
            try:
                if text:
                    safe = self._path_of(text)
                    _forgive_name(index, faults)
                if directory:
                    safe = f"{list_path(directory, self._naming)}/{safe}"
            except BadName as error:
                faults.setdefault(index, _Fault("bad-name", f": {error}"))
            names.append(safe)
        return names

    def _name_text(self, value: Any) -> str:
        """Return ``value`` as the name of a file, "" if it is none.

        Blanks at its ends are part of it (RFC 4180), whatever other rows have; a job that began when that
        depended on them goes on as it began.
        """
        text = _as_text(value)
        if text in ("", _NO_NAME):
            return ""
        return text if self._strips or type(value) is not str else value

    def _checksums(
        self, values: Mapping[str, Sequence[Any]], count: int, faults: dict[int, _Fault]
    ) -> list[str]:
        """Return the checksum of each row: that of the first column that has a value."""
        found = [""] * count
        for algorithm, column in self._columns.checksums:
            for index, value in enumerate(values[column]):
                if found[index] or index in faults or not (text := _as_text(value)):
                    continue
                checksum = f"{algorithm}:{_digits_of(algorithm, value, text)}" if algorithm else text
                if is_checksum(checksum):
                    found[index] = checksum
                elif other := _other_checksum(algorithm, value, text):
                    found[index] = other
                elif text.casefold() not in _NOTHING:
                    faults[index] = _bad_checksum(checksum)
        return found

    def _packed(self, row: dict[str, Any]) -> bytes:
        for name in self._hidden:
            row = without(name, row)
        try:
            return self._encode(row)
        except Exception:
            # Text with surrogates, integers of any size, times that have no offset, …
            return self._encode(encodable(row))


def _valid_urls(
    urls: Sequence[str], others: Sequence[tuple[str, ...]], faults: dict[int, _Fault]
) -> tuple[Sequence[str], Sequence[tuple[str, ...]]]:
    """Return the first valid URL of each row, and the other valid ones behind it.

    Adds the faults of rows that have several, none of them valid.
    """
    firsts, rest = [], []
    for index, (url, more) in enumerate(zip(urls, others, strict=True)):
        valid = [each for each in dict.fromkeys((url, *more)) if _is_url(each)] if more else [url]
        if not valid:
            each = ", ".join(map(_shown, (url, *more)[:_MOST_SHOWN]))
            faults.setdefault(
                index, _Fault("bad-url", f" has no http(s) URL among its {len(more) + 1}: {each}")
            )
        firsts.append(valid[0] if valid else url)
        rest.append(tuple(valid[1:]))
    return firsts, rest


def _forgive_name(index: int, faults: dict[int, _Fault]) -> None:
    """Forget that the URL of row ``index`` gives no name: the list has one."""
    if index in faults and faults[index].code == "bad-name":
        del faults[index]


def _has_blank(names: Sequence[str]) -> bool:
    """Return whether one of the plain ``names`` is of blanks alone, and so none."""
    return " " in "/".join(names) and any(map(str.isspace, names))


def _each(
    convert: Callable[[Any], Any], values: Sequence[Any], none: Any, faults: dict[int, _Fault]
) -> list[Any]:
    """Return ``convert`` of each value, and ``none`` where there is none or it cannot be right."""
    found = []
    for index, value in enumerate(values):
        try:
            found.append(none if value is None or value == "" else convert(value))
        except _Fault as fault:
            faults.setdefault(index, fault)
            found.append(none)
    return found


def _sizes(values: Sequence[Any]) -> list[int] | None:
    """Return ``values`` as numbers if all are plain ones, else None."""
    try:
        digits = "".join(values)
        if all(values) and digits.isascii() and digits.isdigit() and max(map(len, values)) < 19:
            return list(map(int, values))
    except TypeError:
        if set(map(type, values)) == {int} and min(values) >= 0 and max(values) < 1 << 62:
            return list(values)
    return None


def _size(value: Any) -> int:
    if type(value) is int and 0 <= value < 1 << 62:
        return value
    if isinstance(value, float) and value != value:  # NaN stands for no value where a column has numbers
        return -1
    text = str(value).strip() if isinstance(value, (str, float, Decimal)) else ""
    match = _DIGITS(text)
    if match is not None:
        return int(match[1])
    if text.casefold() in _NOTHING:
        return -1
    if _EXPONENT(text) and (number := Decimal(text)) == (whole := int(number)) < 1 << 62:
        return whole
    raise _Fault("bad-row", f" has a size that is no number of bytes: {_shown(_as_text(value))}")


def _headers(value: Any) -> tuple[tuple[str, str], ...]:
    try:
        return row_headers(value)
    except ValueError as error:
        if isinstance(value, str) and value.strip().casefold() in _NOTHING:
            return ()
        raise _Fault("bad-row", f" has header fields that cannot be sent: {error}") from None


def _digits_of(algorithm: str, value: Any, text: str) -> str:
    """Return the checksum ``value`` in hexadecimal: of a number that is a CRC, of a UUID, else ``text``."""
    if algorithm in _CRCS and type(value) in (int, float, Decimal):
        return f"{int(value):08x}" if 0 <= value < 1 << 32 and value == int(value) else text
    return value.hex if isinstance(value, UUID) else text.lower()


def _other_checksum(algorithm: str, value: Any, text: str) -> str:
    """Return the checksum ``value`` that has its algorithm with it, as in a manifest, or is raw bytes.

    "" if it is neither. ``algorithm``: that of its column; ``text``: the value as text.
    """
    if algorithm and isinstance(value, bytes) and len(value) * 2 == ALGORITHMS[algorithm]:
        return f"{algorithm}:{value.hex()}"
    checksum = text.lower()
    return checksum if is_checksum(checksum) and checksum.startswith(algorithm) else ""


def _too_many(row: Mapping[str, Any]) -> _Fault:
    return _Fault("bad-row", f" has {len(row):,} columns to keep, and {MOST_COLUMNS:,} is the limit")


def _bad_checksum(checksum: str) -> _Fault:
    algorithm, _, digits = checksum.partition(":")
    length = ALGORITHMS.get(algorithm)
    if length is None:
        return _Fault(
            "bad-checksum",
            f" has a checksum of a kind that cannot be verified: {shown(algorithm)}",
        )
    # Cut, since it may be a secret, its author could not see which form he wrote.
    match = _BASE64(digits)
    number = ", nor a number of 32 bits" if algorithm in _CRCS else ""
    form = f" ({'SRI' if match[1] else 'Base64'})" if match and len(match[2]) == -(-length * 2 // 3) else ""
    return _Fault(
        "bad-checksum",
        f" has a {algorithm} that is not {length} hexadecimal digits{form or number}: {_shown(digits)}",
    )


def _shown(text: str) -> str:
    """Return ``text`` for a message; where columns are mixed up, any may be a URL."""
    return shown(redact_url(redact(text)))


def _first_word(line: str) -> str:
    """Return how ``line`` begins, for a message: it may be a command, whose options are not known."""
    word, *more = line.split(None, 1) or [line]
    return _shown(word) + (" …" if more else "")


def _as_text(value: Any) -> str:
    if type(value) is str:
        return value.strip(_BLANKS) if value[:1] <= " " or value[-1:] <= " " else value
    if value is None or (isinstance(value, float) and value != value):
        return ""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    try:
        return str(value)
    except ValueError:  # an integer of thousands of digits
        return f"<a value of type {type(value).__name__}>"


def encodable(value: Any) -> Any:
    """Return ``value`` as MessagePack can have it: valid Unicode, and larger integers as text."""
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {encodable(name): encodable(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [encodable(each) for each in value]
    try:
        msgspec.msgpack.encode(value)
    except Exception:
        return _as_text(value)
    return value


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return (
            parts.scheme.lower() in ("http", "https")
            and bool(parts.hostname)
            and parts.port != 0
            and len(url) < LONGEST_LINE
            and not _UNSENDABLE(url)
            and " " not in parts.netloc
        )
    except ValueError:
        return False


def _check_one_url(line: str) -> None:
    """Raise _Fault if ``line``, which should be a URL alone, has more in it.

    A space may be part of the URL, as for wget: names of files have some. A tab separates columns.
    """
    if match := _MORE_THAN_A_URL(line):
        what, seen = _MORE.get(match[1] or match[2], "another URL"), invisible_in(line)
        raise _Fault(
            "bad-url",
            f" has {what} behind the URL, and a line is one URL (a comment has a line of its own; "
            f"--list-format tsv reads a table): {_first_word(line)}" + (f"; it {seen}" if seen else ""),
        )
    if _CREDENTIALS(line):
        raise _Fault(
            "bad-url",
            " has credentials behind the URL, and a line is one URL (-H gives header fields for all, "
            f"--header-column for each, --auth-file logins): {_first_word(line)}",
        )


def _check_url(url: str) -> None:
    """Raise _Fault if ``url`` is not an http(s) URL that can be requested."""
    if not url:
        raise _Fault("bad-url", " has no URL")
    if _is_url(url):
        return
    if len(url) >= LONGEST_LINE:
        raise _Fault("bad-url", f" has a URL that is {TOO_LONG}: {_shown(url)}")
    if what := invisible_in(url):
        raise _Fault("bad-url", f" is not an http(s) URL, it {what}; remove that: {_shown(url)}")
    if _UNSENDABLE(url):
        raise _Fault("bad-url", f" has a URL with a character that cannot be sent: {_shown(url)}")
    if url[0] in "\"'":
        raise _Fault("bad-url", f" has quotes around the URL (jq -r writes none): {_first_word(url)}")
    raise _Fault("bad-url", f" is not an http(s) URL: {_first_word(url)}")
