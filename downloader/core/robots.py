"""Decide what robots.txt allows: the Robots Exclusion Protocol, RFC 9309.

Paths and rules mean what they mean to Protego, which the tests compare this with. But Protego compares a
path with each rule: 4 s for one of 28 kB where there are 35,000 rules with wildcards. Here the rules are
found by what the path contains, and what remains to be compared is bounded.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from enum import Enum
from operator import attrgetter
from typing import Final, NamedTuple
from urllib.parse import quote

from downloader.errors import FAILURES, Blame

__all__ = [
    "ALLOW_ALL",
    "LIFETIME",
    "MAX_REDIRECTS",
    "MAX_SIZE",
    "UNREACHABLE_LIFETIME",
    "Outcome",
    "Rules",
    "outcome_of",
    "parse",
    "product_token",
    "unreachable",
]

MAX_SIZE: Final = 500 << 10
"""The number of bytes of a robots.txt that are used: RFC 9309 §2.5."""
MAX_REDIRECTS: Final = 5
"""The number of redirects that are followed: RFC 9309 §2.3.1.2."""
LIFETIME: Final = 86_400.0
"""Seconds after which rules are fetched again: RFC 9309 §2.4."""
UNREACHABLE_LIFETIME: Final = 60.0
"""Seconds after which a robots.txt that could not be had is tried again."""

_TOKEN = re.compile(r"[A-Za-z_-]*")
# "Mozilla/5.0 (compatible; Name/1.0; +https://...)": how a crawler gives its name behind that of a browser.
_COMPATIBLE = re.compile(r"[(;]\s*compatible\s*;\s*([A-Za-z_-]+)", re.IGNORECASE)
_LINE = re.compile(r"\s*(user-?agent|allow|disallow)\s*:\s*([^#]*)", re.IGNORECASE)
_ALL = "*"
_BYTES_OF_RULE, _BYTES_OF_WILDCARD = 100, 280  # measured: memory that a rule takes
_GRAM = 4  # characters of a rule by which it is found
# Characters of a path, times those of rules, that are compared for one path at most: 50 ms at the worst.
_MOST_WORK = 50_000_000
_DISALLOWED = "robots.txt of the host disallows it"
_TOO_MUCH = "robots.txt of the host has too many rules for a URL of this length"
_NO_RULE = 1  # allows, and is shorter than all
# Escapes that stay as they are written: a slash that does not separate, and what would be an escape then. A
# wildcard in a rule is none if it is escaped.
_KEPT_IN_PATH, _KEPT_IN_RULE = "/%", "/%*"
_ESCAPE = re.compile("%([0-9A-Fa-f]{2})")
_USUAL = re.compile(r"[A-Za-z0-9_.~/=*-]*").fullmatch  # no character needs an escape, or is one


class Rules:
    """The rules of one robots.txt for one crawler. ``size``: about the bytes of memory that they take.

    ``why``: the reason why everything is refused, "" if the paths decide.
    """

    __slots__ = ("_patterns", "lifetime", "size", "why")

    def __init__(
        self,
        patterns: _Patterns | None = None,
        why: str = "",
        lifetime: float = LIFETIME,
    ) -> None:
        self._patterns = patterns
        self.size = patterns.size if patterns is not None else 0
        self.why = why
        self.lifetime = lifetime

    def allows(self, target: str) -> bool:
        """Return whether ``target`` (path and query of a URL) may be requested."""
        return not self.why_not(target)

    def why_not(self, target: str) -> str:
        """Return why ``target`` may not be requested, "" if it may."""
        return self.why if self._patterns is None else self._patterns.why_not(target)


ALLOW_ALL: Final = Rules()


def unreachable(reason: str) -> Rules:
    """Return the rules where robots.txt cannot be had: nothing is allowed (RFC 9309 §2.3.1.4)."""
    return Rules(
        why=f"the host's robots.txt cannot be had, so nothing is requested there: {reason}",
        lifetime=UNREACHABLE_LIFETIME,
    )


class Outcome(Enum):
    """What a robots.txt that was not received means for the files of its origin.

    ALLOW: they are fetched; REFUSE: none is fetched; FAIL: they fail as robots.txt did, since the host
    cannot be reached at all.
    """

    ALLOW = "allow"
    REFUSE = "refuse"
    FAIL = "fail"


def outcome_of(code: str, *, elsewhere: bool = False) -> Outcome:
    """Return what failure ``code`` of the last attempt at robots.txt means: RFC 9309 §2.3.1.

    ``elsewhere``: it is the failure of another host, which robots.txt was redirected to.
    """
    if code.startswith("http-"):
        return Outcome.ALLOW if code.startswith("http-4") else Outcome.REFUSE
    if code == "redirect-loop":
        return Outcome.ALLOW
    if not elsewhere and (FAILURES[code].blame is Blame.HOST or code in ("bad-url", "internal", "poison")):
        return Outcome.FAIL
    return Outcome.REFUSE


def product_token(user_agent: str) -> str:
    """Return the name that robots.txt has for a crawler with this User-Agent, "" if it has none.

    It is what the field begins with (RFC 9309 §2.2.1), or, for "Mozilla/5.0 (compatible; Name/1.0)", Name.
    """
    named = _COMPATIBLE.search(user_agent)
    if named:
        return named[1]
    begins = _TOKEN.match(user_agent)
    return begins[0] if begins else ""


def parse(body: bytes, token: str) -> Rules:
    """Return the rules of a robots.txt for the crawler ``token``. Never raises."""
    if len(body) > MAX_SIZE:
        # A rule that is cut off would be another rule.
        body = body[:MAX_SIZE].rpartition(b"\n")[0]
    # UTF-8 by RFC 9309, §2.3; an editor that writes UTF-16 says so in the first two bytes.
    encoding = "utf-16" if body[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig"
    lines = re.split(r"[\r\n]+", body.decode(encoding, "replace"))
    rules = _rules_for(token.lower(), _directives(lines))
    if all(allows for allows, _ in rules):
        return ALLOW_ALL
    return Rules(_Patterns(rules))


def _directives(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield name and value of the lines that matter: "useragent", "allow" or "disallow", and the rest."""
    for line in lines:
        if found := _LINE.match(line):
            yield found[1].lower().replace("-", ""), found[2].strip()


def _rules_for(token: str, directives: Iterable[tuple[str, str]]) -> list[tuple[bool, str]]:
    """Return the rules of all groups of ``token``, or, without one, those of ``*``: RFC 9309 §2.2.1.

    Each is whether it allows, and what.
    """
    found: dict[str, list[tuple[bool, str]]] = {}
    group: set[str] = set()
    in_rules = True
    for name, value in directives:
        if name == "useragent":
            if in_rules:
                group, in_rules = set(), False
            begins = _TOKEN.match(value.lower())
            agent = _ALL if value == _ALL else begins[0] if begins else ""
            if agent in (token, _ALL) and agent:
                group.add(agent)
                found.setdefault(agent, [])
        else:
            in_rules = True
            if value:
                for agent in group:
                    found[agent].append((name == "allow", value))
    return found[token] if token in found else found.get(_ALL, [])


class _Wildcard(NamedTuple):
    """A rule with wildcards: what must follow one another in a path.

    ``rank``: see ``_Patterns``; ``tail``: what the path must end with, None if it may end with anything.
    """

    rank: int
    head: str
    middle: tuple[str, ...]
    tail: str | None
    size: int

    def matches(self, path: str) -> bool:
        """Return whether ``path`` matches; each part is taken at its first place, which is enough."""
        if not path.startswith(self.head):
            return False
        at = len(self.head)
        for part in self.middle:
            at = path.find(part, at)
            if at < 0:
                return False
            at += len(part)
        return self.tail is None or (path.endswith(self.tail) and at <= len(path) - len(self.tail))


_by_rank = attrgetter("rank")


class _Patterns:
    """The rules for paths, and how to find those that match a path.

    The longest rule that matches decides, and if two are equally long, the one that allows (RFC 9309
    §2.2.2): so ``rank`` is twice the length, plus 1 if it allows, and the highest one decides.

    A rule without wildcards is looked up by the beginnings of the path that are as long as a rule is; one
    with wildcards by a few characters of it, which the path must have somewhere.
    """

    __slots__ = ("_by_gram", "_grams", "_lengths", "_prefixes", "_whole", "size")

    def __init__(self, rules: Iterable[tuple[bool, str]]) -> None:
        self._prefixes: dict[str, int] = {}
        self._whole: dict[str, int] = {}
        wildcards: set[_Wildcard] = set()
        for allows, pattern in _normalized(rules):
            rank = 2 * len(pattern) + allows
            anchored = pattern.endswith("$")
            head, *parts = (pattern[:-1] if anchored else pattern).split("*")
            middle = tuple(filter(None, parts[:-1] if anchored else parts))
            tail = (parts[-1] or None) if anchored and parts else None
            if middle or tail:
                wildcards.add(_Wildcard(rank, head, middle, tail, len(pattern)))
            else:
                known = self._whole if anchored and not parts else self._prefixes
                known[head] = max(rank, known.get(head, 0))
        self._lengths = sorted({len(prefix) for prefix in self._prefixes})
        self._by_gram: dict[str, list[_Wildcard]] = {}
        for rule in wildcards:
            rarest = max((rule.head, *rule.middle, rule.tail or ""), key=len)
            self._by_gram.setdefault(rarest[-_GRAM:], []).append(rule)
        self._grams = sorted({len(gram) for gram in self._by_gram})
        count = len(self._prefixes) + len(self._whole)
        text = sum(map(len, self._prefixes)) + sum(map(len, self._whole))
        text += sum(rule.size for rule in wildcards)
        self.size = _BYTES_OF_RULE * count + _BYTES_OF_WILDCARD * len(wildcards) + text

    def why_not(self, target: str) -> str:
        """Return why ``target`` may not be requested, "" if it may."""
        path = _normal(target.partition("#")[0], _KEPT_IN_PATH)
        if not path.startswith("/"):
            path = f"/{path}"
        if path.partition("?")[0] == "/robots.txt":
            return ""
        best = max(_NO_RULE, self._whole.get(path, 0))
        for length in self._lengths:
            if length > len(path):
                break
            best = max(best, self._prefixes.get(path[:length], 0))
        rules = [rule for rule in self._candidates(path) if rule.rank > best]
        if sum(rule.size for rule in rules) * len(path) > _MOST_WORK:
            return _TOO_MUCH
        rules.sort(key=_by_rank, reverse=True)
        best = next((rule.rank for rule in rules if rule.matches(path)), best)
        return "" if best & 1 else _DISALLOWED

    def _candidates(self, path: str) -> Iterator[_Wildcard]:
        """Yield the rules with wildcards of which ``path`` has some characters."""
        for size in self._grams:
            grams = {path[at : at + size] for at in range(len(path) - size + 1)}
            for gram in grams & self._by_gram.keys():
                yield from self._by_gram[gram]


def _normalized(rules: Iterable[tuple[bool, str]]) -> Iterator[tuple[bool, str]]:
    """Yield ``rules`` as paths are compared with them, also what Protego adds."""
    for allows, text in rules:
        for each in {text, text.replace("$", "%24")}:  # the character itself may be meant
            anchored = each.endswith("$")
            # A whole URL is a path in which that URL stands, which is what Protego takes it for.
            begin = "/" if each.startswith(("http://", "https://")) else ""
            pattern = begin + _normal(each[:-1] if anchored else each, _KEPT_IN_RULE) + "$" * anchored
            if pattern:
                yield allows, pattern
            if allows and pattern.endswith("/index.html"):
                yield allows, pattern.removesuffix("index.html") + "$"


def _normal(text: str, kept: str) -> str:
    """Return ``text`` in the one spelling of its escapes; those of the characters ``kept`` stay."""
    if _USUAL(text) and (kept == _KEPT_IN_RULE or "*" not in text):
        return text

    def decoded(found: re.Match[str]) -> str:
        byte = int(found[1], 16)
        return found[0].upper() if chr(byte) in kept else chr(byte)

    # Characters are bytes here, of UTF-8.
    octets = _ESCAPE.sub(decoded, text.encode("utf-8", "surrogateescape").decode("latin-1"))
    return quote(octets.encode("latin-1").decode("utf-8", "replace"), safe=f"{kept}=")
