"""The count of false verdicts, for two programs; `make verdicts` is the full one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psutil
import pytest
from harness import ROOT, environment

sys.path.insert(0, str(Path(__file__).resolve().parent))

from drawn_programs import Program, scenarios, written
from verdicts import Outcome, drawn, exit_code, keep, report

SERIAL = Program("app locked", False, ".", ("--app", "proj"), "own-lock", "proj.py:9")
HEALTHY = Program("app", True, ".", ("--app", "proj"))


def answer(verdict: str, *cause: str) -> dict[str, object]:
    """Return a result with these fields."""
    causes = [{"code": cause[0], "where": cause[1]}] if cause else []
    return {"verdict": verdict, "causes": causes}


@pytest.mark.parametrize(
    ("program", "code", "told", "fault"),
    [
        (SERIAL, 1, answer("serialized", "own-lock", "proj.py:9"), ""),
        (SERIAL, 1, answer("serialized", "own-lock", "proj.py:8"), "wrong place"),
        (SERIAL, 1, answer("serialized", "blocking-call", "proj.py:9"), "wrong cause"),
        (SERIAL, 1, answer("serialized"), "wrong cause"),
        (SERIAL, 0, answer("concurrent"), "false verdict"),
        (SERIAL, 3, answer("error", "own-lock", "proj.py:9"), "false verdict"),
        (SERIAL, 4, {}, "no answer"),
        (SERIAL, -15, answer("serialized", "own-lock", "proj.py:9"), "no answer"),
        (HEALTHY, 0, answer("concurrent"), ""),
        (HEALTHY, 0, answer("concurrent", "small-pool", "proj.py:1"), "wrong cause"),
        (HEALTHY, 1, answer("serialized", "unexplained", ""), "false verdict"),
    ],
)
def test_faults_of_a_diagnosis(program: Program, code: int, told: dict[str, object], fault: str) -> None:
    assert program.fault(code, told) == fault


def test_each_kind_is_drawn_equally_often_and_every_program_is_drawn(tmp_path: Path) -> None:
    programs = [*scenarios(), *written(tmp_path)]
    every = list(drawn(programs, 300, 1))
    for healthy in (True, False):
        of_kind = [each for each in every if each.healthy is healthy]
        assert len(of_kind) == 300
        assert sum(each.name.startswith("scenario ") for each in of_kind) == 150
        counts = Counter(each.name for each in of_kind)
        assert set(counts) == {each.name for each in programs if each.healthy is healthy}
    assert len(list(drawn([HEALTHY, SERIAL], 5, 1))) == 10


def test_one_healthy_and_one_serial_program_on_a_busy_machine(tmp_path: Path) -> None:
    mark = f"verdicts-test-{tmp_path}"
    argv = [sys.executable, "tests/soak/verdicts.py", "--runs", "1", "--busy", "1", "--only", "script"]
    done = subprocess.run(
        [*argv, "--out", str(tmp_path / "out")],
        cwd=ROOT,
        env=environment(VERDICTS_TEST=mark),
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split(":")[0].split() == ["healthy", "1", "runs"]
    assert lines[1].split(":")[0].split() == ["serial", "1", "runs"]
    assert "2/2" in done.stderr
    assert (tmp_path / "out" / "report.txt").read_text() == done.stdout
    assert not [each for each in psutil.process_iter() if marked(each, mark)]


def test_faulty_diagnoses_are_kept_whole_and_counted(tmp_path: Path) -> None:
    told = answer("concurrent", "rate-limit", "proj.py:2")
    outcomes = [
        Outcome(1, HEALTHY, "", 0, 1.0, answer("concurrent"), ""),
        Outcome(2, HEALTHY, "wrong cause", 0, 1.0, told, "warned"),
    ]
    keep(outcomes[1], tmp_path)
    (kept,) = tmp_path.glob("0002-wrong-cause-app.json")
    assert json.loads(kept.read_text())["answer"] == told
    assert exit_code(outcomes) == 0
    outcomes.append(Outcome(3, SERIAL, "false verdict", 0, 1.0, answer("concurrent"), ""))
    assert exit_code(outcomes) == exit_code([outcomes[2]._replace(fault="no answer")]) == 1
    lines = report(outcomes, 3.0).splitlines()
    assert lines[0] == "healthy     2 runs: 0 false verdict, 0 no answer, 1 wrong cause, 0 wrong place"
    assert lines[1] == "serial      1 runs: 1 false verdict, 0 no answer, 0 wrong cause, 0 wrong place"
    assert lines[2:4] == ["  wrong cause: app, 1 of 2 runs", "  false verdict: app locked, 1 of 1 runs"]


def marked(process: psutil.Process, mark: str) -> bool:
    """Return whether a process started with ``mark`` in its environment still runs."""
    try:
        return process.environ().get("VERDICTS_TEST") == mark and process.status() != "zombie"
    except psutil.Error:
        return False
