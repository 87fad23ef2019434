"""Let each fault test fail if a hub of a run was held for long meanwhile, unless it has ``may_hold``."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_watch import MAX_HOLD, MAX_WAIT, Watched, watching


@pytest.fixture(autouse=True)
def hubs(request: pytest.FixtureRequest) -> Iterator[Watched | None]:
    """Watch the hubs of the test's runs; fail with the stack of what has held one.

    ``HUB_WATCH``: what may hold a hub, in seconds, in place of ``MAX_HOLD``; ``off``: nothing is watched.
    """
    bound = os.environ.get("HUB_WATCH", "")
    if bound == "off" or request.node.get_closest_marker("may_hold"):
        yield None
        return
    folder = Path(tempfile.mkdtemp(prefix="watch-"))
    try:
        with watching(folder, float(bound or MAX_HOLD), float(bound or MAX_WAIT)) as watched:
            yield watched
        if holds := watched.holds():
            pytest.fail("a hub was held:\n" + "\n".join(holds), pytrace=False)
        # What is denied to each process of a run is denied to the watch within it, too.
        if not request.node.get_closest_marker("starved") and (troubles := watched.troubles()):
            pytest.fail("\n".join(troubles), pytrace=False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
