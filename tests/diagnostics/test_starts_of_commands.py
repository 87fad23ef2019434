"""Where something is imported before any line of the user's, the command itself is started patched.

Each remedy is carried out as it is printed, and measured without the diagnostics: see ``meeting``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from carried_out import carry_out
from harness import environment
from meeting import meeting, said
from program_parts import PATCH

from diagnostics.environments import Unavailable, prepare

__all__ = ["meeting", "said"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PACKAGES = ("gevent", "grequests", "pytest", "pytest-httpserver", "pytest-xdist", "requests-mock")
TEST = """\
import os

import gevent
import requests

URL, REQUESTS = os.environ.get("URL"), int(os.environ.get("REQUESTS", "0"))

def fetch():
    requests.get(URL, timeout=30)

def test_work():
    assert REQUESTS == 3
    gevent.joinall([gevent.spawn(fetch) for _ in range(REQUESTS)], raise_error=True)
"""
# It runs what it is given in the thread in which it was started, as a kernel of Jupyter does.
LAUNCHER = """\
import importlib
import os
import sys
import threading

here = threading.get_ident()
sys.path.insert(0, os.getcwd())
app = importlib.import_module("app")
if threading.get_ident() != here:
    sys.exit("this is another thread")
app.test_work()
"""
PLUGINS = ("-c", "/dev/null", "--rootdir=.", "-pno:cacheprovider")


@pytest.fixture(scope="session")
def python():
    """Return an interpreter that has ``PACKAGES``."""
    try:
        return prepare(sys.executable, PACKAGES, lambda text: None)
    except Unavailable as error:
        pytest.skip(str(error))


def first_of(answer, folder):
    """Carry out the first remedy; return the argv of the command."""
    assert answer.json["remedies"], answer
    remedy = answer.json["remedies"][0]
    assert remedy["code"] == "patch-at-start", remedy
    begin, *argv = carry_out(folder, remedy["line"], remedy["where"])
    assert begin == "command"
    return argv


@pytest.fixture
def no_worker(monkeypatch):
    """Leave out the variables of the worker that these tests run in."""
    for name in [each for each in os.environ if each.startswith("PYTEST_XDIST")]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize("way", ["module", "script"])
def test_plugin_of_pytest_that_imports_before_conftest(said, write, tmp_path, python, way):
    write("conftest", PATCH)
    write("test_work", TEST)
    start = [python, "-m", "pytest"] if way == "module" else [str(Path(python).with_name("pytest"))]
    answer = said([*start, "-q", "test_work.py"], 0, "--fix")
    code, where = answer.cause
    assert (code, where.partition("/")[0]) == ("patched-too-late", "requests_mock")
    argv = first_of(answer, tmp_path)
    assert argv[1:3] == ["-m", "gevent.monkey"]
    assert argv[3:5] == (["--module", "pytest"] if way == "module" else [*start, "-q"])
    said(argv, 3)


@pytest.mark.usefixtures("no_worker")
def test_plugin_in_the_workers_of_xdist(said, write, tmp_path, python):
    # grequests patches in the worker; threads must stay as they are, which the worker is served by.
    write("test_work", f"import grequests\n{TEST}")
    answer = said([python, "-m", "pytest", "-q", *PLUGINS, "-n", "1", "test_work.py"], 0, "--fix")
    assert answer.cause[0] == "patched-too-late"
    said(first_of(answer, tmp_path), 3)


@pytest.mark.usefixtures("no_worker")
def test_line_of_conftest_in_the_workers_of_xdist(said, meeting, write, tmp_path, python):
    write("conftest", "import pytest\n")
    write("test_work", TEST)
    # Without the plug-in that imports requests before conftest.py.
    options = (*PLUGINS, "-pno:requests_mock", "-pno:pytest_httpserver", "-n", "2")
    argv = [python, "-m", "pytest", "-q", *options, "test_work.py"]
    answer = said(argv, 1, "--fix")
    assert answer.cause[0] == "not-patched"
    remedy = answer.json["remedies"][0]
    assert (remedy["code"], remedy["where"]) == ("patch-all-first", "the first line of conftest.py")
    assert carry_out(tmp_path, remedy["line"], remedy["where"]) == []
    said(argv, 3)
    told = {"URL": meeting.url, "REQUESTS": "3", "REQUESTS_CA_BUNDLE": meeting.ca}
    done = subprocess.run(
        argv, cwd=tmp_path, env=environment(**told), capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done


def test_line_that_keeps_the_command_from_its_work(said, write, tmp_path):
    (tmp_path / "site-packages").mkdir()
    write("site-packages/launcher", LAUNCHER)
    write("app", TEST)
    argv = [sys.executable, "site-packages/launcher.py"]
    answer = said(argv, 1, "--fix")
    [remedy] = answer.json["remedies"]
    [tried] = answer.json["tried"]
    assert tried["line"].endswith("patch_all()")
    assert "this is another thread" in tried["why"]
    assert remedy["line"].endswith("patch_all(thread=False)")
    assert carry_out(tmp_path, remedy["line"], remedy["where"]) == []
    said(argv, 3)


def test_plugin_that_does_no_harm(said, write, python):
    write("gevent_early", PATCH)
    write("test_work", TEST)
    said([python, "-m", "pytest", "-q", *PLUGINS, "-p", "gevent_early", "test_work.py"], 3)
