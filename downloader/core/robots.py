"""Decide what robots.txt allows: the Robots Exclusion Protocol, RFC 9309.

Protego matches paths with rules. Which group of rules applies is decided here: Protego also applies a group
whose name is only the beginning of ours, and the RFC does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Final

from downloader.errors import FAILURES, Blame, FetchError

if TYPE_CHECKING:
    from protego import Protego

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
_BYTES_OF_RULE_TEXT = 40  # measured: memory that Protego takes for a byte of rules


class Rules:
    """The rules of one robots.txt for one crawler. ``size``: about the bytes of memory that they take.

    ``why``: the reason why everything is refused, "" if the paths decide.
    """

    __slots__ = ("_disallows", "_protego", "lifetime", "size", "why")

    def __init__(
        self,
        protego: Protego | None = None,
        disallows: Protego | None = None,
        size: int = 0,
        why: str = "",
        lifetime: float = LIFETIME,
    ) -> None:
        self._protego = protego
        self._disallows = disallows
        self.size = size
        self.why = why
        self.lifetime = lifetime

    def allows(self, target: str) -> bool:
        """Return whether ``target`` (path and query of a URL) may be requested."""
        if self._protego is None or self._disallows is None:
            return not self.why
        # With a host, or a path of two slashes would be taken for one.
        url = "http://host" + target
        # An allow rule matters only where a disallow rule matches; "Allow: /" makes Protego try all rules.
        return self._disallows.can_fetch(url, _ALL) or self._protego.can_fetch(url, _ALL)

    def refusal(self) -> FetchError:
        """Return the failure of a file that may not be requested."""
        return FetchError("robots", self.why or "robots.txt of the host disallows it")


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
    lines = re.split(r"[\r\n]+", body.decode("utf-8-sig", "replace"))
    rules = _rules_for(token.lower(), _directives(lines))
    if not any(rule.startswith("disallow") for rule in rules):
        return ALLOW_ALL
    from protego import Protego  # of the extra `robots`

    text = "\n".join([f"user-agent: {_ALL}", *rules])
    disallows = "\n".join(line for line in text.split("\n") if not line.startswith("allow"))
    try:
        protego = Protego.parse(text)
        if len(disallows) == len(text):
            return Rules(protego, protego, _BYTES_OF_RULE_TEXT * len(text))
        size = _BYTES_OF_RULE_TEXT * (len(text) + len(disallows))
        return Rules(protego, Protego.parse(disallows), size)
    except Exception as error:  # any host can send anything
        return unreachable(f"it cannot be parsed ({type(error).__name__})")


def _directives(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield name and value of the lines that matter: "useragent", "allow" or "disallow", and the rest."""
    for line in lines:
        if found := _LINE.match(line):
            yield found[1].lower().replace("-", ""), found[2].strip()


def _rules_for(token: str, directives: Iterable[tuple[str, str]]) -> list[str]:
    """Return the rules of all groups of ``token``, or, without one, those of ``*``: RFC 9309 §2.2.1."""
    found: dict[str, list[str]] = {}
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
                    found[agent].append(f"{name}: {value}")
    return found[token] if token in found else found.get(_ALL, [])
