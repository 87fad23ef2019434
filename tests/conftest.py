"""Provide the fixtures of ``harness`` to every test, and let no test leave a busy thread behind."""

import threading
import time
from collections.abc import Iterator

import pytest
from harness import dev_server, run_downloader, start

__all__ = ["dev_server", "leaves_no_busy_thread", "run_downloader", "start"]

_LOOKS, _LOOK = 100, 0.05  # seconds


@pytest.fixture(scope="module", autouse=True)
def leaves_no_busy_thread() -> Iterator[None]:
    """Fail where a thread of a test's server goes on computing.

    The servers of all later tests of the process would wait for it at each response, until some test seems
    to hang.
    """
    yield
    for _ in range(_LOOKS if threading.active_count() > 1 else 0):
        began, used = time.monotonic(), time.process_time()
        time.sleep(_LOOK)
        if time.process_time() - used < (time.monotonic() - began) / 4:
            return
    assert threading.active_count() == 1, f"busy after the tests: {threading.enumerate()}"
