"""A context of pyOpenSSL serves one connection: urllib3 sets it up for each, as pyOpenSSL 26.2 forbids."""

from __future__ import annotations

import importlib.metadata
import sys

import pytest
from meeting import meeting

__all__ = ["meeting"]

USED = "Context has already been used to create a Connection"
APP = """
from gevent import monkey; monkey.patch_all(%s)
import os
import ssl

import gevent
import requests
from requests.adapters import HTTPAdapter
from urllib3.contrib.pyopenssl import PyOpenSSLContext

class OldTls(HTTPAdapter):
    def init_poolmanager(self, *args, **kwargs):
        context = PyOpenSSLContext(ssl.PROTOCOL_TLS_CLIENT)
        super().init_poolmanager(*args, ssl_context=context, **kwargs)

session = requests.Session()
session.mount("https://", OldTls())

def get(number):
    return session.get(os.environ["URL"] + str(number))

"""
TOGETHER = "gevent.joinall([gevent.spawn(get, number) for number in range(6)])\n"
MADE = "app.py:13"
VERSION = tuple(int(part) for part in importlib.metadata.version("pyOpenSSL").split(".")[:2])

pytestmark = pytest.mark.skipif(VERSION < (26, 2), reason="pyOpenSSL permits it")


@pytest.fixture
def checked(run, write, meeting):
    """Diagnose a program."""

    def ask(text, *options):
        write("app", text)
        env = {"URL": meeting.url, "REQUESTS_CA_BUNDLE": meeting.ca}
        return run("--json", *options, "--", sys.executable, "app.py", env=env)

    return ask


@pytest.mark.parametrize("before", ["", "get('login')\n"], ids=["at once", "after a login"])
def test_context_of_a_shared_session(checked, before):
    answer = checked(APP % "" + before + TOGETHER)
    assert (answer.code, answer.json["verdict"]) == (3, "error"), answer
    assert answer.cause == ("pyopenssl-context-used", MADE)
    assert USED in answer.json["error"]
    assert answer.json["causes"][0]["evidence"][0].startswith("9 of 10 requests failed")


def test_remedy_after_which_requests_fail_has_not_worked(checked):
    """Where select is not patched, one connection serves all; where it is, each has one of its own."""
    answer = checked(APP % "select=False" + TOGETHER, "--fix")
    assert (answer.code, answer.cause) == (1, ("pyopenssl-own-context", MADE)), answer
    assert answer.json["remedies"] == []
    assert [USED in each["why"] for each in answer.json["tried"]] == [True] * len(answer.json["tried"])
    assert answer.json["tried"]


def test_context_of_the_only_greenlet_is_no_verdict(checked):
    answer = checked(APP % "" + "for number in range(3):\n    get(number)\n")
    assert answer.code == 4, answer
    assert f"failing (ValueError: {USED}" in answer.line
    assert "only one greenlet was seen with it" in answer.line
