"""Read a Set-Cookie field by RFC 6265 §5.2: of several attributes the last counts, an invalid one none.

http.cookiejar drops a cookie that has an attribute which it cannot read (``Max-Age="3600"``, ``Path``),
takes the first of several, heeds what is no attribute any more (Port, Version), and strips bytes of UTF-8
from a value that are blanks in Latin-1.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Final, NamedTuple

__all__ = ["SetCookie", "cookie_name", "parse_set_cookie"]

_BLANKS: Final = " \t"
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]").search
_MAX_AGE: Final = re.compile(r"(-?)0*([0-9]*)").fullmatch
_DIGITS: Final = 10  # more of a Max-Age are centuries
_OVER: Final = 0  # when a cookie expires that is to be deleted
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
# RFC 6265 §5.1.1: what is no delimiter; what a token may go on with.
_DATE_TOKEN: Final = re.compile(r"[\x00-\x08\x0a-\x1f0-9:A-Za-z\x7f-\xff]+").findall
_TIME: Final = re.compile(r"([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?![0-9])").match
_DAY: Final = re.compile(r"([0-9]{1,2})(?![0-9])").match
_YEAR: Final = re.compile(r"([0-9]{2,4})(?![0-9])").match


class SetCookie(NamedTuple):
    """A cookie that a server sets.

    ``expires``: in seconds since the epoch, None where it lasts as long as the run. ``domain``: in lower
    case, "" for the host alone. ``path``: "" for the directory of the URL.
    """

    name: str
    value: str
    expires: int | None = None
    domain: str = ""
    path: str = ""
    secure: bool = False


def parse_set_cookie(line: str, now: int) -> SetCookie | None:
    """Return the cookie of ``line``, the value of a field received at ``now``; None if it has none.

    Nor has one with control characters (no field may send them back), or one that is not what the prefix of
    its name promises (RFC 6265bis, and curl).
    """
    pair, *attributes = line.split(";")
    name, equals, value = _split(pair)
    if not (equals and name) or _CONTROLS(line):
        return None
    expires: int | None = None
    max_age: int | None = None
    domain = path = ""
    secure = False
    for each in attributes:
        attribute, _, given = _split(each)
        kind = attribute.lower()
        if kind == "expires":
            expires = _parse_date(given, expires)
        elif kind == "max-age":
            max_age = _parse_max_age(given, now, max_age)
        elif kind == "domain" and given:
            domain = given.removeprefix(".").lower()
        elif kind == "path":
            path = given if given.startswith("/") else ""
        elif kind == "secure":
            secure = True
    found = SetCookie(name, value, expires if max_age is None else max_age, domain, path, secure)
    return found if _keeps_promise(found) else None


def _keeps_promise(cookie: SetCookie) -> bool:
    """Return whether ``cookie`` is what a prefix of its name promises: RFC 6265bis §4.1.3."""
    name = cookie.name.lower()
    if name.startswith("__host-"):
        return cookie.secure and cookie.path == "/" and not cookie.domain
    return cookie.secure or not name.startswith("__secure-")


def cookie_name(line: str) -> str:
    """Return the name of the cookie of ``line``, whether it is valid or not; "" for none."""
    return line.partition("=")[0].strip(_BLANKS)


def cookie_change(line: str, now: int) -> str:
    """Return which cookie ``line``, received at ``now``, changes: its name, behind ``;`` if it is deleted.

    "" for none.
    """
    name, found = cookie_name(line), parse_set_cookie(line, now)
    deleted = found is not None and found.expires is not None and found.expires <= now
    return f";{name}" if deleted else name


def _split(text: str) -> tuple[str, str, str]:
    name, equals, value = text.partition("=")
    return name.strip(_BLANKS), equals, value.strip(_BLANKS)


def _parse_max_age(text: str, now: int, before: int | None) -> int | None:
    """Return when a cookie of the Max-Age ``text`` expires, ``before`` if that is invalid."""
    match = _MAX_AGE(text)
    if not match or text in ("", "-"):
        return before
    sign, digits = match.groups()
    return _OVER if sign or not digits else now + int(digits[:_DIGITS])


def _parse_date(text: str, before: int | None) -> int | None:
    """Return the time of the Expires ``text`` by RFC 6265 §5.1.1, ``before`` if that is invalid."""
    time = day = month = year = None
    for token in _DATE_TOKEN(text):
        if time is None and (match := _TIME(token)):
            time = [int(each) for each in match.groups()]
        elif day is None and (match := _DAY(token)):
            day = int(match[1])
        elif month is None and token[:3].lower() in _MONTHS:
            month = _MONTHS.index(token[:3].lower()) + 1
        elif year is None and (match := _YEAR(token)):
            year = int(match[1])
            year += 1900 if 70 <= year <= 99 else 2000 if year <= 69 else 0
    if time is None or day is None or month is None or year is None or year < 1601:
        return before
    hours, minutes, seconds = time
    try:
        return int(datetime(year, month, day, hours, minutes, seconds, tzinfo=timezone.utc).timestamp())
    except ValueError:
        return before  # there is no such day, or time
