"""A daemon is found while it leaves its parents, which exit while the processes are being listed."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from diagnostics.processes import Processes, end_all, is_alive

DAEMON = """\
import os, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
with open(sys.argv[1] + ".part", "w") as out: out.write(str(os.getpid()))
os.rename(sys.argv[1] + ".part", sys.argv[1])
time.sleep(60)
"""
TIMES = 60


def test_a_daemon_that_leaves_its_parents_is_found_and_ended(tmp_path):
    overlooked, left = 0, 0
    for number in range(TIMES):
        told, value = tmp_path / str(number), f"{tmp_path}/{number}"
        argv = [sys.executable, "-S", "-c", DAEMON, str(told)]
        process = subprocess.Popen(argv, env={**os.environ, "MARK": value}, start_new_session=True)
        processes = Processes(tmp_path, f"MARK={value}")
        processes.root = process.pid
        ended = False
        while not (ended and told.exists()):
            ended = process.poll() is not None
            overlooked += not processes.any_alive(time.monotonic())
        end_all(process.pid, f"MARK={value}", {})
        left += is_alive(int(told.read_text()))
    assert (overlooked, left) == (0, 0)


def test_a_daemon_that_is_ended_while_it_leaves_its_parents_is_not_left(tmp_path):
    for number in range(TIMES):
        value = f"{tmp_path}/{number}"
        argv = [sys.executable, "-S", "-c", DAEMON, str(tmp_path / str(number))]
        process = subprocess.Popen(argv, env={**os.environ, "MARK": value}, start_new_session=True)
        process.wait()
        end_all(process.pid, f"MARK={value}", {})
    told = [int(path.read_text()) for path in tmp_path.iterdir() if not path.suffix]
    assert not [pid for pid in told if is_alive(pid)]
