"""What the process of a slice tells, without a cluster."""

from __future__ import annotations

import subprocess
import sys

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
