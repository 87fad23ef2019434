"""A program whose import never returns: where it waits is said, soon."""

from __future__ import annotations

import sys
import time

import pytest
from program_parts import PATCH

SLOW = pytest.mark.slow
SLEEPS = """\
import time

def connect():
    while True:
        time.sleep(0.3)

connect()
"""
SERVES = """\
from gevent.pywsgi import WSGIServer

WSGIServer(("127.0.0.1", 0), lambda environ, start: []).serve_forever()
"""
# Goes on waiting in C, whatever signal comes.
LOCKS = """\
import ctypes

lock, mutex = ctypes.CDLL(None).pthread_mutex_lock, ctypes.create_string_buffer(64)
lock(mutex)
lock(mutex)
"""
CHILD = """\
import subprocess

subprocess.call(["sleep", "1000"])
"""


@pytest.mark.parametrize(
    ("begins", "inner", "line"),
    [
        (PATCH, SLEEPS, 5),
        pytest.param("", SLEEPS, 5, marks=SLOW),
        pytest.param(PATCH, SERVES, 3, marks=SLOW),
        pytest.param("", LOCKS, 5, marks=SLOW),
        pytest.param("", CHILD, 3, marks=SLOW),
    ],
    ids=["in-gevent", "asleep", "serves", "in-c", "for-a-child"],
)
def test_import_that_never_returns(run, write, begins, inner, line):
    write("inner", inner)
    answer = run("--after", "0.2s", "--app", write("proj", begins + "import inner\n"))
    assert answer.code == 4
    assert " did not end within " in answer.line
    assert f"its main greenlet waits at inner.py:{line}" in answer.line


@SLOW
def test_import_that_takes_long_is_waited_for(run, write):
    # It sleeps, computes, waits for a child that computes, and goes on each time.
    slow = f"""
        import subprocess, sys, time
        time.sleep(3)
        import wave
        until = time.process_time() + 2
        while time.process_time() < until:
            pass
        import later
        loop = "import time\\nwhile time.process_time() < 3: pass"
        subprocess.check_call([{sys.executable!r}, "-S", "-c", loop])
        from gevent import monkey; monkey.patch_all()
        import requests
    """
    write("later", "")
    answer = run("--after", "1s", "--app", write("proj", slow))
    assert answer.code == 0, answer


@SLOW
@pytest.mark.parametrize(
    ("begins", "inner", "says"),
    [
        ("", SLEEPS, "no process of it loads gevent"),
        ("import gevent\n", SLEEPS, "runs no hub and has patched nothing"),
        (PATCH, LOCKS, "does not react to a signal"),
    ],
    ids=["gevent-comes-later", "gevent-unused", "in-c"],
)
def test_command_whose_import_never_returns(run, write, begins, inner, says):
    write("inner", inner)
    write("app", begins + "import inner\nfrom gevent import monkey; monkey.patch_all()\n")
    answer = run("--after", "0.2s", "--", sys.executable, "app.py")
    assert answer.code == 4
    assert says in answer.line
    assert " is at inner.py:5" in answer.line


@SLOW
def test_sitecustomize_that_never_returns(run, write, tmp_path):
    folder = tmp_path / "path"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(SLEEPS)
    python = tmp_path / "python-with-path"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    answer = run("--after", "0.2s", "--app", write("proj", PATCH), "--python", python)
    assert answer.code == 4
    assert "its main greenlet waits at path/sitecustomize.py:5" in answer.line


GUNICORN = [sys.executable, "-m", "gunicorn", "-k", "gevent", "-b", "127.0.0.1:0"]
SILENT = """\
import socket

broker = socket.create_server(("127.0.0.1", 0))
socket.create_connection(broker.getsockname()).recv(1)
"""


@SLOW
@pytest.mark.parametrize(
    ("conf", "application", "says"),
    [
        ("preload_app = True\n", SILENT, "no worker yet: it is still importing wsgi; "),
        (f"{PATCH}preload_app = True\n", SILENT, "no worker yet: it is still importing wsgi; "),
        (
            f"def on_starting(server):\n    {SLEEPS.replace(chr(10), chr(10) + '    ')}",
            "",
            "no worker yet; ",
        ),
    ],
    ids=["preloads", "patched", "hook"],
)
def test_server_that_starts_no_worker(run, write, conf, application, says):
    write("conf", conf)
    write("wsgi", application)
    began = time.monotonic()
    answer = run("--after", "0.2s", "--", *GUNICORN, "-c", "conf.py", "wsgi:app")
    assert answer.code == 4
    assert f"it has started {says}" in answer.line
    assert f" is at {'wsgi.py:4' if application else 'conf.py:6'}" in answer.line
    assert time.monotonic() - began < 50


@SLOW
def test_server_that_imports_for_long_before_its_workers_is_waited_for(run, write):
    busy = "import time\nuntil = time.monotonic() + 24\nwhile time.monotonic() < until: sum(range(9999))\n"
    write("wsgi", f"{busy}\ndef app(environ, start): pass\n")
    answer = run("--after", "0.2s", "--", *GUNICORN, "--preload", "wsgi:app")
    assert answer.code == 0, answer


WAITS = """\
import time

def wait(event=None):
    while True:
        time.sleep(0.3)
"""
SUBSCRIBES = """\
from gevent import events, monkey
import waits

events.subscribers.append(waits.wait)
monkey.patch_all()
"""
STARTS = """\
import threading
import waits

threading.Thread(target=__import__, args=["settings"]).start()
waits.wait()
"""
LAZY = """\
import importlib

class Lazy:
    @property
    def __class__(self):
        return importlib.import_module("settings")

lazy = Lazy()
import settings
"""


@pytest.mark.parametrize("command", [False, True], ids=["app", "command"])
def test_patching_that_never_returns(run, write, command):
    write("settings", PATCH)
    write("proj", LAZY)
    target = ["--", sys.executable, "proj.py"] if command else ["--app", "proj"]
    answer = run("--after", "0.2s", *target)
    assert (answer.code, answer.out) == (4, ""), answer
    assert ": patch_all() at settings.py:1 has not returned and is at proj.py:6" in answer.line
    assert "nothing is measured before" in answer.line


@SLOW
def test_patching_in_a_thread_that_never_returns(run, write):
    write("waits", WAITS)
    write("settings", SUBSCRIBES)
    write("app", STARTS)
    answer = run("--after", "0.2s", "--", sys.executable, "app.py")
    assert answer.code == 4, answer
    assert "patch_all() at settings.py:5 has not returned and is at waits.py:5" in answer.line
