"""List the programs that `verdicts.py` diagnoses: our scenarios, and small real programs."""

from __future__ import annotations

import os
import sys
import textwrap
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from program_parts import FETCH, INJECT, PATCH

from diagnostics.environments import satisfies, version_of
from diagnostics.scenario import Scenario, chosen

# There the server is a process of its own, and the delay is the server's.
SKIPPED = {"serial_server", "impatient_server", "rate_limited/demanded"}

SESSION = """\
import requests
from requests.adapters import HTTPAdapter

session = requests.Session()
"""
POOL_OF_ONE = (
    SESSION + "session.mount('https://', HTTPAdapter(pool_maxsize=1, pool_block=True))  # <- where\n"
)
POOL = SESSION + "session.mount('https://', HTTPAdapter(pool_maxsize=20))\n"
SESSION_OF_ONE_GREENLET = """\
import gevent

def work():
    try:
        session.get("https://localhost:9/", timeout=5)
    except requests.RequestException:
        pass

gevent.spawn(work).join()
"""
SESSION_OF_TEN_GREENLETS = SESSION_OF_ONE_GREENLET.replace(
    "gevent.spawn(work).join()", "gevent.joinall([gevent.spawn(work) for _ in range(10)])"
)
WSGI = """\
def app(environ, start):
    start("200 OK", [])
    return [b""]
"""
SESSION_FETCH = """\
def fetch(url):
    session.get(url).raise_for_status()
"""
LOCKED_FETCH = """\
import threading

lock = threading.Lock()

def fetch(url):
    with lock:  # <- where
        session.get(url).raise_for_status()
"""
HASHING_FETCH = """\
import hashlib

def hashed(answer, **more):
    hashlib.pbkdf2_hmac("sha256", answer.content, b"salt", 200_000)  # <- where

def fetch(url):
    session.get(url, hooks={"response": hashed}).raise_for_status()
"""
PARSING_FETCH = """\
import json

def fetch(url):
    answer = session.get(url)
    answer.raise_for_status()
    json.loads(json.dumps({"text": answer.text, "headers": dict(answer.headers)}))
"""
CHILD = """\
import multiprocessing

def child():
    {body}

if __name__ == "__main__":
    process = multiprocessing.get_context({method!r}).Process(target=child)
    process.start()
    process.join()
"""
CHILD_BODY = """\
import gevent
gevent.spawn(fetch).join()
"""


class Program(NamedTuple):
    """A program to diagnose. ``argv``: the arguments of `python -m diagnostics check` behind its options;
    ``folder``: its current directory. ``cause``, ``where``: "" where there is none, or the place is not
    checked."""

    name: str
    healthy: bool
    folder: str
    argv: tuple[str, ...]
    cause: str = ""
    where: str = ""
    path: str = ""

    def fault(self, code: int, answer: dict[str, Any]) -> str:
        """Return what is wrong with ``answer``: ``no answer``, ``false verdict``, ``wrong cause``, ``wrong
        place``; "" when nothing is."""
        if code not in (0, 1, 3) or not answer:
            return "no answer"
        if answer["verdict"] != ("concurrent" if self.healthy else "serialized"):
            return "false verdict"
        causes = answer["causes"]
        if (causes[0]["code"] if causes else "") != self.cause:
            return "wrong cause"
        if self.where and not fnmatchcase(causes[0]["where"], self.where):
            return "wrong place"
        return ""


def scenarios() -> list[Program]:
    """Return those that this interpreter can run without installing anything, and that are concurrent or
    serial."""
    return [
        Program(
            name=f"scenario {each.name}",
            healthy=each.expected.verdict == "concurrent",
            folder=each.folder,
            argv=_argv(each),
            cause=each.expected.cause,
            where=each.expected.where,
            path=os.path.join(each.folder, each.path) if each.path else "",
        )
        for each in chosen()
        if each.expected.verdict in ("concurrent", "serialized")
        and each.name not in SKIPPED
        and each.runs_on(version_of(sys.executable))
        and satisfies(sys.executable, each.packages)
    ]


def _argv(scenario: Scenario) -> tuple[str, ...]:
    if not scenario.command:
        return ("--app", scenario.app)
    program, *rest = scenario.command
    return ("--", sys.executable if program == "python" else program, *rest)


def written(folder: Path) -> list[Program]:
    """Write the small programs into ``folder``, each into one of its own; return them."""

    def put(name: str, files: dict[str, str], argv: tuple[str, ...], cause: str = "") -> Program:
        own = folder / name.replace(" ", "-")
        own.mkdir(parents=True)
        where = ""
        for file, text in files.items():
            (own / file).write_text(text)
            marked = [number for number, line in enumerate(text.splitlines(), 1) if "# <- where" in line]
            where = f"{file}:{marked[0]}" if marked else where
        return Program(name, not cause, str(own), argv, cause, where)

    script = ("--", sys.executable, "app.py")
    gunicorn = ("--", sys.executable, "-m", "gunicorn", "-k", "gevent", "-b", "127.0.0.1:0")
    single = "pool-of-one"
    classic = "pyopenssl-unpatched-select"
    found = [
        put("gunicorn", {"wsgi.py": "import requests\n" + WSGI}, (*gunicorn, "-w", "2", "wsgi:app")),
        put("gunicorn preload", {"wsgi.py": PATCH + POOL + WSGI}, (*gunicorn, "--preload", "wsgi:app")),
        put(
            "gunicorn fetching", {"wsgi.py": POOL + SESSION_OF_ONE_GREENLET + WSGI}, (*gunicorn, "wsgi:app")
        ),
        put(
            "gunicorn pool of one",
            {"wsgi.py": POOL_OF_ONE + SESSION_OF_TEN_GREENLETS + WSGI},
            (*gunicorn, "wsgi:app"),
            single,
        ),
        put("script", {"app.py": PATCH + "import requests\n"}, script),
        put("script fetching", {"app.py": PATCH + POOL + SESSION_OF_ONE_GREENLET}, script),
        put("script injected", {"app.py": INJECT}, script, classic),
        put(
            "script pool of one",
            {"app.py": PATCH + POOL_OF_ONE + SESSION_OF_TEN_GREENLETS},
            script,
            single,
        ),
        put("app", {"proj.py": PATCH + "import requests\n"}, ("--app", "proj")),
        put("app session", {"proj.py": PATCH + POOL + SESSION_FETCH}, ("--app", "proj:fetch")),
        put("app parsing", {"proj.py": PATCH + POOL + PARSING_FETCH}, ("--app", "proj:fetch")),
        put("app injected", {"proj.py": INJECT}, ("--app", "proj"), classic),
        put("app locked", {"proj.py": PATCH + POOL + LOCKED_FETCH}, ("--app", "proj:fetch"), "own-lock"),
        put("app hashing", {"proj.py": PATCH + POOL + HASHING_FETCH}, ("--app", "proj:fetch"), "cpu-bound"),
    ]
    for method in ("fork", "spawn"):
        body = textwrap.indent(CHILD_BODY, "    ").strip()
        child = FETCH + CHILD.format(body=body, method=method)
        found.append(put(f"child by {method}", {"app.py": PATCH + child}, script))
        found.append(put(f"child by {method} injected", {"app.py": INJECT + child}, script, classic))
    return found
