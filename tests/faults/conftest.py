"""Let each fault test fail if a hub of a run was held for long meanwhile, unless it has ``may_hold``."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_watch import watching


@pytest.fixture(autouse=True)
def nothing_holds_a_hub(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail with the stack of what has held a hub."""
    if request.node.get_closest_marker("may_hold"):
        yield
        return
    folder = Path(tempfile.mkdtemp(prefix="watch-"))
    try:
        with watching(folder) as watched:
            yield
        if holds := watched.holds():
            pytest.fail("a hub was held:\n" + "\n".join(holds), pytrace=False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
