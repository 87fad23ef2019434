"""What the process of a slice tells, without a cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from harness import ROOT, environment

from downloader.cluster.node.slice_process import SliceProgress
from downloader.core.frames import Unpacker
from downloader.messages import Tally

# Reports a pause of each of 500 hosts, more than fit into a pipe's atomic write, then what it has done.
_REPORTS = """
from downloader.cluster.node.slice_process import _Link
from downloader.messages import HostPause, Tally
link = _Link()
for number in range(500):
    link.paused(HostPause(f"https://host-{number}.{'x' * 60}.example:443", 9.0))
link.exchange(lambda: Tally(stored=7))
"""


def test_pauses_of_many_hosts_are_all_told() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _REPORTS],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd=ROOT,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = [msgspec.msgpack.decode(frame, type=SliceProgress) for frame in Unpacker().feed(done.stdout)]
    hosts = [pause.host.partition(".")[0] for progress in told for pause in progress.pauses]
    assert hosts == [f"https://host-{number}" for number in range(500)]
    assert {progress.tally for progress in told} == {Tally(stored=7)}


# Forks the feeder of a slice or a list, has it send a batch, and waits for a sign of life and for its end.
_FEEDS = """
import json, os, sys
from multiprocessing.connection import wait
from types import SimpleNamespace
import msgspec
from downloader.config.config import Config
from downloader.config.slice_context import SliceContext
from downloader.engine.children import feeder_main
from downloader.messages import Batch, Continue, Credit, Ended, Finish, Heartbeat, Item, Ready
from downloader.core.ownership import Rules
from downloader.process.spawn import fork
from downloader.sources.slice_file import write_items

of_slice, path = sys.argv[1] == "slice", sys.argv[2]
with open(path, "wb") as file:
    if of_slice:
        write_items(file, msgspec.msgpack.encode([Item(f"{number}") for number in range(7)]))
    else:
        file.writelines(b"http://host.test/%d\\n" % number for number in range(7))
source = {"source": "http://host.test", "slice": SliceContext(path)} if of_slice else {"source": path}
config = Config(output="out", **source)
nowhere = SimpleNamespace(name_key=b"", journal=None, rules=Rules())
child = fork(feeder_main(config, nowhere), plain=True)
kinds, counts = [], []

def until(kind):
    while kind.__name__ not in kinds:
        wait([child.link])
        messages, is_open = child.link.receive()
        kinds.extend(type(message).__name__ for message in messages)
        counts.extend(message.count for message in messages if isinstance(message, Batch))
        assert is_open, kinds

until(Ready)
child.link.send(Continue(b"", 0, 0))
until(Heartbeat)  # it waits for credit
early = list(counts)
child.link.send(Credit(2))
until(Ended)
with open(f"/proc/{child.pid}/maps") as maps:
    loaded = {name for line in maps for name in ("gevent", "_ssl") if name in line}
child.link.send(Finish())
print(json.dumps([early, counts, sorted(loaded), os.waitpid(child.pid, 0)[1]]))
"""


@pytest.mark.parametrize("kind", ["slice", "list"])
def test_feeder_of_files_lives_without_gevent(kind: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FEEDS, kind, tmp_path / "items.txt"],
        capture_output=True,
        cwd=ROOT,
        env=environment(),
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[], [7], [], 0]
