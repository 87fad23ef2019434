"""A client that does not take what the probe's call has is measured as the program's calls are."""

from __future__ import annotations

import sys

import pytest
from meeting import meeting, said
from program_parts import PATCH

from diagnostics.origin import Origin

__all__ = ["meeting", "said"]

APP = f"""{PATCH}
import os

import gevent
import requests

URL, REQUESTS = os.environ["URL"], int(os.environ["REQUESTS"])

class Patient(requests.Session):
    def request(self, method, url, **kwargs):
        return super().request(method, url, timeout=30, **kwargs)

class Narrow(requests.Session):
    def request(self, method, url, data=None, headers=None):
        return super().request(method, url, data=data, headers=headers)

patient, narrow = Patient(), Narrow()
calls = {{"patient": patient.get, "narrow": lambda url: narrow.request("GET", url)}}
"""
MAIN = """
gevent.joinall([gevent.spawn(calls[%r], URL) for _ in range(REQUESTS)], raise_error=True)
"""
DELAYED = "/00000000-0/0.2/0"  # of the probe's server


@pytest.mark.parametrize("kind", ["patient", "narrow"])
def test_session_that_takes_no_timeout(said, tmp_path, kind):
    (tmp_path / "app.py").write_text(APP + MAIN % kind)
    said([sys.executable, "app.py"], 3)
    with Origin() as origin:
        url = origin.url.partition("/{run}")[0] + DELAYED
        said([sys.executable, "app.py"], None, "--url", url, "--cacert", origin.ca, verdict="concurrent")


def test_method_that_takes_no_url_alone(run, tmp_path):
    (tmp_path / "app.py").write_text(APP)
    env = {"URL": "https://localhost:9/", "REQUESTS": "3"}
    answer = run("--json", "--app", "app:patient.get", env=env)
    assert (answer.code, answer.json["verdict"]) == (0, "concurrent"), answer
    answer = run("--app", "app:narrow.get", env=env)
    assert (answer.code, answer.out) == (4, ""), answer
    assert "no call that the probe knows fits to the client: TypeError" in answer.line
    assert " (app.py:15). HTTPS was not measured" in answer.line


def test_method_that_is_not_entered_has_a_place(run, tmp_path):
    """The program gives it an argument that the probe does not know; it may be in no file."""
    text = PATCH + "\nimport gevent, requests\nclass Tenant(requests.Session):\n"
    text += "    def request(self, method, url, tenant, **kwargs):\n"
    text += "        return super().request(method, url, **kwargs)\n"
    text += "session = Tenant()\nurl = 'https://localhost:9/'\n"
    text += "gevent.joinall([gevent.spawn(session.get, url, tenant='a') for _ in range(3)])\n"
    (tmp_path / "app.py").write_text(text)
    number = text[: text.index("    def")].count("\n") + 1
    answer = run("--", sys.executable, "app.py")
    assert answer.code == 4, answer
    assert f"argument: 'tenant' (app.py:{number}). HTTPS was not measured" in answer.line
    answer = run("--", sys.executable, "-c", text)
    assert answer.code == 4, answer
    assert f"argument: 'tenant' (python -c, line {number}: def request(" in answer.err
