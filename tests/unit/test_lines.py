"""The lines of a list that grows, at any byte, between one run and the next."""

from __future__ import annotations

import gzip
import os
import tempfile
import time
from contextlib import closing
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from downloader.errors import SourceError
from downloader.sources.lines import Lines, Part, Place

REFUSED = r"^l\.txt (has changed before line|is shorter than it was)"
LONG = {
    "longer": "e" * 70_000,
    "#nearly": "#" + "f" * 65_533,
    "longest": "g" * 65_536,
    "#many": "#h\r" * 30_000,
    "#crlf": "#" + "i" * 65_534 + "\r",
}
LINES = st.lists(st.sampled_from(["a", "bb", "ccc", "#d", "", " ", *LONG]), max_size=8)
# Bytes before or behind the end of a line, and before or behind the longest that there may be of it.
CUTS = st.lists(
    st.tuples(st.integers(0, 7), st.integers(-2, 3), st.sampled_from([0, 65_536, 69_000])), max_size=4
)


def places(lines: list[str], cuts: list[tuple[int, int, int]]) -> list[int]:
    """Return the places in a text of ``lines`` that ``cuts`` mean, in order."""
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    found = [starts[min(at, len(lines))] + more + far for at, more, far in cuts]
    return sorted(min(max(at, 0), max(starts[-1] - 1, 0)) for at in found)


def read_on(lines: Lines, cursor: Place, most: int) -> list[Part]:
    """Return the parts behind ``cursor``, as the source reads them: none behind a line without an end."""
    lines.advance(cursor)
    parts: list[Part] = []
    while (part := lines.read(most)).lines:
        parts.append(part)
        if part.end.unended is not None:
            break
    return parts


def meant(text: str) -> list[bytes]:
    """Return the lines of ``text`` that are to be fetched."""
    return [
        line[:60_000].encode() for line in text.split("\n") if line.strip() and not line.startswith("#")
    ]


def told(parts: list[Part]) -> list[bytes]:
    lines = [line.strip() for part in parts for _, line in part.lines]
    return [line[:60_000] for line in lines if line and not line.startswith(b"#")]


@settings(deadline=None, max_examples=300)
@given(LINES, CUTS, st.integers(1, 4), st.integers(0, 255))
def test_complete_lines_are_read_exactly_once(
    lines: list[str], cuts: list[tuple[int, int, int]], most: int, failed: int
) -> None:
    lines = [LONG.get(line, line) for line in lines]
    text = "\n".join(lines)
    parts: list[Part] = []
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "l.txt"
        for cut in [*places(lines, cuts), len(text)]:
            path.write_bytes(text[:cut].encode())
            cursor = parts[-1].end if parts else Place()
            grown = None
            with closing(Lines(str(path), "l.txt")) as source:
                for index, part in enumerate(parts):
                    if failed >> index & 1:
                        again = source.again(part.start, part.end)
                        assert again.start == part.start
                        if again.end == part.end:
                            assert again == part
                        elif part.end == cursor:
                            grown = again.end
                        parts[index] = again
                parts += read_on(source, grown or cursor, most)
            # Only the beginning of a line may have been read as a line as well.
            assert set(told(parts)) >= set(meant(text[:cut]))
            assert all(any(line.startswith(half) for line in meant(text)) for half in told(parts))
            assert all(
                text.split("\n")[number - 1].startswith(line.decode().rstrip("\n"))
                for part in parts
                for number, line in part.lines
            )
        with closing(Lines(str(path), "l.txt")) as source:
            assert told(read_on(source, Place(), most)) == meant(text)


@pytest.mark.parametrize("now", ["a\nbX", "a\nX", "X\nb", "a\nb", "a\n", ""])
def test_changed_last_line_is_detected(tmp_path: Path, now: str) -> None:
    path = tmp_path / "l.txt"
    path.write_text("a\nbb")
    with closing(Lines(str(path), "l.txt")) as lines:
        parts = read_on(lines, Place(), 10)
    assert [part.end.unended is not None for part in parts] == [False, True]
    path.write_text(now)
    with closing(Lines(str(path), "l.txt")) as lines, pytest.raises(SourceError, match=REFUSED):
        lines.advance(parts[-1].end)
    with closing(Lines(str(path), "l.txt")) as lines, pytest.raises(SourceError, match=REFUSED):
        lines.again(parts[-1].start, parts[-1].end)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize(
    ("now", "error"),
    [
        (0, "cut or written anew"),  # as `: > list` leaves it until the new list is there
        (0.5, "cut or written anew"),
        (0.9999, "cut or written anew"),  # in the last line
        ("other", "cut or written anew"),
        (1, ""),  # written anew, the same, or touched
        (1.5, ""),  # grown
    ],
)
def test_list_that_is_cut_while_it_is_read(
    tmp_path: Path, suffix: str, now: float | str, error: str
) -> None:
    """What is left of it is not taken for its end, nor half a line for a line."""
    path, whole = tmp_path / f"l.txt{suffix}", "".join(f"line {n:06}\n" for n in range(60_000))

    def pack(text: str) -> bytes:
        return gzip.compress(text.encode(), 1) if suffix else text.encode()

    path.write_bytes(pack(whole))
    with closing(Lines(str(path), "l.txt")) as lines:
        got = lines.read(10).lines
        if now == "other":
            text = whole.replace("line 00", "Line 00")
        elif now == 1.5:
            text = whole + whole
        else:
            text = whole[: int(len(whole) * float(now))]
        path.write_bytes(pack(text))
        os.utime(path, ns=(1, time.time_ns() + 10**9))  # clocks of file systems are coarse
        told = ""
        try:
            while part := lines.read(10_000).lines:
                got += part
        except SourceError as caught:
            told = str(caught)
    if suffix:  # where the decompressor finds it first, it says so
        assert bool(told) >= bool(error), told
    else:
        assert (error in told, bool(told)) == (True, bool(error)), told
    assert all(len(line) == 12 for _, line in got)
    if not told:
        assert b"".join(line for _, line in got) == text.encode()
