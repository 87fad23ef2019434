"""File descriptors: which are closed, and how many connections they allow."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

from downloader.core.cgroups import MemoryLimit
from downloader.process.file_descriptors import affordable

CLOSING = """
import os, sys
from downloader.process import file_descriptors as descriptors
made = [os.open(os.devnull, os.O_RDONLY) for _ in range(4)]
os.dup2(made[0], 40)
if sys.argv[1] == "without proc":
    descriptors.os.listdir = lambda path: os.stat("/nowhere")
descriptors.close_all_but({0, 1, 2, made[1]})
def is_open(number):
    try:
        return bool(os.fstat(number))
    except OSError:
        return False
print([is_open(number) for number in (1, *made, 40)])
"""


@pytest.mark.parametrize("how", ["with proc", "without proc"])
def test_all_descriptors_but_the_kept_ones_are_closed(how: str) -> None:
    done = subprocess.run([sys.executable, "-c", CLOSING, how], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[True, False, True, False, False, False]", done.stderr


def test_connections_are_limited_by_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, os.sysconf("SC_OPEN_MAX")))
    enough = affordable(300)
    assert (enough.connections, enough.warning) == (300, "")
    assert 0 < enough.awaited <= 1024 - 2 * 300
    fewer, awaited, why, _ = affordable(1000)
    assert 300 <= fewer < 1024 // 2
    assert awaited == 0
    assert f"{fewer} connections instead of 1000" in why


@pytest.mark.parametrize(
    ("files", "least", "most", "ceiling"),
    [(1024, 200, 300, "only 1024 files may be open"), (10**6, 1024, 1024, "1,024 are the maximum")],
)
def test_adaptive_connections_are_as_many_as_descriptors_allow(
    files: int, least: int, most: int, ceiling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    found = affordable(0)
    assert least <= found.connections <= most
    assert found.awaited > 0
    assert (found.warning, found.ceiling) == ("", ceiling)


def test_adaptive_connections_are_as_many_as_the_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (10**6, 10**6))
    limit = MemoryLimit(256 << 20, "memory.max")
    one, two = affordable(0, limit, 1), affordable(0, limit, 2)
    assert 4 < two.connections < one.connections < 1024
    assert one.ceiling == "memory is limited to 256.0 MiB (memory.max)"
    assert affordable(0, MemoryLimit(1, "memory.max"), 8).connections == 4
    assert affordable(0, MemoryLimit(1 << 40, "memory.max"), 8).ceiling == "1,024 are the maximum"
    # What the user chose stays: what a connection takes is an estimate.
    chosen = affordable(500, limit, 2)
    assert chosen.connections == 500
    assert "limited to 256.0 MiB (memory.max), which may not be enough for 500" in chosen.warning
    assert affordable(10, limit, 2).warning == ""
