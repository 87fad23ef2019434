"""What the workers of a run know of the hosts that one of them has reached."""

from __future__ import annotations

import math
import mmap
import os

from downloader.core.reached_hosts import ReachedHosts

BEGAN = 1000.0


def test_what_one_worker_notes_another_one_reads() -> None:
    shared = ReachedHosts(memoryview(mmap.mmap(-1, ReachedHosts.SIZE)), BEGAN)
    child = os.fork()
    if not child:
        shared.note("http://h:80", BEGAN + 7.3)
        os._exit(0)
    os.waitpid(child, 0)
    assert BEGAN + 7.1 < shared.at("http://h:80") <= BEGAN + 7.3
    assert shared.at("http://h:81") == -math.inf


def test_answers_are_noted_beside() -> None:
    """Who only connects to a host does not say that it answers, nor that it does no more."""
    reached = ReachedHosts(memoryview(bytearray(ReachedHosts.SIZE)), BEGAN)
    reached.note("http://h:80", BEGAN + 1)
    assert reached.answered_at("http://h:80") == -math.inf
    reached.note("http://h:80", BEGAN + 2, answered=True)
    reached.note("http://h:80", BEGAN + 3)
    assert BEGAN + 1.8 < reached.answered_at("http://h:80") <= BEGAN + 2
    assert BEGAN + 2.8 < reached.at("http://h:80") <= BEGAN + 3


def test_first_instant_and_months_later() -> None:
    reached = ReachedHosts(memoryview(bytearray(ReachedHosts.SIZE)), BEGAN)
    for after in (0.0, 1.0, 3e7):
        reached.note("http://h:80", BEGAN + after)
        assert BEGAN + after - 0.2 < reached.at("http://h:80") <= BEGAN + after


def test_more_hosts_than_room_are_no_mistakes() -> None:
    """A host that was overwritten is not known, and none is taken for another."""
    reached = ReachedHosts(memoryview(bytearray(ReachedHosts.SIZE)), BEGAN)
    for n in range(20_000):
        reached.note(f"https://h{n}.example:443", BEGAN + n)
    known = [n for n in range(40_000) if reached.at(f"https://h{n}.example:443") > 0]
    assert 15_000 < len(known) < 20_000
    assert max(known) == 19_999
    assert all(abs(reached.at(f"https://h{n}.example:443") - BEGAN - n) < 0.2 for n in known[:100])
