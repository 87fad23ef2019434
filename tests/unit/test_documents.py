"""The documents against the code."""

from __future__ import annotations

import re
from pathlib import Path

from downloader.errors import FAILURES

USAGE = (Path(__file__).resolve().parents[2] / "docs/usage.md").read_text()
ROW = re.compile(r"^\| `([a-z-]+)` \| (.+) \| (yes|no|once) \|$", re.MULTILINE)


def test_every_failure_code_is_documented_as_it_is() -> None:
    table = USAGE.partition("## Failure codes")[2].partition("\n## ")[0]
    rows = {code: (meaning, retried != "no") for code, meaning, retried in ROW.findall(table)}
    assert rows == {code: (kind.meaning, kind.retry) for code, kind in FAILURES.items()}
