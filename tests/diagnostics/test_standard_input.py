"""A command is checked with the standard input that it has without the diagnostics."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

URLS = "".join(f"https://localhost:9/{number}\n" for number in range(10))  # nothing listens there
PROGRAM = """
from gevent import monkey; monkey.patch_all()
import sys
import threading
import gevent
import requests
from requests.adapters import HTTPAdapter

session, lock = requests.Session(), threading.Lock()

def fetch(url):
    with lock:
        session.get(url)

gevent.joinall([gevent.spawn(fetch, line.strip()) for line in sys.stdin])
"""
NARROW = PROGRAM.replace("with lock:", "if True:").replace(
    "def fetch", "session.mount('https://', HTTPAdapter(pool_maxsize=1, pool_block=True))\ndef fetch"
)
WAITS = "greenlets waited at app.py:12 "


@pytest.fixture
def urls(tmp_path):
    path = tmp_path / "urls"
    path.write_text(URLS)
    return path


def test_from_a_file(run, write, urls):
    write("app", PROGRAM)
    with open(urls) as stdin:
        answer = run("--", sys.executable, "app.py", stdin=stdin)
    assert (answer.code, WAITS in answer.line) == (4, True), answer


def test_from_a_pipe(run, write):
    write("app", PROGRAM)
    answer = run("--", sys.executable, "app.py", input=URLS)
    assert (answer.code, WAITS in answer.line) == (4, True), answer


def test_that_of_a_shell_and_of_what_is_started_again(run, write, urls):
    write("app", PROGRAM)
    write_script = urls.with_name("start.sh")
    write_script.write_text(f"env -i {sys.executable} app.py < urls\n")
    for argv in (["env", "-i", sys.executable, "app.py"], ["sh", "start.sh"]):
        answer = run("--", *argv, input=URLS)
        assert (answer.code, WAITS in answer.line) == (4, True), answer


def test_program_that_is_read_from_it(run, write, urls, tmp_path):
    program = tmp_path / "program"
    program.write_text("import requests\nfrom gevent import monkey; monkey.patch_all()\n")
    with open(program) as stdin:
        answer = run("--json", "--fix", "--", sys.executable, "-", stdin=stdin)
    assert answer.cause == ("patched-too-late", "standard input, line 1")
    assert [each["verdict"] for each in answer.json["remedies"]] == ["concurrent"]


@pytest.mark.parametrize(
    "line",
    [
        "cat program | env -i {python} -",
        "PYTHONPATH=lib {python} -u << E\n{program}E",
        "exec 0< program; rm program; env -i {python} -",
    ],
    ids=["pipe", "here-document", "file without a name"],
)
def test_program_that_a_script_pipes_cannot_be_read_again(run, tmp_path, line):
    program = "from gevent import monkey; monkey.patch_all()\nimport gevent; gevent.sleep(1)\n"
    (tmp_path / "program").write_text(program)
    script = tmp_path / "start.sh"
    script.write_text(line.format(python=sys.executable, program=program) + "\n")
    answer = run("--", "sh", "start.sh")
    assert answer.code == 4, answer
    assert (
        "it has read its program from a pipe or a here-document, which cannot be read again" in answer.line
    )
    assert "put that into a file" in answer.line


def test_note_tells_of_a_pipe_that_is_not_there_again(run, write, urls):
    write("app", PROGRAM)
    script = urls.with_name("start.sh")
    script.write_text(f"cat urls | env -i {sys.executable} app.py\n")
    answer = run("--json", "--", "sh", "start.sh")
    assert "it had no standard input: that was a pipe" in "".join(answer.json["notes"])
    script.write_text(f"env -i {sys.executable} app.py < /dev/null\n")
    answer = run("--json", "--", "sh", "start.sh")
    assert "it had no standard input" not in "".join(answer.json["notes"])


def test_pool_of_a_program_that_is_read_from_it(run):
    """Its text is not known, but the line is."""
    program = NARROW.replace(
        "line.strip()) for line in sys.stdin", '"https://localhost:9/") for _ in range(10)'
    )
    answer = run("--json", "--fix", "--", sys.executable, "-", input=program)
    assert answer.cause == ("pool-of-one", "standard input, line 11")
    assert [each["verdict"] for each in answer.json["remedies"]] == ["concurrent"]


def test_remedy_has_it_again(run, write):
    write("app", NARROW)
    answer = run("--json", "--fix", "--", sys.executable, "app.py", input=URLS)
    assert (answer.code, answer.cause[0]) == (1, "pool-of-one")
    assert [each["verdict"] for each in answer.json["remedies"]] == ["concurrent"]


def test_pipe_that_cannot_be_given_again(run, write):
    write("app", NARROW.replace("in sys.stdin", "in sys.stdin.read().splitlines()[:10]"))
    answer = run("--json", "--fix", "--", sys.executable, "app.py", input=URLS + "x" * (17 << 20))
    assert (answer.code, answer.cause[0]) == (1, "pool-of-one")
    assert "cannot be given to it once more" in answer.json["tried"][0]["why"]


def test_pipe_that_never_ends(run, write):
    write("app", PROGRAM.replace("sys.stdin", f"{URLS.split()[:5]}"))
    reading, writing = os.pipe()
    answer = run("--", sys.executable, "app.py", stdin=reading)
    assert (answer.code, WAITS in answer.line) == (4, True), answer
    os.close(reading)
    os.close(writing)


def test_terminal_is_not_passed_on(run, write):
    write("app", PROGRAM)
    main, terminal = os.openpty()
    os.write(main, b"typed\n")
    answer = run("--json", "--", sys.executable, "app.py", stdin=terminal)
    assert "a terminal is not passed on" in "".join(answer.json["notes"])
    assert os.read(terminal, 100) == b"typed\n"
    os.close(main)
    os.close(terminal)


def test_without_one(run, write):
    write("app", PROGRAM)
    answer = run("--json", "--", sys.executable, "app.py", preexec_fn=lambda: os.close(0))
    assert answer.json["verdict"] == "concurrent"
    assert "has tried no HTTPS connection" in "".join(answer.json["notes"])


def test_application_has_none(run, write):
    write(
        "app", "import sys\nassert sys.stdin.read() == ''\nfrom gevent import monkey; monkey.patch_all()\n"
    )
    assert run("--app", "app", stdin=subprocess.DEVNULL).code == 0
    assert run("--app", "app", input="read\n").code == 0
