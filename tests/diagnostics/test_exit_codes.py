"""An error of the examination itself has an exit code of its own, never that of a verdict."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time

import pytest
from harness import environment

PATCHED = "from gevent import monkey; monkey.patch_all()\nimport requests\n"


def test_project_modules_named_like_ours(run, write):
    for name in ("downloader", "h11", "trustme", "click", "rich"):
        write(name, f"raise SystemError('{name} of the project')\n")
    write("app", PATCHED)
    assert run("--app", "app").code == 0
    assert run("--", sys.executable, "app.py").code == 0


@pytest.mark.parametrize("name", ["h11", "trustme"])
def test_check_in_a_project_with_such_a_module(write, tmp_path, name):
    write(name, "raise SystemError('of the project')\n")
    write("app", PATCHED)
    write("asks", "import diagnostics\nprint(diagnostics.check(app='app').verdict)\n")
    argv = [sys.executable, "asks.py"]
    done = subprocess.run(
        argv, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.stdout == "concurrent\n", done


def test_pythonpath_module_named_like_ours(run, write, tmp_path):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "click.py").write_text("raise SystemError('of the project')\n")
    answer = run("--style", "requests", env={"PYTHONPATH": str(folder)})
    assert answer.code == 4
    assert "elsewhere/click.py:1" in answer.line


def test_output_cannot_be_written(tmp_path):
    for options in (["--json"], []):
        argv = [sys.executable, "-m", "diagnostics", "--style", "requests", *options]
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                argv, cwd=tmp_path, env=environment(), stdout=full, stderr=subprocess.PIPE, check=False
            )
        assert done.returncode == 4
        assert done.stderr.count(b"\n") == 1, done.stderr


@pytest.mark.parametrize("options", [["--json"], []])
def test_output_pipe_is_closed(tmp_path, options):
    reading, writing = os.pipe()
    os.close(reading)
    argv = [sys.executable, "-m", "diagnostics", "--style", "requests", *options]
    done = subprocess.run(
        argv, cwd=tmp_path, env=environment(), stdout=writing, stderr=subprocess.PIPE, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_too_few_descriptors_for_the_examination(run):
    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))

    answer = run("--style", "requests", preexec_fn=few)
    assert answer.code == 4
    assert "Too many open files" in answer.line


def test_an_import_that_fails_points_to_the_applications_line(run, write):
    write("proj", "import os\n\nos.environ['THERE_IS_NO_SUCH']\n")
    answer = run("--app", "proj")
    assert answer.code == 4
    assert answer.line.endswith("(proj.py:3)")


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGKILL]
)
def test_signal_ends_started_processes(write, tmp_path, number):
    """Whatever ends the check: it leaves no process and no folder, also where it cannot do that itself."""
    left = tmp_path / "temporary"
    left.mkdir()
    env = {**environment(), "TMPDIR": str(left)}
    argv = [sys.executable, "-m", "diagnostics", "--after", "50s", "--", sys.executable, "app.py"]
    os.mkfifo(tmp_path / "begun")
    write(
        "app",
        """
        import os, subprocess
        from gevent import monkey; monkey.patch_all()
        import gevent

        with open("begun", "w") as begun:
            daemon = subprocess.Popen(["sleep", "1000"], start_new_session=True)
            begun.write("%d %d" % (os.getpid(), daemon.pid))
        gevent.sleep(1000)
    """,
    )
    with subprocess.Popen(argv, cwd=tmp_path, env=env, stderr=subprocess.DEVNULL) as process:
        started = (tmp_path / "begun").read_text().split()
        process.send_signal(number)
        assert process.wait(20) == (-number if number == signal.SIGKILL else 128 + number)
    give_up = time.monotonic() + (20 if number == signal.SIGKILL else 0)
    while (any(map(_runs, started)) or os.listdir(left)) and time.monotonic() < give_up:
        time.sleep(0.05)
    assert [pid for pid in started if _runs(pid)] == os.listdir(left) == []


def _runs(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_secrets_of_the_command_line_are_in_no_message(run, write, tmp_path):
    secret = ["--db-password", "hunter2", "--token=abcd1234", "postgres://u:pwpw@h/d"]
    command = [sys.executable, write("app", "print('no gevent')\n") + ".py", *secret]
    for more in ([], ["--github"], ["--junit", "j.xml", "--report", "r.html"]):
        answer = run(*more, "--", *command)
        assert answer.code == 4
        assert "--db-password *** --token=*** postgres://***@h/d: " in answer.err
        written = [path.read_text() for path in tmp_path.iterdir() if path.suffix in (".xml", ".html")]
        for text in (answer.out, answer.err, *written):
            assert not any(each in text for each in ("hunter2", "abcd1234", "pwpw"))
    assert len(written) == 2


def test_secrets_of_the_environment_are_in_no_error_of_the_program(run, write):
    write("app", "import os; raise SystemExit('bad tenant, key=' + os.environ['TENANT_API_KEY'])\n")
    answer = run("--", sys.executable, "app.py", env={"TENANT_API_KEY": "AKhunter2zz"})
    assert answer.code == 4
    assert "bad tenant" in answer.line
    assert "AKhunter2zz" not in answer.out + answer.err


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "all_proxy"])
def test_proxy_of_the_environment_that_is_left_out_is_told(run, variable):
    answer = run("--style", "requests", env={variable: "http://user:hunter2@localhost:9"})
    assert answer.code == 0
    assert f"{variable} was left out" in answer.out
    assert "hunter2" not in answer.out


LINES = r"cannot start: [\n  1,\n  2,\n]"


@pytest.mark.parametrize(
    "program",
    [
        f"raise RuntimeError('{LINES}')\n",
        f"import gevent\nraise RuntimeError('{LINES}')\n",
        f"import os, sys\nsys.stderr.write('{LINES}\\n')\nsys.stderr.flush()\nos._exit(3)\n",
    ],
    ids=["raises", "raises-with-gevent", "writes-and-ends"],
)
def test_command_that_fails_shows_its_error(run, write, program):
    write("app", program)
    answer = run("--", sys.executable, "app.py")
    assert answer.code == 4
    assert "cannot start: [ 1, 2, ]" in answer.line


@pytest.mark.skipif(sys.version_info < (3, 11), reason="needs exception groups")
def test_errors_of_a_group_are_shown(run, write):
    write(
        "app", "import gevent\nraise ExceptionGroup('cannot start', [OSError('no disk'), KeyError('A')])\n"
    )
    answer = run("--", sys.executable, "app.py")
    assert answer.code == 4
    assert "cannot start (2 sub-exceptions): OSError: no disk; KeyError: 'A' (app.py:2)" in answer.line


ENDS = {
    "message": "sys.exit('error: API_TOKEN is not set')",
    "code": "print('API_TOKEN is not set', file=sys.stderr); sys.exit(2)",
    "raised": "print('API_TOKEN is not set'); raise SystemExit(3)",
    "arguments": "import argparse; argparse.ArgumentParser().error('API_TOKEN is not set')",
}


@pytest.mark.parametrize("ends", ENDS.values(), ids=ENDS)
def test_command_that_exits_before_it_fetches(run, write, ends):
    write("app", f"{PATCHED}import sys\nsession = requests.Session()\n{ends}\n")
    answer = run("--", sys.executable, "app.py")
    assert answer.code == 4
    assert "before it made an HTTPS connection" in answer.line
    assert "API_TOKEN is not set" in answer.line


def test_command_that_exits_after_it_has_fetched(run, write):
    write(
        "app",
        f"{PATCHED}import sys\ntry:\n    requests.get('https://localhost:9/')\n"
        "except requests.ConnectionError:\n    sys.exit('error: 1 failed')\n",
    )
    answer = run("--json", "--", sys.executable, "app.py")
    assert (answer.code, answer.json["verdict"]) == (0, "concurrent")
    assert any("exit code 1" in each and "1 failed" in each for each in answer.json["notes"])


def test_command_that_ends_without_a_fetch(run, write):
    write("app", f"{PATCHED}session = requests.Session()\n")
    answer = run("--json", "--", sys.executable, "app.py")
    assert answer.code == 0
    assert any("has tried no HTTPS connection" in each for each in answer.json["notes"])


def test_client_that_gevent_does_not_make_concurrent_was_not_measured(run, write):
    write("pycurl", "")
    write("app", "from gevent import monkey; monkey.patch_all()\nimport gevent, pycurl; gevent.sleep(0)\n")
    answer = run("--json", "--", sys.executable, "app.py")
    assert (answer.code, answer.cause) == (4, ("foreign-client", "app.py:2")), answer
    said = run("--", sys.executable, "app.py").out
    assert "FAIL  HTTPS of the program was not measured: the client that is loaded, pycurl, is not" in said


def test_insecure_is_for_a_url(run):
    for target in (["--style", "requests"], ["--app", "app"], ["--", "true"]):
        answer = run("--insecure", *target)
        assert (answer.code, "--insecure is for --url" in answer.line) == (2, True), answer
