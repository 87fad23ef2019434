"""What becomes of the program's own connections: kept ones open no other, others are held up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from meeting import meeting
from program_parts import PATCH

import diagnostics

__all__ = ["meeting"]

AGENT = Path(diagnostics.__file__).parent / "agent"

APP = f"""{PATCH}
import os
import threading

import gevent
import requests

URL = os.environ["URL"]
session, lock = requests.Session(), threading.Lock()
session.get(URL + "login")
"""
LOCKED = """
def get(number):
    with lock:
        session.get(URL + str(number))

gevent.joinall([gevent.spawn(get, number) for number in range(6)])
"""
LOGIN = """
tokens = []

def get(number):
    with lock:
        if not tokens:
            session.get(URL + "challenge")
            session.get(URL + "token")
            tokens.append("of a login")
    session.get(URL + str(number))

gevent.joinall([gevent.spawn(get, number) for number in range(6)])
"""
NARROW = """
session.mount("https://", requests.adapters.HTTPAdapter(pool_maxsize=1, pool_block=True))
session.get(URL + "login")
gevent.joinall([gevent.spawn(session.get, URL + str(number)) for number in range(6)])
"""
WORKER = """
import queue

asked = queue.Queue()

def work():
    for number, done in iter(asked.get, None):
        session.get(URL + str(number))
        done()

def get(number):
    answered = threading.Event()
    asked.put((number, answered.set))
    answered.wait()

gevent.spawn(work)
gevent.joinall([gevent.spawn(get, number) for number in range(10)])
"""


@pytest.fixture
def checked(run, write, meeting):
    """Diagnose a program that logs in before its greenlets start."""

    def ask(text):
        write("app", APP + text)
        env = {"URL": meeting.url, "REQUESTS_CA_BUNDLE": meeting.ca}
        return run("--json", "--", sys.executable, "app.py", env=env)

    return ask


def test_lock_around_requests_on_a_kept_connection(checked):
    answer = checked(LOCKED)
    assert answer.code == 4, answer
    assert "greenlets waited at app.py:14 while 1 used one" in answer.line


def test_login_of_two_requests_on_a_kept_connection(checked):
    assert checked(LOGIN).code == 0


def test_pool_of_one_with_a_kept_connection(checked):
    answer = checked(NARROW)
    assert (answer.code, answer.cause[0]) == (1, "pool-of-one"), answer


def test_worker_that_answers_by_a_callback_on_a_kept_connection(checked):
    """It is let on once, and each of its next requests has to be seen as well."""
    answer = checked(WORKER)
    assert answer.code == 4, answer
    assert "greenlets waited at app.py:25 while 1 used one" in answer.line


SPACED = """
import sys

sys.path.insert(0, sys.argv[1])  # where the agent is
import gevent
from https_agent.pause import Pause

gevent.get_hub()
pause, released, at_first = Pause(), [], []

def measure():
    gevent.sleep(1)

def connect(number):
    gevent.sleep(0.2 * number)
    pause.wait(60)
    if not released:
        gevent.spawn_later(0.05, lambda: at_first.extend(released))
    released.append(number)

greenlets = [gevent.spawn(connect, number) for number in range(1, 5)]
pause.during(measure, stops=True)
gevent.joinall(greenlets)
print(at_first, released)
"""


def test_requests_that_were_held_up_go_on_with_the_time_between_them_that_there_was():
    """A server that allows so many requests a second would refuse them all at once, and all that follow."""
    argv = [sys.executable, "-c", SPACED, AGENT]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("[1] [1, 2, 3, 4]\n", "")
