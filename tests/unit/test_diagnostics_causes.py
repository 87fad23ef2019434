"""The cause from an observation alone."""

from __future__ import annotations

from typing import Any

from diagnostics.case import Case
from diagnostics.causes import explain
from diagnostics.model import Observation, Question, Target
from diagnostics.verdict import judge

ASK = Question(Target(app="app:fetch"), requests=10, delay=0.2)
PATCHED = dict.fromkeys(("socket", "ssl", "select", "time", "thread", "dns"), True)
FACTS: dict[str, Any] = {
    "cwd": "/proj",
    "path": [],
    "library": "/py/lib/python3.11",
    "executable": "/py/bin/python",
    "patched": PATCHED,
    "injected_copies": [],
    "gevent_openssl": [],
    "threadpool": 10,
}
SEEN: dict[str, Any] = {
    "imports": {},
    "patches": [],
    "injections": [],
    "contexts": [],
    "connections": [],
    "early": [],
    "replaced": [],
    "keepers": [],
}


def explained(result: dict[str, Any], **facts: Any) -> list[str]:
    """The codes of the causes of a probe with ``result``."""
    plain = {"rounds": [], "held": [], "parked": [], "looked": 9.0, "scheduler": True, "seconds": 9.0}
    found = Observation({**plain, "problem": None, "gap": 0.0, **result}, SEEN, {**FACTS, **facts}, {})
    return [cause.code for cause, _ in explain(Case(ASK, found, judge(ASK, found)))]


def held(path: str, line: int, seconds: float) -> dict[str, Any]:
    """What held the hub without computing."""
    return {"stack": [[path, line, "fetch"]], "seconds": seconds, "cpu": 0.0, "ready": 0.0}


def test_a_moment_in_which_the_hub_was_held_is_not_what_stops_all(tmp_path):
    app = tmp_path / "app.py"
    app.write_text("import requests\n\ndef fetch(url):\n    requests.get(url)\n")
    looking = ["/py/lib/python3.11/site-packages/gevent/_socketcommon.py", 247, "getaddrinfo"]
    parked = {"stack": [looking, [str(app), 4, "fetch"]], "seconds": 8.0, "during": 8.0, "most": 1}
    stuck = {"problem": "nothing more came within 9 s", "parked": [parked]}
    assert explained({**stuck, "held": [held(str(app), 4, 0.6)]}) == ["dns-pool"]
    # A real lock holds it for good.
    assert explained({**stuck, "held": [held(str(app), 4, 8.8)]}) == ["own-lock"]
