"""A program that stops for good in a lock that is none of gevent's: where, and why."""

from __future__ import annotations

import sys

import pytest
from program_parts import PATCH

MADE = "import threading\nlock = threading.Lock()\n"
EARLY = f"{MADE}{PATCH}\n"
UNPATCHED = f"from gevent import monkey; monkey.patch_all(thread=False)\n{MADE}"
# Nothing answers there: the program stops before that matters.
FETCHES = """
import gevent
import requests

def get(number):
    with lock:  # it stops
        requests.get("https://localhost:1/")

gevent.joinall([gevent.spawn(get, number) for number in range(6)])
"""


@pytest.mark.parametrize(
    ("begins", "cause", "line"),
    [
        (EARLY, "made-before-patching", "lock = "),
        pytest.param(UNPATCHED, "threads-unpatched", "# it stops", marks=pytest.mark.slow),
    ],
    ids=["before-patching", "thread-false"],
)
def test_command_that_stops_in_a_real_lock_has_its_line(run, tmp_path, begins, cause, line):
    text = begins + FETCHES
    (tmp_path / "app.py").write_text(text)
    answer = run("--json", "--", sys.executable, "app.py")
    number = next(at for at, each in enumerate(text.splitlines(), 1) if line in each)
    assert (answer.code, answer.cause) == (3, (cause, f"app.py:{number}")), answer
