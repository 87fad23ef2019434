"""Typical programs with what is installed: a zipapp, pytest, a gevent server.

The expected result is measured first, without the diagnostics: see ``meeting``.
"""

from __future__ import annotations

import sys
import zipapp

import pytest
from meeting import meeting, said
from program_parts import INJECT, PATCH
from watching import free_port

__all__ = ["meeting", "said"]

SLOW = pytest.mark.slow  # one of each kind runs every time
FETCH = """\
import os

import gevent
import requests

URL, REQUESTS = os.environ["URL"], int(os.environ["REQUESTS"])

def fetch():
    requests.get(URL, timeout=30)

def work():
    gevent.joinall([gevent.spawn(fetch) for _ in range(REQUESTS)], raise_error=True)
"""


@pytest.mark.parametrize("begins", [pytest.param(PATCH, marks=SLOW), INJECT], ids=["healthy", "serial"])
def test_zipapp(said, tmp_path, begins):
    source = tmp_path / "source"
    (source / "proj").mkdir(parents=True)
    (source / "__main__.py").write_text("import proj.set_up\nfrom proj.work import work\n\nwork()\n")
    (source / "proj" / "__init__.py").touch()
    (source / "proj" / "set_up.py").write_text(begins)
    (source / "proj" / "work.py").write_text(FETCH)
    zipapp.create_archive(source, tmp_path / "app.pyz")
    answer = said([sys.executable, "app.pyz"], 3 if begins == PATCH else 1)
    if begins == INJECT:
        assert answer.cause == ("pyopenssl-unpatched-select", "app.pyz/proj/set_up.py:4")


TEST = """\
from work import REQUESTS, work

def test_work():
    assert REQUESTS == 3
    work()
"""
PYTEST = (sys.executable, "-m", "pytest", "-q")


@pytest.mark.parametrize(
    ("begins", "file", "argv"),
    [
        pytest.param(PATCH, "conftest", (), marks=SLOW),
        pytest.param(INJECT, "conftest", (), marks=SLOW),
        (PATCH, "early", ("-p", "early")),
        pytest.param(INJECT, "early", ("-p", "early"), marks=SLOW),
    ],
    ids=["conftest-healthy", "conftest-serial", "plugin-healthy", "plugin-serial"],
)
def test_pytest_that_patches(said, write, begins, file, argv):
    write(file, begins)
    write("work", FETCH)
    write("test_work", TEST)
    answer = said([*PYTEST, *argv, "test_work.py"], 3 if begins == PATCH else 1)
    if begins == INJECT:
        assert answer.cause == ("pyopenssl-unpatched-select", f"{file}.py:4")


WSGI = """
import os
import requests
from gevent.pywsgi import WSGIServer

def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [requests.get(os.environ["URL"]).content]

WSGIServer(("127.0.0.1", int(os.environ["PORT"])), app).serve_forever()
"""


@pytest.mark.parametrize("begins", [pytest.param(PATCH, marks=SLOW), ""], ids=["healthy", "serial"])
def test_gevent_server(said, write, begins):
    write("app", begins + WSGI)
    answer = said([sys.executable, "app.py"], 3 if begins else 1, "--after", "1s", port=free_port())
    if not begins:
        assert answer.cause == ("not-patched", "app.py:3")


def test_program_failing_with_a_context_from_before_patching(said, write):
    # A client that is created while the program starts (boto3's) fails before there is a connection.
    made = "from urllib3.util.ssl_ import create_urllib3_context\n\ncreate_urllib3_context()\n"
    write("app", "import urllib3\n" + PATCH + made)
    answer = said([sys.executable, "app.py"], 0)
    assert answer.cause == ("patched-too-late", "app.py:1")
