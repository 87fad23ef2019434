"""Count false verdicts: diagnose many healthy and serial programs on a busy machine.

    python tests/soak/verdicts.py [--runs 300] [--delay 100ms] [--busy 2] [--parallel 3]

Draws `--runs` diagnoses of healthy programs and as many of serial ones from our scenarios and from small
real programs (``drawn_programs``), beside busy loops. Every result that is not as it must be is kept whole
in `--out`. Exit code 0: no verdict was false, and every run had a result.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1])]

from drawn_programs import Program, scenarios, written
from harness import environment

PATIENCE = 240.0
FAULTS = ("false verdict", "no answer", "wrong cause", "wrong place")
BUSY = "while True: pass"


class Outcome(NamedTuple):
    """A diagnosis. ``fault``: as of ``Program.fault``."""

    number: int
    program: Program
    fault: str
    code: int
    seconds: float
    answer: dict[str, Any]
    stderr: str


def drawn(programs: list[Program], runs: int, seed: int) -> Iterator[Program]:
    """Draw ``runs`` healthy and as many serial ones, mixed: half scenarios, half others, each as often."""
    draw = random.Random(seed)
    every: list[Program] = []
    for healthy in (True, False):
        kinds: list[list[Program]] = [[], []]
        for each in programs:
            if each.healthy is healthy:
                kinds[each.name.startswith("scenario ")].append(each)
        for number, kind in enumerate(filter(None, kinds)):
            wanted = runs // 2 if number else runs - runs // 2
            if not all(kinds):
                wanted = runs
            for _ in range(-(-wanted // len(kind))):
                draw.shuffle(kind)
                every += kind[: min(len(kind), wanted)]
                wanted -= len(kind)
    draw.shuffle(every)
    yield from every


def diagnosed(number: int, program: Program, delay: str) -> Outcome:
    """Diagnose ``program`` as a user does."""
    began = time.monotonic()
    argv = [sys.executable, "-m", "diagnostics", "--json", "--delay", delay, *program.argv]
    environ = environment(PYTHONPATH=program.path) if program.path else environment()
    with tempfile.TemporaryDirectory(prefix="verdicts-") as temporary:
        process = subprocess.Popen(
            argv,
            cwd=program.folder,
            env={**environ, "TMPDIR": temporary},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            out, err = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.terminate()
            out, err = process.communicate()
    try:
        answer = json.loads(out)
    except ValueError:
        answer = {}
    code = process.returncode
    fault = program.fault(code, answer)
    return Outcome(number, program, fault, code, time.monotonic() - began, answer, err)


def keep(outcome: Outcome, out: Path) -> None:
    """Write the whole ``outcome`` into a file."""
    name = f"{outcome.number:04d}-{outcome.fault}-{outcome.program.name}".replace(" ", "-").replace(
        "/", "-"
    )
    told = {**outcome._asdict(), "program": outcome.program._asdict(), "load": os.getloadavg()}
    (out / f"{name}.json").write_text(json.dumps(told, indent=2))


def report(outcomes: list[Outcome], seconds: float) -> str:
    """Return the figures: a line for the healthy ones, one for the serial ones, one for each fault."""
    lines = []
    for healthy, kind in ((True, "healthy"), (False, "serial")):
        counts = Counter(each.fault for each in outcomes if each.program.healthy is healthy)
        told = ", ".join(f"{counts[fault]} {fault}" for fault in FAULTS)
        lines.append(f"{kind:8} {sum(counts.values()):4} runs: {told}")
    for (name, fault), count in sorted(
        Counter((each.program.name, each.fault) for each in outcomes if each.fault).items()
    ):
        runs = sum(each.program.name == name for each in outcomes)
        lines.append(f"  {fault}: {name}, {count} of {runs} runs")
    lines.append(f"{seconds:.0f} s, load {os.getloadavg()[0]:.1f} at the end")
    return "\n".join(lines) + "\n"


def exit_code(outcomes: list[Outcome]) -> int:
    """Return 1 if a verdict was false or a run had no answer."""
    return int(any(each.fault in ("false verdict", "no answer") for each in outcomes))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=300, help="of healthy programs, and of serial ones")
    parser.add_argument("--delay", default="100ms", help="what the server takes to answer")
    parser.add_argument("--busy", type=int, default=2, help="busy loops beside it")
    parser.add_argument("--parallel", type=int, default=3, help="diagnoses at one time")
    parser.add_argument("--only", default="", help="programs whose name has this in it")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("build/verdicts"))
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    shutil.rmtree(given.out, ignore_errors=True)
    given.out.mkdir(parents=True)
    began = time.monotonic()
    outcomes: list[Outcome] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="verdicts-")))
        programs = [each for each in [*scenarios(), *written(folder)] if given.only in each.name]
        for _ in range(given.busy):
            loop = subprocess.Popen([sys.executable, "-I", "-S", "-c", BUSY])
            stack.callback(loop.wait)
            stack.callback(loop.kill)
        pool = stack.enter_context(ThreadPoolExecutor(given.parallel))
        stack.callback(pool.shutdown, wait=False, cancel_futures=True)
        todo = [
            pool.submit(diagnosed, number, each, given.delay)
            for number, each in enumerate(drawn(programs, given.runs, given.seed), 1)
        ]
        for future in as_completed(todo):
            outcome = future.result()
            outcomes.append(outcome)
            if outcome.fault:
                keep(outcome, given.out)
            told = Counter(each.fault for each in outcomes if each.fault)
            sys.stderr.write(
                f"{len(outcomes)}/{len(todo)} {time.monotonic() - began:.0f} s {dict(told)}"
                f" {outcome.program.name} {outcome.seconds:.1f} s {outcome.fault}\n"
            )
    text = report(outcomes, time.monotonic() - began)
    (given.out / "report.txt").write_text(text)
    sys.stdout.write(text)
    return exit_code(outcomes)


if __name__ == "__main__":
    sys.exit(main())
