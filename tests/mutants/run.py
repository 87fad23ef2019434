"""Put known bugs back, one at a time, and check that the tests catch each.

    python tests/mutants/run.py [--only WORD] [--jobs N]

Each bug (``known``) is put into a copy of the tree in a temporary directory; its tests run there, and
must fail. Before that they must pass on an unchanged copy. Prints a table; exits with 1 when a bug was not
caught, when its place is not found exactly once, or when the tests fail without it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic

from known import KNOWN, Mutant
from syntax import NotOnce, Sources

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("downloader", "diagnostics")
TEXTS = ("LICENSE", "README.md", "CONTRIBUTING.md", "docs")
PARTS = (*PACKAGES, "benchmarks", "tests", "setup.cfg", "pyproject.toml", *TEXTS)
FOREIGN = ("PYTHON", "PYTEST", "COV")
FAILED = 1  # pytest: tests ran, and some failed
LONGEST = 240

# What the tests of a copy import, in their own process and in those that they start.
WHO = """
import subprocess, sys
sys.path.insert(0, "tests")
import harness
told = "import diagnostics, downloader; print(diagnostics.__file__, downloader.__file__)"
exec(told)
child = subprocess.run([sys.executable, "-c", told],
                       cwd="/", env=harness.environment(), capture_output=True, text=True, check=True)
print(child.stdout)
"""


def copy_of(tree: Path, directory: str) -> Path:
    """Copy what the tests need of ``tree`` under ``directory``, without compiled files; return the copy."""
    copy = Path(directory).resolve() / "tree"
    for part in PARTS:
        source = tree / part
        if source.is_dir():
            shutil.copytree(source, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, copy / part)
    return copy


def environment(copy: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.upper().startswith(FOREIGN)}
    return {**kept, "PYTHONPATH": str(copy)}


def check_import(copy: Path) -> None:
    """Check that the copy is imported, not what is installed."""
    command = [sys.executable, "-c", WHO]
    done = subprocess.run(
        command, cwd=copy, env=environment(copy), capture_output=True, text=True, check=False
    )
    found = done.stdout.split()
    if len(found) != 4 or not all(Path(path).is_relative_to(copy) for path in found):
        raise SystemExit(f"the copy is not what is imported: {done.stdout}{done.stderr}")


def pytest(copy: Path, tests: Sequence[str], seconds: int, longest: float) -> tuple[int | None, str]:
    """Return pytest's exit code (None: killed after ``longest`` seconds) and its last lines."""
    options = ["-q", "-x", "--no-header", "-p", "no:cacheprovider", "-o", f"timeout={seconds}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=copy,
        env=environment(copy),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=longest)
        return process.returncode, said
    except subprocess.TimeoutExpired:
        return None, "it hung"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def put_back(copy: Path, mutant: Mutant) -> str:
    """Change the copy; return what is wrong with the mutant, or ""."""
    try:
        changed = Sources(copy, PACKAGES).replaced(mutant.replacements)
    except NotOnce as error:
        return str(error)
    for path, text in changed.items():
        path.write_text(text)
    return ""


def attempt(mutant: Mutant) -> tuple[Mutant, str, float, str]:
    """Test a mutant; return it, "caught" or why not, the seconds it took, and the failed test or the
    output."""
    began = monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as directory:
        copy = copy_of(ROOT, directory)
        wrong = put_back(copy, mutant)
        if wrong:
            return mutant, wrong, monotonic() - began, ""
        status, said = pytest(copy, mutant.tests, mutant.seconds, LONGEST)
    took = monotonic() - began
    if status == FAILED:
        failed = [line.split()[1] for line in said.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        return mutant, "caught", took, (failed[0] if failed else mutant.tests[0])
    if status is None:
        return mutant, "caught", took, f"{mutant.tests[0]} (hung)"
    if status == 0 and " passed" not in said:
        return mutant, "skipped", took, said[-2000:]
    return mutant, "NOT CAUGHT", took, said[-2000:]


def baseline(mutants: Sequence[Mutant]) -> str:
    """Return what fails without any bug, or ""."""
    tests = list(dict.fromkeys(test for mutant in mutants for test in mutant.tests))
    with tempfile.TemporaryDirectory(prefix="mutant-") as directory:
        copy = copy_of(ROOT, directory)
        check_import(copy)
        status, said = pytest(copy, tests, 100, 600)
    summary = said.splitlines()[-1] if said else ""
    sys.stdout.write(f"without any: {summary.strip('= ')}\n")
    return "" if status == 0 else said[-4000:]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", metavar="WORD", help="those with WORD in their name")
    parser.add_argument("--jobs", type=int, default=2, help="at a time (default: 2)")
    parser.add_argument("--list", action="store_true", help="show what there is")
    given = parser.parse_args()
    mutants = [mutant for mutant in KNOWN if given.only in mutant.name]
    if given.list or not mutants:
        sys.stdout.writelines(f"{mutant.name}: {mutant.harm}\n" for mutant in KNOWN)
        return int(not mutants)
    began = monotonic()
    if wrong := baseline(mutants):
        sys.stdout.write(f"{wrong}\nthe tests fail without any bug: nothing is shown by this\n")
        return 1
    wide = max(len(mutant.name) for mutant in mutants)
    caught, skipped, unseen = 0, 0, []
    with ThreadPoolExecutor(given.jobs) as pool:
        for mutant, verdict, took, detail in pool.map(attempt, mutants):
            ok = verdict == "caught"
            caught += ok
            skipped += verdict == "skipped"
            by = detail.removeprefix("tests/") if ok else ""
            sys.stdout.write(f"{mutant.name:{wide}}  {verdict:10} {took:5.1f} s  {by}\n")
            sys.stdout.write(f"{'':{wide}}  {mutant.harm}\n")
            sys.stdout.flush()
            if not ok:
                unseen.append(f"{mutant.name}: {verdict}\n{detail}")
    sys.stdout.writelines(f"\n{text}\n" for text in unseen)
    apart = f", {skipped} cannot be tried on this machine" if skipped else ""
    sys.stdout.write(f"\n{caught} of {len(mutants)} caught{apart}, {monotonic() - began:.0f} s\n")
    return int(caught + skipped != len(mutants))


if __name__ == "__main__":
    sys.exit(main())
