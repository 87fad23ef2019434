"""What a command reads is there once more where it is started again."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest

from diagnostics.errors import ProbeError
from diagnostics.standard_input import StandardInput


def read(given: StandardInput, most: int = -1) -> bytes:
    """Return what a process reads: all, or the first ``most`` bytes."""
    with given.given() as stdin:
        argv = ["head", "-c", str(most)] if most >= 0 else ["cat"]
        return subprocess.run(argv, stdin=stdin, stdout=subprocess.PIPE, check=True).stdout


def written(descriptor: int, content: bytes) -> None:
    with open(descriptor, "wb") as pipe:
        pipe.write(content)


def test_file_is_read_again_from_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "urls"
    path.write_bytes(b"taken\nfirst\nsecond\n")
    with open(path, "rb", buffering=0) as file:
        file.read(6)
        given = StandardInput(file.fileno())
        assert [read(given, 3), read(given)] == [b"fir", b"first\nsecond\n"]


def test_pipe_is_kept_for_the_next_start() -> None:
    content = bytes(range(256)) * 4000
    reading, writing = os.pipe()
    writes = threading.Thread(target=written, args=(writing, content))
    writes.start()
    given = StandardInput(reading)
    assert read(given, 10) == content[:10]
    assert read(given) == content
    assert read(given) == content
    writes.join()
    os.close(reading)


def test_pipe_that_is_too_large_cannot_be_given_again() -> None:
    reading, writing = os.pipe()
    writes = threading.Thread(target=written, args=(writing, bytes(300_000)))
    writes.start()
    given = StandardInput(reading, kept=1 << 17)
    assert read(given) == bytes(300_000)
    with pytest.raises(ProbeError, match="cannot be given to it once more"):
        read(given)
    writes.join()
    os.close(reading)


def test_pipe_of_which_nobody_reads_or_writes() -> None:
    reading, writing = os.pipe()
    given = StandardInput(reading)
    for _ in range(2):
        with given.given() as stdin:
            subprocess.run(["true"], stdin=stdin, check=True)
    assert not [each for each in threading.enumerate() if each.name == "standard input"]
    os.close(reading)
    os.close(writing)


def test_terminal_is_left_to_the_user() -> None:
    main, terminal = os.openpty()
    os.write(main, b"typed\n")
    given = StandardInput(terminal)
    assert given.is_terminal
    assert read(given) == b""
    assert os.read(terminal, 100) == b"typed\n"
    os.close(main)
    os.close(terminal)
