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


# A host of plug-ins leaves only the standard finders; a tracer reads all modules itself.
STANDARD_ONLY = """\
import importlib.machinery as machinery
import sys
sys.meta_path[:] = [machinery.BuiltinImporter, machinery.FrozenImporter, machinery.PathFinder]
"""
TRACER = """\
import importlib.machinery as machinery
import sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        return machinery.PathFinder.find_spec(name, path, target)

sys.meta_path.insert(0, Finder())
"""


@pytest.mark.parametrize("finders", [STANDARD_ONLY, TRACER], ids=["standard-only", "tracer"])
def test_program_with_finders_of_its_own(said, write, finders):
    write("finders", finders)
    write("set_up", INJECT)
    write("work", FETCH)
    write("main", "import finders\nimport set_up\nfrom work import work\n\nwork()\n")
    answer = said([sys.executable, "main.py"], 1)
    assert answer.cause == ("pyopenssl-unpatched-select", "set_up.py:4")


GUARD = """\
import _frozen_importlib
find = _frozen_importlib._find_spec

def guarded(name, path, target=None):
    return find(name, path, target)

_frozen_importlib._find_spec = guarded
"""


def test_program_with_a_function_of_its_own_around_the_one_that_finds_modules(said, write):
    write("guard", GUARD)
    write("early", "import requests\n")
    write("work", FETCH)
    write("main", f"import guard\nimport early\n{PATCH}from work import work\n\nwork()\n")
    answer = said([sys.executable, "main.py"], 0)
    assert answer.cause == ("patched-too-late", "early.py:1")


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


LATER = """
import os
import gevent
import requests

SHARED = requests.Session()
OTHER = requests.Session()

def user():
    {first}.get(os.environ["URL"])
    {second}.get(os.environ["URL"])

gevent.joinall([gevent.spawn(user) for _ in range(10)], raise_error=True)
"""
UNKNOWN = "what the program fetches through another client that it has, {} (app.py), is not known"


@pytest.mark.parametrize(
    ("first", "second", "start", "end"),
    [
        ("requests.Session()", "OTHER", "10 greenlets were seen, each with a client of its own", "OTHER"),
        ("SHARED", "OTHER", "measured was the client that greenlets share", "OTHER"),
    ],
    ids=["own", "shared"],
)
def test_client_that_is_used_later_is_said_not_to_be_known(said, write, first, second, start, end):
    text = LATER.format(first=first, second=second)
    write("app", PATCH + (text if first == "SHARED" else text.replace("SHARED = requests.Session()", "")))
    (note,) = said([sys.executable, "app.py"], None, verdict="concurrent").json["notes"]
    assert note.startswith(start), note
    assert note.endswith(UNKNOWN.format(end)), note


def test_what_own_clients_are_followed_by_is_said_not_to_be_known(said, write):
    text = LATER.format(first="requests.Session()", second="requests.Session()")
    write("app", PATCH + text.replace("SHARED = requests.Session()\nOTHER = requests.Session()", ""))
    (note,) = said([sys.executable, "app.py"], None, verdict="concurrent").json["notes"]
    assert note.endswith("; what the program fetches later through another client is not known"), note


def test_program_with_one_client_alone_has_no_note(said, write):
    text = LATER.format(first="SHARED", second="SHARED").replace("OTHER = requests.Session()", "")
    write("app", PATCH + text)
    assert said([sys.executable, "app.py"], None, verdict="concurrent").json["notes"] == []
