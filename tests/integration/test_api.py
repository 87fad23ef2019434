"""Config and download() as a program calls them: other types, paths, closed streams."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import DevServer, environment

from downloader import Config, ConfigError

Serve = Callable[..., DevServer]


def program(text: str, *argv: object, shell: str = "", cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run ``text`` as a program of its own; ``shell``: redirections of its streams."""
    line = [sys.executable, "-c", textwrap.dedent(text), *map(str, argv)]
    if shell:
        line = ["sh", "-c", f'exec "$@" {shell}', "sh", *line]
    return subprocess.run(
        line, env=environment(), cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("store", "bogus", "not one of files, tar, parquet, null, local"),
        ("layout", "Flat", "'flat', 'hashed', 'mirror'"),
        ("progress", None, "got `null`"),
        ("source_type", "bogus", "not one of server, urls"),
        ("limit", 1.5, "got `float`"),
        ("limit", "5", "got `str`"),
        ("limit", True, "got `bool`"),
        ("limit", 2**63, "--limit must be"),
        ("rate", float("inf"), "and finite"),
        ("deadline", "10s", "got `str`"),
        ("drain_grace", -1, "--drain-grace must be"),
        ("auth", "user:s3cret", "got `str`"),
        ("auth", ("s3cret",), "length 2"),
        ("headers", {"X-A": "s3cret"}, "got `object`"),
        ("headers", [("X-A", b"s3cret")], "got `bytes`"),
        ("proxies", "http://me:s3cret@h:1", "got `str`"),
        ("source", 5, "got `int`"),
        ("source", b"s3cret", "got `bytes`"),
        ("output", None, "got `null`"),
        ("cacert", "a\0b", "NUL"),
        ("report", "a\0b", "NUL"),
        ("insecure", 1, "got `int`"),
        ("key_password", b"s3cret", "got `bytes`"),
    ],
)
def test_wrong_value_type_is_refused_with_the_option_name(field: str, value: object, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config(**{"source": "http://h", "output": "d", field: value})  # type: ignore[arg-type]
    text = str(caught.value)
    assert says in text
    assert field.replace("source_type", "source") in text.replace("-", "_")
    assert "s3cret" not in text


def test_lists_are_accepted_as_tuples() -> None:
    headers: Any = [["X-A", "b"]]
    auth: Any = ["u", "p"]
    config = Config(source="http://h", output="d", headers=headers, auth=auth, deadline=5)
    assert (config.headers, config.auth, config.deadline) == ((("X-A", "b"),), ("u", "p"), 5.0)


def test_a_copy_reads_no_file_again(tmp_path: Path) -> None:
    source, ca = tmp_path / "list.txt", tmp_path / "ca.pem"
    source.write_text("http://h/a\n")
    ca.write_text("-----BEGIN CERTIFICATE-----")
    config = Config(source=str(source), output="d", cacert=str(ca))
    source.unlink()
    ca.unlink()
    assert config.replace(connections=1).files == config.files
    assert Config.decode(config.encode()) == config
    with pytest.raises(ConfigError, match="cannot be read"):
        config.replace(cacert=f"{ca}2", source="http://h")


def test_paths_are_accepted_as_strings(dev_server: Serve, tmp_path: Path) -> None:
    server = dev_server(files=5, tls=True)
    (tmp_path / "list.txt").write_text("".join(f"{server.url}/get/file-{n:010d}\n" for n in range(5)))
    done = program(
        """
        import sys
        from pathlib import Path
        import downloader
        here = Path.cwd()
        config = downloader.Config(
            source=here / "list.txt", output=here / "d", cacert=Path(sys.argv[1]), report=here / "r.json",
            workers=1,
        )
        print(downloader.download(config).stored)
        """,
        server.ca,
        cwd=tmp_path,
    )
    assert (done.stdout, done.stderr) == ("5\n", "")
    assert json.loads((tmp_path / "r.json").read_text())["destination"] == str(tmp_path / "d")


@pytest.mark.parametrize("shell", ["2>&-", "0<&- 2>&-", "0<&- 1>&- 2>&-"])
def test_program_with_closed_streams(shell: str, dev_server: Serve, tmp_path: Path) -> None:
    server = dev_server(files=5)
    program(
        """
        import sys
        import downloader
        report = downloader.download(downloader.Config(source=sys.argv[1], output="d", workers=1))
        open("told", "w").write(str(report.exit_code))
        """,
        server.url,
        shell=shell,
        cwd=tmp_path,
    )
    assert (tmp_path / "told").read_text() == "0"
    assert len(list((tmp_path / "d").glob("file-*"))) == 5


def test_reports_to_descriptors_of_the_program(dev_server: Serve, tmp_path: Path) -> None:
    """Its run is a process of its own, with another standard output."""
    server = dev_server(files=5)
    done = program(
        """
        import os, sys
        import downloader
        file = open("told", "w")
        print("before", file=file, flush=True)
        config = downloader.Config(
            source=sys.argv[1], output="d", report="/dev/stdout", failures=f"/dev/fd/{file.fileno()}",
            manifest="m.jsonl", workers=1,
        )
        print("begun", flush=True)
        print("stored", downloader.download(config).stored)
        """,
        server.url,
        cwd=tmp_path,
    )
    assert (done.stderr, done.returncode) == ("", 0), done
    begun, _, rest = done.stdout.partition("\n")
    report, _, stored = rest.rpartition("stored ")
    assert (begun, json.loads(report)["listed"], stored) == ("begun", 5, "5\n")
    assert (tmp_path / "told").read_text() == "before\n"


def test_file_name_that_is_not_text(tmp_path: Path) -> None:
    done = program(
        r"""
        import downloader
        open(b"\xff.txt", "w").close()
        for output in ("d", "\udcfe"):
            try:
                print(downloader.download(downloader.Config(source="\udcff.txt", output=output)).exit_code)
            except downloader.ConfigError as error:
                print("ConfigError", error)
        """,
        cwd=tmp_path,
    )
    assert (done.stdout, done.stderr) == ("0\n0\n", "")
    assert sorted(os.listdir(os.fsencode(tmp_path))) == [b"d", b"\xfe", b"\xff.txt"]


@pytest.mark.parametrize("patch", ["", "from gevent import monkey; monkey.patch_all()"])
def test_program_that_ignores_sigchld(patch: str, dev_server: Serve, tmp_path: Path) -> None:
    """The kernel reaps its children; what it has set stays as it is."""
    server = dev_server(files=5)
    done = program(
        f"""
        {patch}
        import signal, sys
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        import downloader
        report = downloader.download(downloader.Config(source=sys.argv[1], output="d", workers=1))
        print(report.exit_code, {bool(patch)} or signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN)
        """,
        server.url,
        cwd=tmp_path,
    )
    assert done.stdout == "0 True\n", done.stderr


@pytest.mark.parametrize("executable", ["/bin/false", "", None])
def test_program_that_has_python_embedded(
    executable: str | None, dev_server: Serve, tmp_path: Path
) -> None:
    """``sys.executable`` is the server, as in uWSGI, or there is none."""
    server = dev_server(files=5)
    done = program(
        f"""
        import sys
        sys.executable = {executable!r}
        import downloader
        print(downloader.download(downloader.Config(source=sys.argv[1], output="d", store="tar")).stored)
        """,
        server.url,
        cwd=tmp_path,
    )
    assert done.stdout == "5\n", done.stderr


def test_program_without_an_interpreter_beside_it(tmp_path: Path) -> None:
    done = program(
        """
        import os, sys
        import downloader
        config = downloader.Config(source="http://127.0.0.1:1", output="d")
        sys.executable, sys.exec_prefix, sys.base_exec_prefix = "/bin/false", "/none", "/none"
        os.__file__ = "/none/lib/python3/os.py"
        try:
            downloader.download(config)
        except downloader.BootError as error:
            print(error)
        """,
        cwd=tmp_path,
    )
    assert "sys.executable, '/bin/false', is no Python" in done.stdout, done.stderr
    assert "name one before the call" in done.stdout


def test_program_without_free_descriptors(tmp_path: Path) -> None:
    done = program(
        """
        import resource
        import downloader
        config = downloader.Config(source="http://127.0.0.1:1", output="d")
        resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4))
        try:
            downloader.download(config)
        except downloader.BootError as error:
            print(error)
        """,
        cwd=tmp_path,
    )
    assert done.stdout == "cannot start a process: Too many open files\n", done.stderr
