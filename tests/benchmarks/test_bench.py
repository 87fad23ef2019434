"""The benchmark suite with small counts: real servers, real clients, real processes."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from harness import ROOT

from benchmarks import tables
from benchmarks.ballast import LEVEL, PIECE, Ballast
from benchmarks.cells import CELLS, Cell
from benchmarks.clients import CLIENTS, Client, Job, missing
from benchmarks.markdown import figure
from benchmarks.origin import nginx_installed
from benchmarks.refusing import refusing
from benchmarks.results import Results
from benchmarks.rounds import pending, run_cell

FILES = 200
THREADS = "requests in threads"
SMALL = Cell("small", "test", "a small cell", ("downloader", THREADS), files=FILES, rounds=2)


def measure(
    cell: Cell, results: Results, clients: Mapping[str, Client] = CLIENTS, which: str = "dev"
) -> list[str]:
    """Run ``cell``; return its output."""
    said: list[str] = []
    run_cell(cell, results, said.append, which=which, clients=clients)
    return said


def shell(name: str, script: str, inner: Client | None = None) -> dict[str, Client]:
    """Return a client that is a shell script: ``$INNER`` in it is another's command line, ``$DEST`` its
    destination."""

    def argv(job: Job) -> list[str]:
        line = shlex.join(inner.argv(job)) if inner else ""
        return ["sh", "-c", script.replace("$INNER", line).replace("$DEST", str(job.destination))]

    return {name: Client(name, argv)}


def test_tables_are_made_from_results(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.json")
    measure(SMALL, results)
    table = tables.cell_table(Results(tmp_path / "results.json"), SMALL)
    rows = {line.split("|")[1].strip(): line for line in table.splitlines()}
    for name in SMALL.clients:
        runs = results.of("small", name)
        assert [run.round for run in runs] == [0, 1]
        assert all(run.seconds for run in runs)
        assert f"{2 * FILES} right" in rows[f"`{name}`"]
        rates = sorted(FILES / run.seconds for run in runs if run.seconds)
        assert f"{figure(rates[0])}–{figure(rates[1])}" in rows[f"`{name}`"]
    # One that takes less than a tick of the kernel's may have used none, and one may end unseen.
    every = [run for name in SMALL.clients for run in results.of("small", name)]
    assert any(run.cpu_seconds for run in every)
    assert any(run.memory_mb for run in every)
    kept = json.loads((tmp_path / "results.json").read_text())
    assert {"processor", "cores", "versions", "date"} <= set(kept["measured_on"])


def test_rounds_alternate_and_a_resumed_run_skips_finished_runs(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    cell = replace(SMALL, clients=(THREADS, "curl --parallel"), where="null")
    if missing(CLIENTS["curl --parallel"]):
        pytest.skip("curl is not installed")
    said = measure(cell, Results(path))
    begun = [line.strip() for line in said if line.startswith("  round")]
    order = [("1", THREADS), ("1", "curl --parallel"), ("2", "curl --parallel"), ("2", THREADS)]
    assert begun == [f"round {number}, {client} …" for number, client in order]
    assert measure(cell, Results(path)) == []

    kept = json.loads(path.read_text())
    lost = kept["runs"].pop(2)
    path.write_text(json.dumps(kept))
    again = [line for line in measure(cell, Results(path)) if line.startswith("  round")]
    assert again == [f"  round {lost['round'] + 1}, {lost['client']} …"]
    assert pending(cell, Results(path), quick=False) == []
    assert len(pending(cell, Results(path, fresh=True), quick=False)) == 4


def test_a_wrong_byte_is_noticed() -> None:
    flips = "$INNER && printf X | dd of=$DEST/file-0000000007 bs=1 seek=50 conv=notrunc 2>/dev/null"
    cell = replace(SMALL, clients=("flips",), rounds=1)
    results = Results(None)
    measure(cell, results, shell("flips", flips, CLIENTS[THREADS]))
    assert results.of("small", "flips")[0].wrong == 1
    row = tables.cell_table(results, cell).splitlines()[-1]
    assert f"1 of {FILES} wrong" in row
    assert row.split("|")[2].strip() == "—"  # no figure for a run that is not right


@pytest.mark.parametrize("harm", ["rm $DEST/file-0000000007", "printf X >> $DEST/file-0000000007"])
def test_a_file_that_is_missing_or_too_long_is_noticed(harm: str) -> None:
    results = Results(None)
    cell = replace(SMALL, clients=("harms",), rounds=1)
    measure(cell, results, shell("harms", f"$INNER && {harm}", CLIENTS[THREADS]))
    assert results.of("small", "harms")[0].wrong == 1


def test_a_client_that_hangs_is_killed_with_its_children_and_counted() -> None:
    seconds = f"{100_000 + os.getpid()}"
    results = Results(None)
    cell = replace(SMALL, clients=("hangs",), rounds=1, patience=0.3)
    said = measure(cell, results, shell("hangs", f"sleep {seconds} & wait"))
    (run,) = results.of("small", "hangs")
    assert (run.seconds, run.hung) == (None, 3)
    assert sum("hung: killed" in line for line in said) == 3
    assert not [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", seconds]]
    assert "3 hung" in tables.cell_table(results, cell)


def test_a_run_that_hung_once_is_repeated(tmp_path: Path) -> None:
    once = f"test -e {tmp_path}/flag || {{ touch {tmp_path}/flag; sleep 1000; }}; $INNER"
    results = Results(None)
    cell = replace(SMALL, clients=("once",), rounds=1, patience=3)
    measure(cell, results, shell("once", once, CLIENTS[THREADS]))
    (run,) = results.of("small", "once")
    assert (run.hung, run.wrong, run.failure) == (1, 0, "")
    assert run.seconds is not None
    assert f"{FILES} right, 1 hung" in tables.cell_table(results, cell)


def test_a_client_that_fails_gives_no_figure() -> None:
    results = Results(None)
    cell = replace(SMALL, clients=("fails",), rounds=1)
    measure(cell, results, shell("fails", "echo no such thing >&2; exit 7"))
    (run,) = results.of("small", "fails")
    assert (run.wrong, run.failure) == (FILES, "exit code 7: no such thing")


def test_option_unknown_to_ours_is_skipped_with_a_message() -> None:
    results = Results(None)
    ours = CLIENTS["downloader"]
    refusing = {"refusing": Client("refusing", lambda job: [*ours.argv(job), "--no-such-option"])}
    said = measure(replace(SMALL, clients=("refusing",)), results, refusing)
    assert len([line for line in said if "skipped" in line and "--no-such-option" in line]) == 1
    assert results.of("small", "refusing") == []


@pytest.mark.skipif(not nginx_installed(), reason="nginx is not installed")
def test_nginx_serves_listing_and_files_over_tls() -> None:
    cell = replace(SMALL, clients=("downloader", "curl --parallel"), files=1_500, rounds=1, tls=True)
    results = Results(None)
    measure(cell, results, which="nginx")
    for name in results.clients("small", cell.clients):
        (run,) = results.of("small", name)
        assert (run.files, run.wrong, run.failure) == (1_500, 0, "")


def test_table_is_inserted_between_the_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("above\n<!-- benchmarks: begin -->\nold\n<!-- benchmarks: end -->\nbelow\n")
    tables.insert(page, "new")
    tables.insert(page, "newer")
    assert page.read_text() == "above\n<!-- benchmarks: begin -->\nnewer\n<!-- benchmarks: end -->\nbelow\n"
    page.write_text("no marks")
    with pytest.raises(ValueError, match="no line"):
        tables.insert(page, "new")


def test_every_cell_names_existing_clients() -> None:
    assert len({cell.name for cell in CELLS}) == len(CELLS)
    assert {name for cell in CELLS for name in cell.clients} == set(CLIENTS)


def test_the_command_line_writes_tables_and_chart(tmp_path: Path) -> None:
    pytest.importorskip("pygal", reason="the bench extra is not installed")
    main = next(cell for cell in CELLS if cell.name == "http-100B")
    cell = replace(main, group="test", clients=("downloader",), files=FILES, rounds=1)
    measure(cell, Results(tmp_path / "results.json"))
    command = [sys.executable, "-m", "benchmarks", "--tables-only", "--out", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60)
    assert "`downloader`" in (tmp_path / "results.md").read_text()
    chart = (tmp_path / "speed.svg").read_text()
    assert "downloader" in chart
    assert "<script" not in chart


def test_memory_is_held_and_released_as_others_need_it() -> None:
    spare = 12 * PIECE
    taken = 0
    ballast = Ballast(needed=True, free=lambda: LEVEL + spare - taken - ballast.size)
    with ballast.keeping():
        while ballast.size != spare:
            os.sched_yield()
        taken = 5 * PIECE
        while ballast.size != spare - taken:
            os.sched_yield()
        ballast.settle()
    assert ballast.size == 0


def test_files_that_always_fail_beside_others() -> None:
    once, twice = refusing(quick=True)
    assert once["figure"].endswith("135 stored in 200 requests")
    assert twice["figure"].endswith("135 stored in 265 requests")
