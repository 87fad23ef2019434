"""What the process of a slice tells, without a cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
from harness import ROOT, environment

from downloader.cluster.slice_process import Pulse
from downloader.core.frames import Unpacker
from downloader.messages import Tally

# Reports a pause of each of 500 hosts, more than fit into a pipe's atomic write, then what it has done.
_REPORTS = """
from downloader.cluster.slice_process import _Link
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
    pulses = [msgspec.msgpack.decode(frame, type=Pulse) for frame in Unpacker().feed(done.stdout)]
    hosts = [pause.host.partition(".")[0] for pulse in pulses for pause in pulse.pauses]
    assert hosts == [f"https://host-{number}" for number in range(500)]
    assert {pulse.tally for pulse in pulses} == {Tally(stored=7)}


# Forks the feeder of a slice, has it send a batch, and waits for a sign of life and for its end.
_FEEDS = """
import json, os, sys
from multiprocessing.connection import wait
from types import SimpleNamespace
import msgspec
from downloader.config.config import Config
from downloader.engine.children import feeder_main
from downloader.messages import Batch, Continue, Credit, Ended, Finish, Heartbeat, Item, Ready
from downloader.process.spawn import fork
from downloader.sources.slice_file import write_items

path = sys.argv[1]
with open(path, "wb") as file:
    write_items(file, msgspec.msgpack.encode([Item(f"{number}") for number in range(7)]))
config = Config(source="http://host.test", output="out", slice=path)
nowhere = SimpleNamespace(name_key=b"", journal=None, known_before_ns=0)
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


def test_feeder_of_a_slice_lives_without_gevent(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FEEDS, tmp_path / "items"],
        capture_output=True,
        cwd=ROOT,
        env=environment(),
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[], [7], [], 0]
