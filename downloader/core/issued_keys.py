"""Know the keys that services issue by their form: they are secret under whatever name."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["ISSUED"]

# Behind other letters a prefix is a part of a word; `\\n` and `%20` are no letters of it.
_ALONE: Final = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2}))"
# Those that may have a - or _ begin only where no word with one goes on: so each character is read once.
_WHOLE: Final = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2}))"
_MIXED: Final = r"(?=[A-Za-z_-]{0,64}[0-9])(?=[a-z0-9_-]{0,64}[A-Z])"  # no words with hyphens between them

ISSUED: Final = re.compile(
    rf"{_ALONE}(?:"
    r"[srp]k_(?:live|test)_[A-Za-z0-9]{10,}|whsec_[A-Za-z0-9+/]{20,}"  # Stripe
    r"|gh[pousr]_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{30,}|hf_[A-Za-z0-9]{30,}"
    r"|A(?:KI|SI)A[A-Z0-9]{16}(?![A-Za-z0-9])"  # Amazon
    r"|sk-[A-Za-z0-9]{32,}"  # OpenAI
    rf")|{_WHOLE}(?:"
    r"github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{12,}|AIza[A-Za-z0-9_-]{30,}"
    r"|(?:xox[abeoprs]|xapp)-(?=[A-Za-z-]{0,64}[0-9])[A-Za-z0-9-]{10,}"  # Slack
    rf"|pypi-{_MIXED}[A-Za-z0-9_-]{{16,}}|sk-(?:proj|svcacct|ant)-[A-Za-z0-9_-]{{20,}}"
    r"|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"  # SendGrid
    r"|eyJ[A-Za-z0-9_-]{10,}(?:\.[A-Za-z0-9_-]*){2,4}"  # tokens in JSON: signed, encrypted
    # In one line, as an environment has them, too; the rest where its end is cut.
    r")|-----BEGIN [A-Z0-9 ]{0,40}KEY(?: BLOCK)?-----(?:(?!-----END ).)*(?:-----END [A-Z0-9 ]{0,40}-----)?",
    re.S,
)
