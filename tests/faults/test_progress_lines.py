"""The lines of the progress while a large body arrives, from a real run and a slow server."""

from __future__ import annotations

import re
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from child_processes import site
from harness import AFTER_IMPORT, command, environment
from servers import Pause, Server, Step, ok

SMALL, CHUNK, SIZE = 20, 64 << 10, 64 << 20
# A line every half second, not every ten.
OFTEN = (
    AFTER_IMPORT
    + """
    MODULE = "downloader.reporting.progress"

    def change(progress):
        progress._LINE_EVERY = 0.5
"""
)


class Trickle(list[Step]):
    """A body of ``SIZE`` bytes, which comes slowly until ``seen`` is set."""

    def __init__(self, seen: threading.Event, *, chunked: bool) -> None:
        super().__init__()
        self._seen = seen
        self._chunked = chunked

    def __iter__(self) -> Iterator[Step]:
        framing = b"Transfer-Encoding: chunked" if self._chunked else b"Content-Length: %d" % SIZE
        yield b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n\r\n"
        for _ in range(SIZE // CHUNK):
            yield (b"%x\r\n" % CHUNK if self._chunked else b"") + bytes(CHUNK) + b"\r\n" * self._chunked
            if not self._seen.is_set():
                yield Pause(0.05)
        if self._chunked:
            yield b"0\r\n\r\n"


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("lane", ["auto", pytest.param("requests", marks=pytest.mark.slow)])
def test_rate_and_time_left_while_a_large_body_arrives(lane: str, chunked: bool, tmp_path: Path) -> None:
    seen = threading.Event()
    routes = {"/large": Trickle(seen, chunked=chunked)}
    with Server(routes, default=ok(b"small")) as server:
        names = [*(f"f{n}" for n in range(SMALL)), "large"]
        (tmp_path / "list.txt").write_text("".join(f"{server.url}/{name}\n" for name in names))
        argv = command(tmp_path / "list.txt", "-o", tmp_path / "d", "--workers", 1, "--lane", lane)
        lines = []
        with (
            tempfile.TemporaryFile("w+") as out,
            subprocess.Popen(
                argv,
                env=environment(**site(tmp_path, OFTEN)),
                stdout=out,
                stderr=subprocess.PIPE,
                text=True,
            ) as run,
        ):
            assert run.stderr is not None
            for line in run.stderr:
                # All others are finished, and bytes come: this is what a user sees for hours.
                if line.startswith(f"downloader: {SMALL} of {SMALL + 1} files"):
                    lines.append(line)
                    if len([each for each in lines if " 0 B/s" not in each]) == 4:
                        seen.set()
            assert run.wait(30) == 0
    assert seen.is_set(), lines
    moving = [line for line in lines if " 0 B/s" not in line]
    assert all(re.search(r" [0-9.]+ (KiB|MiB)/s", line) for line in moving), lines
    assert not [line for line in lines if "100%" in line]
    if chunked:
        assert not [line for line in moving if "left" in line], lines
    else:
        assert all("left" in line for line in moving), lines
