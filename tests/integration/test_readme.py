"""The example of the README ends as it is shown there, but for the numbers."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

from harness import ROOT, serving

FILES = 300


def shape(line: str) -> str:
    """Return a line without its numbers, their units, and the reasons that depend on the machine."""
    if line.startswith("  pipeline ") or " workers, " in line:
        line = re.sub(r" \([^()]*\)", "", line)
    return re.sub(r"\d[\d,.]*(?: (?:[KMG]iB|bytes|ms|s)\b)?", "#", line)


def test_the_example(
    run_downloader: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    page = (ROOT / "README.md").read_text().partition("\n## An example\n")[2].partition("\n## ")[0]
    block = "".join(line[4:] for line in page.splitlines(keepends=True) if line.startswith("    "))
    commands = [part.partition("\n") for part in block.split("$ ")[1:]]
    assert [command.split()[0] for command, _, _ in commands] == ["downloader", "echo", *["downloader"] * 2]
    code = -1
    with serving(files=FILES) as server:
        host = server.url.partition("//")[2]
        names = [*map("file-{:010d}".format, range(FILES)), "moved"]
        (tmp_path / "urls.txt").write_text("".join(f"{server.url}/get/{name}\n" for name in names))
        for command, _, shown in commands:
            words = shlex.split(command, comments=True)
            if words[0] == "echo":
                assert code == int(shown)
                continue
            done = run_downloader(*words[1:], cwd=tmp_path)
            code, said = done.returncode, f"{done.stdout}{done.stderr}"
            said = said.replace(str(tmp_path), "/home/you").replace(host, "127.0.0.1:8080")
            assert list(map(shape, said.splitlines())) == list(map(shape, shown.splitlines()))
