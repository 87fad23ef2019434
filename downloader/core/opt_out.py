"""Decide whether a response says that its content is not to be used: X-Robots-Tag and TDMRep.

X-Robots-Tag: https://developers.google.com/search/docs/crawling-indexing/robots-meta-tag, with noai and
noimageai of DeviantArt. TDMRep (TDM Reservation Protocol): https://www.w3.org/community/reports/tdmrep/.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

__all__ = ["FIELDS", "RESPECTED", "opt_out"]

FIELDS: Final = ("x-robots-tag", "tdm-reservation")
"""The header fields that are looked at, in lower case."""
RESPECTED: Final = frozenset({"noai", "noimageai", "noindex", "noimageindex", "none"})
"""The directives that refuse the content; ``none`` stands for noindex and nofollow."""

_AGENT = re.compile(r"\s*([^\s:,]+)\s*:(.*)", re.DOTALL)
# Directives that have a value of their own, so that what is before the colon is not an agent.
_WITH_VALUE = frozenset({"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"})


def opt_out(robots_tags: Iterable[str], reservations: Iterable[str], token: str) -> str:
    """Return the field and directive that refuse the content to the crawler ``token``, "" if none does.

    ``robots_tags`` and ``reservations`` are the values of the fields X-Robots-Tag and tdm-reservation, one
    for each line of the response.
    """
    ours = {"*", token.lower()}
    for line in robots_tags:
        applies = True  # the directives before the first agent are for all
        for part in line.split(","):
            directive = part
            named = _AGENT.match(part)
            if named and named[1].lower() in _WITH_VALUE:
                continue
            if named:
                applies, directive = named[1].lower() in ours, named[2]
            directive = directive.strip().lower()
            if applies and directive in RESPECTED:
                return f"X-Robots-Tag: {directive}"
    if any(value.strip() == "1" for value in reservations):
        return "tdm-reservation: 1"
    return ""
