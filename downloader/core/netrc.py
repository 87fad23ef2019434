"""Read a netrc as curl does, and choose the login for a host.

Python's module ``netrc`` drops backslashes outside quotes, which curl and ftp keep, and has only the last
of several entries of a machine. See https://everything.curl.dev/usingcurl/netrc.html. What curl skips over
because it does not know the word is refused here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from downloader.core.host_names import ascii_host

__all__ = ["Login", "login_for", "parse_netrc"]

_BLANK: Final = " \t\r\n\v\f"
# Only in quotes is there an escape. A word ends at a blank, whatever is in it.
_WORD: Final = re.compile(rf'"((?:[^"\\]|\\.)*)"(?=[{_BLANK}]|\Z)|([^{_BLANK}"][^{_BLANK}]*)').match
_ESCAPE: Final = re.compile(r"\\(.)")
_MEANS: Final = {"n": "\n", "r": "\r", "t": "\t"}
_VALUES: Final = {"login": "user", "user": "user", "password": "password", "account": "account"}
_OTHERS = ""  # the key of what is for hosts without an entry of their own


class Login(NamedTuple):
    """An entry of a netrc; None: it does not say. ``default``: it is for every host."""

    user: str | None
    password: str | None
    default: bool = False


def parse_netrc(text: str) -> dict[str, tuple[Login, ...]]:
    """Return the entries for each host, in their order, for ``login_for``.

    Raises ValueError, whose only argument is the number of the line that cannot be read.
    """
    found: dict[str, tuple[Login, ...]] = {_OTHERS: ()}
    for host, login in _entries(text.removeprefix("\ufeff")):
        if login.default:
            for each in found:
                found[each] += (login,)
        else:
            found[host] = (*found.get(host, found[_OTHERS]), login)
    return found


def login_for(
    logins: Mapping[str, tuple[Login, ...]], host: str, user: str | None = None, *, default: bool = True
) -> tuple[str, str] | None:
    """Return user and password for ``host``, None if there is no entry for it; as curl.

    The first entry counts that has both, else the first one; no default behind one of the host itself. With
    a ``user`` only entries count that name that one, or none. ``default``: defaults count, too.
    """
    entries = [
        each
        for each in logins.get(host, logins.get(_OTHERS, ()))
        if (default or not each.default) and (user is None or each.user in (None, user))
    ]
    if not entries:
        return None
    last = next((n for n, each in enumerate(entries) if each.default and n), None)
    entries = entries[:last]
    best = next((each for each in entries if None not in each), entries[0])
    return (best.user or "" if user is None else user), best.password or ""


def _entries(text: str) -> Iterator[tuple[str, Login]]:
    """Yield the host, as ``Origin.host`` has it, and the login of each entry that has one."""
    host, values, is_default = "", {"": ""}, False
    words = _words(text)
    for line, word in words:
        keyword = word.lower()
        if keyword not in ("machine", "default"):
            if "" in values or keyword not in _VALUES:  # "": before the first entry
                raise ValueError(line)
            values[_VALUES[keyword]] = next(words, (line, ""))[1]
            continue
        yield from _login(host, values, is_default)
        values, is_default = {}, keyword == "default"
        if not is_default:
            host = _host(next(words, (line, ""))[1])
            if not host:
                raise ValueError(line)
    yield from _login(host, values, is_default)


def _login(host: str, values: dict[str, str], is_default: bool) -> Iterator[tuple[str, Login]]:
    if "user" in values or "password" in values:
        yield host, Login(values.get("user"), values.get("password"), is_default)


def _words(text: str) -> Iterator[tuple[int, str]]:
    """Yield the words, each with the number of its line; without comments and macros.

    Raises ValueError with a number of a line. A comment begins where a keyword could: a password may have a
    ``#`` at its beginning.
    """
    value_next = in_macro = False
    for number, line in enumerate(text.split("\n"), 1):
        at = 0
        if in_macro:
            in_macro = bool(line.strip(_BLANK))  # a macro ends at an empty line
            continue
        while rest := line[at:].lstrip(_BLANK):
            at = len(line) - len(rest)
            if rest[0] == "#" and not value_next:
                break
            match = _WORD(line, at)
            if match is None:
                raise ValueError(number)
            at = match.end()
            word = match[2]
            if word is None:
                word = _ESCAPE.sub(lambda hit: _MEANS.get(hit[1], hit[1]), match[1])
            if not value_next and word.lower() == "macdef":
                in_macro = True
                break
            value_next = not value_next and word.lower() != "default"
            yield number, word


def _host(name: str) -> str:
    try:
        return ascii_host(name).rstrip(".")
    except ValueError:  # an IPv6 address, which has no brackets here
        return name.lower()
