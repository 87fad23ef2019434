"""The key of the digests in names: damaged, cut, garbage, another one or gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event

import pytest
from harness import Job
from servers import Request, Server, Step, Until, ok

Run = Callable[..., "subprocess.CompletedProcess[str]"]
FILES = 20


def flip(key: Path) -> None:
    content = bytearray(key.read_bytes())
    content[3] ^= 1
    key.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "flipped": flip,
    "cut": lambda key: os.truncate(key, 16),
    "empty": lambda key: os.truncate(key, 0),
    "gone": Path.unlink,
    "garbage": lambda key: key.write_bytes(os.urandom(5000)),
    "zeros": lambda key: os.truncate(key, 10 << 30),
    "another": lambda key: key.write_bytes(os.urandom(32)),
}


def write_list(path: Path, server: Server, query: str, files: int = FILES) -> Path:
    path.write_text("".join(f"{server.url}/f/{n}.jpg{query.format(n)}\n" for n in range(files)))
    return path


def answer(request: Request) -> Sequence[Step]:
    return ok(request.target.encode())


def stored(dest: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in dest.glob("*.jpg")}


def test_advice_about_a_key_or_journal_that_is_not_ours_can_be_followed(
    run_downloader: Run, tmp_path: Path
) -> None:
    """To remove it and run the same command again would end the job, or forget what is stored."""
    with Server(default=answer) as server:
        for name in ("name-key", "journal.sqlite"):
            dest = tmp_path / name
            argv = (write_list(tmp_path / "l.txt", server, "?token=s3cr3t{}"), "-o", dest)
            assert run_downloader(*argv, "--limit", 5).returncode == 0
            own = dest / ".downloader" / name
            os.link(own, tmp_path / f"{name} of somebody")
            done = run_downloader(*argv)
            assert done.returncode == 4, done
            advice = "put your own back, from a copy or with chown; or remove it and add --restart"
            assert f"{own} has another name, too (a hard link); {advice}" in done.stderr
            own.unlink()
            assert run_downloader(*argv, "--restart").returncode == 0
            assert len(stored(dest)) >= FILES


@pytest.mark.parametrize(("how", "apart"), [*((how, False) for how in DAMAGES), ("flipped", True)])
def test_key_that_is_not_the_one_of_the_names(
    how: str, apart: bool, run_downloader: Run, tmp_path: Path
) -> None:
    """It is said in one line; nothing is stored under other names. With the key the job goes on."""
    dest = tmp_path / "d"
    home = tmp_path / "j" if apart else dest
    key = home / ".downloader/name-key"
    with Server(default=answer) as server:
        source = write_list(tmp_path / "l.txt", server, "?token=s3cr3t{}")
        argv = (source, "-o", dest, *(("--journal", home) * apart))
        assert run_downloader(*argv, "--limit", 15).returncode == 0
        right, before = key.read_bytes(), stored(dest)
        assert len(before) == 15
        DAMAGES[how](key)
        for command in (
            ("verify", dest, *(("--journal", home) * apart)),
            argv,
            (*argv, "--relist"),
            ("verify", dest, *(("--journal", home) * apart)),
        ):
            done = run_downloader(*command)
            assert (done.returncode, done.stdout, done.stderr.count("\n")) == (4, "", 1), done
            assert f"{key} is missing, damaged or another job's" in done.stderr
        assert (stored(dest), len(server.requests)) == (before, 15)
        key.unlink(missing_ok=True)
        key.write_bytes(right)
        assert run_downloader(*argv).returncode == 0
        assert run_downloader(*argv, "--relist").returncode == 0
        assert (len(stored(dest)), len(server.requests)) == (FILES, FILES)


@pytest.mark.parametrize("how", ["flipped", "gone", "garbage"])
def test_key_on_which_no_name_depends(how: str, run_downloader: Run, tmp_path: Path) -> None:
    """A new one is made, and is that of the job from then on."""
    dest = tmp_path / "d"
    key = dest / ".downloader/name-key"
    with Server(default=answer) as server:
        source = write_list(tmp_path / "l.txt", server, "")
        assert run_downloader(source, "-o", dest).returncode == 0
        DAMAGES[how](key)
        assert run_downloader("verify", dest).returncode == 0
        for _ in range(2):
            assert run_downloader(source, "-o", dest, "--relist").returncode == 0
        assert key.stat().st_size == 32
        assert (len(stored(dest)), len(server.requests)) == (FILES, FILES)
        with source.open("a") as lines:
            lines.write(f"{server.url}/f/more.jpg?token=s3cr3t\n")
        assert run_downloader(source, "-o", dest, "--relist").returncode == 0
        flip(key)
        done = run_downloader(source, "-o", dest, "--relist")
        assert (done.returncode, len(stored(dest))) == (4, FILES + 1), done


def test_restart_begins_anew_with_the_key_that_is_there(run_downloader: Run, tmp_path: Path) -> None:
    dest = tmp_path / "d"
    with Server(default=answer) as server:
        source = write_list(tmp_path / "l.txt", server, "?token=s3cr3t{}")
        assert run_downloader(source, "-o", dest).returncode == 0
        flip(dest / ".downloader/name-key")
        assert run_downloader(source, "-o", dest).returncode == 4
        assert run_downloader(source, "-o", dest, "--restart").returncode == 0
        assert run_downloader("verify", dest).returncode == 0
        assert len(stored(dest)) == 2 * FILES, "as the message says, those of before stay"


def test_key_that_is_lost_while_the_source_is_read_again(
    run_downloader: Run, start: Callable[..., Job], tmp_path: Path
) -> None:
    """Killed in --relist, the job has its names in another table, and no items yet."""
    dest, over = tmp_path / "d", Event()

    def answers(request: Request) -> Sequence[Step]:
        return [Until(over), *ok(b"new")] if "new" in request.target else answer(request)

    with Server(default=answers) as server:
        source = write_list(tmp_path / "l.txt", server, "?token=s3cr3t{}")
        argv = (source, "-o", dest)
        assert run_downloader(*argv).returncode == 0
        source.write_text(f"{server.url}/new.jpg\n" + source.read_text())
        job = start(*argv, "--relist")
        job.until(lambda: any("new" in request.target for request in list(server.requests)))
        job.kill(signal.SIGKILL)
        job.wait()
        over.set()
        key = dest / ".downloader/name-key"
        right = key.read_bytes()
        flip(key)
        for command in (("verify", dest), (*argv, "--relist"), argv):
            assert run_downloader(*command).returncode == 4
        key.write_bytes(right)
        done = run_downloader(*argv, "--json")
        assert (done.returncode, json.loads(done.stdout)["listed"]) == (0, FILES + 1)
        assert len(stored(dest)) == FILES + 1
