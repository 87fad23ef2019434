"""Programs whose clock is stopped or replaced have the same verdict as without that, or none."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
from harness import environment
from meeting import meeting, said
from program_parts import INJECT, PATCH

__all__ = ["meeting", "said"]

SLOW = pytest.mark.slow
WORK = """\
import os

import gevent
import requests

URL, REQUESTS = os.environ["URL"], int(os.environ["REQUESTS"])

def work():
    fetch = lambda: requests.get(URL, timeout=30)
    gevent.joinall([gevent.spawn(fetch) for _ in range(REQUESTS)], raise_error=True)
"""
FREEZEGUN = """\
from freezegun import freeze_time
from work import work

@freeze_time("2020-02-29")
def test_work():
    work()
"""
TIME_MACHINE = """\
import time_machine
from work import work

@time_machine.travel("2020-02-29", tick=False)
def test_work():
    work()
"""


@pytest.mark.parametrize(
    ("begins", "test"),
    [
        pytest.param(PATCH, FREEZEGUN, marks=SLOW),
        (INJECT, FREEZEGUN),
        pytest.param(PATCH, TIME_MACHINE, marks=SLOW),
        pytest.param(INJECT, TIME_MACHINE, marks=SLOW),
    ],
    ids=["freezegun-healthy", "freezegun-serial", "time-machine-healthy", "time-machine-serial"],
)
def test_pytest_with_a_stopped_clock(said, write, begins, test):
    write("early", begins)
    write("work", WORK)
    write("test_work", test)
    argv = (sys.executable, "-m", "pytest", "-q", "-p", "early", "test_work.py")
    answer = said(argv, 3 if begins == PATCH else 1)
    if begins == INJECT:
        assert answer.cause == ("pyopenssl-unpatched-select", "early.py:4")


LOCK = """
    from gevent import monkey; monkey.patch_all()
    import threading
    import requests

    LOCK = threading.Lock()

    def fetch(url):
        with LOCK:
            requests.get(url)
"""
# A library that is loaded in front of the C library, as libfaketime is.
SHIM = """
#define _GNU_SOURCE
#include <time.h>
#include <unistd.h>
#include <sys/syscall.h>

int clock_gettime(clockid_t id, struct timespec *at) {
    long done = syscall(SYS_clock_gettime, id, at);
    if (id == CLOCK_MONOTONIC) { at->tv_sec = 1000; at->tv_nsec = 0; }
    return done;
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="no compiler")
def test_clock_of_the_c_library_is_stopped(run, write, tmp_path):
    (tmp_path / "shim.c").write_text(SHIM)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", "shim.so", "shim.c"], cwd=tmp_path, check=True)
    python = tmp_path / "python-stopped"
    python.write_text(f'#!/bin/sh\nLD_PRELOAD={tmp_path}/shim.so exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    answer = run("--app", write("proj", LOCK) + ":fetch", "--python", python, "--json")
    assert (answer.code, answer.json["verdict"]) == (1, "serialized"), answer
    assert answer.json["wall_s"] > 1.5


def test_check_in_a_process_whose_clock_is_stopped(write, tmp_path):
    program = """
        from gevent import monkey; monkey.patch_all()
        import threading
        import requests
        from freezegun import freeze_time

        get = requests.get
        with freeze_time("2020-02-29"):
            import diagnostics

            print(diagnostics.check().verdict)
            lock = threading.Lock()

            def in_turn(*args, **keywords):
                with lock:
                    return get(*args, **keywords)

            requests.get = in_turn
            print(diagnostics.check().verdict)
    """
    write("asks", program)
    argv = [sys.executable, "asks.py"]
    done = subprocess.run(
        argv, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=100, check=False
    )
    assert done.stdout == "concurrent\nserialized\n", done


def test_fetch_that_returns_before_the_response_has_no_verdict(run, write):
    program = """
        from gevent import monkey; monkey.patch_all()
        import contextlib
        import requests

        def fetch(url):
            with contextlib.suppress(requests.ReadTimeout):
                requests.get(url, timeout=(30, 0.1))
    """
    answer = run("--delay", "2s", "--app", write("proj", program) + ":fetch")
    assert answer.code == 4, answer
    assert "returns before the response is there" in answer.line
