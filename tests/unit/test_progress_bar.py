"""The progress bar on terminals of several widths."""

from __future__ import annotations

import io

import pytest

from downloader.engine.process_pool import Process, ProcessPool
from downloader.reporting.bar import make_bar


def drawn(width: int, monkeypatch: pytest.MonkeyPatch, **fields: object) -> list[str]:
    """Return the lines of the bar on a terminal that has ``width`` columns."""
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    bar, task = make_bar(io.StringIO())
    bar.update(task, completed=123_456, total=200_000, rate="0 files/s", speed="1.2 MiB/s", **fields)
    with bar.console.capture() as capture:
        bar.console.print(bar.get_renderable())
    bar.stop()
    return capture.get().splitlines()


@pytest.mark.parametrize("waiting", ["", "930 wait for 1 host", "16,384 wait for 1,200 hosts"])
@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_bar_is_one_line_and_long_enough(width: int, waiting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = drawn(width, monkeypatch, failed=12, waiting=waiting)
    assert len(line) <= width
    assert "…" not in line
    assert {"61%", "123456/200000"} <= set(line.split())
    assert "12 failed" in line
    assert waiting in line
    if len(waiting) < 20:
        assert len(line.split()[0]) >= 5  # of the bar, the part that is done
    if width == 200:
        assert "files/s 1.2 MiB/s" in line


def test_host_that_two_workers_wait_for_counts_once() -> None:
    pool = ProcessPool(None)  # type: ignore[arg-type]
    for number, hosts in enumerate([(11, 22), (22,), ()]):
        process = Process(number, 0, None, waiting=10 * len(hosts), hosts=hosts)  # type: ignore[arg-type]
        pool._all[number] = process
    assert pool.waiting() == (30, 2)
