"""``python -m diagnostics scenarios``: table, JSON and exit codes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., Any]

CONCURRENT = '''"""As it should be."""

from gevent import monkey

monkey.patch_all()

PACKAGES = ["gevent", "requests"]
EXPECT = {}
'''


def put(folder: Path, name: str, expect: dict[str, str], packages: str = '["gevent", "requests"]') -> None:
    text = CONCURRENT.replace("EXPECT = {}", f"EXPECT = {expect!r}")
    (folder / f"{name}.py").write_text(text.replace('["gevent", "requests"]', packages))


def test_a_difference_is_exit_1_and_shown(tmp_path: Path, run: Run) -> None:
    put(tmp_path, "right", {"verdict": "concurrent"})
    put(tmp_path, "wrong", {"verdict": "serialized", "cause": "own-lock"})
    done = run("scenarios", "--folder", tmp_path)
    assert done.code == 1, done
    assert "DIFFERS" in done.out
    assert "1 as expected, 1 differs" in done.out
    # Progress while it runs, one line per scenario.
    assert "1/2 right: as expected" in done.err
    assert "2/2 wrong: differs (concurrent)" in done.err


def test_offline_skips_uninstalled_packages_with_a_message(tmp_path: Path, run: Run) -> None:
    put(tmp_path, "old", {"verdict": "concurrent"}, '["gevent==1.4.0"]')
    done = run("scenarios", "--folder", tmp_path, "--offline", "--json")
    assert done.code == 0, done
    (row,) = done.json["scenarios"]
    assert (row["outcome"], row["reason"]) == ("skipped", "offline; needs gevent==1.4.0")
    assert row["measured"] is None
    assert "1/1 old: skipped (offline; needs gevent==1.4.0)" in done.err


def test_an_application_that_cannot_be_probed_is_exit_4(tmp_path: Path, run: Run) -> None:
    put(tmp_path, "broken", {"verdict": "concurrent"})
    with open(tmp_path / "broken.py", "a") as file:
        file.write("raise ValueError('at import')\n")
    done = run("scenarios", "--folder", tmp_path)
    assert done.code == 4, done
    assert "at import" in done.out


def test_bad_arguments_are_one_line_and_exit_2(tmp_path: Path, run: Run) -> None:
    for arguments in (["--only", "nonsense"], ["--python", "no-such-python"], ["--folder", tmp_path]):
        done = run("scenarios", *arguments)
        assert done.code == 2, done
        assert done.line


def test_list_names_them_and_runs_nothing(run: Run) -> None:
    done = run("scenarios", "--list")
    assert done.code == 0
    assert "grequests_injected" in done.out
    assert not done.err
