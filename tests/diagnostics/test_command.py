"""``-- COMMAND``: probed at a connection of a greenlet, after a time, or at its end; then ended."""

from __future__ import annotations

import sys

from program_parts import INJECT

UNPATCHED_AND_LOCKED = """
import requests
from gevent import monkey; monkey.patch_all(socket=False)
import gevent
from gevent.lock import BoundedSemaphore
from requests.adapters import HTTPAdapter

session, lock = requests.Session(), BoundedSemaphore(1)
session.mount("https://", HTTPAdapter(pool_maxsize=20))

def fetch(number):
    try:
        with lock:
            session.get("https://localhost:9/")  # nothing listens there
    except requests.ConnectionError:
        pass

gevent.joinall([gevent.spawn(fetch, number) for number in range(10)])
"""


def test_probed_at_the_end_with_its_session(run, write):
    text = """
        from gevent import monkey; monkey.patch_all()
        import requests
        from requests.adapters import HTTPAdapter

        session = requests.Session()
        session.mount("https://", HTTPAdapter(pool_connections=1, pool_maxsize=1, pool_block=True))
        session.get("https://localhost:9/")
    """
    answer = run("--json", "--", sys.executable, write("app", text) + ".py")
    assert answer.code == 4, answer  # its own session, of which one greenlet is no evidence
    assert "with one client for all greenlets HTTPS is serialized" in answer.err
    assert "only one greenlet was seen with it (app.py:8)" in answer.err


def test_probed_at_a_greenlets_connection_with_its_session(run, write):
    text = """
        from gevent import monkey; monkey.patch_all()
        import gevent
        import requests
        from requests.adapters import HTTPAdapter

        session = requests.Session()
        session.mount("https://", HTTPAdapter(pool_connections=1, pool_maxsize=1, pool_block=True))
        gevent.joinall([gevent.spawn(session.get, "https://localhost:9/") for _ in range(10)])
        raise SystemExit("never comes here")
    """
    answer = run("--json", "--", sys.executable, write("app", text) + ".py")
    assert answer.code == 1, answer
    assert answer.cause == ("pool-of-one", "app.py:8")


def test_probed_after_a_time(run, write):
    text = "from gevent import monkey; monkey.patch_all()\nimport requests, time\ntime.sleep(1000)\n"
    answer = run("--json", "--after", "1s", "--", sys.executable, write("app", text) + ".py")
    assert (answer.code, answer.json["verdict"]) == (0, "concurrent"), answer


def test_probed_after_a_time_in_a_blocking_process(run, write):
    text = INJECT + "import time\ntime.sleep(1000)\n"
    answer = run("--json", "--after", "1s", "--", sys.executable, write("app", text) + ".py")
    assert answer.cause == ("pyopenssl-unpatched-select", "app.py:4"), answer


def test_probed_at_the_end_with_remedies(run, write):
    answer = run("--json", "--fix", "--", sys.executable, write("app", INJECT) + ".py")
    assert answer.cause == ("pyopenssl-unpatched-select", "app.py:4"), answer
    codes = [each["code"] for each in answer.json["remedies"]]
    assert codes == ["patch-all-first", "extract-pyopenssl", "patch-select", "no-injection"]


def test_remedy_says_what_remains_of_the_programs_own(run, write):
    """What is measured is the client; a lock around its calls would let one greenlet fetch at a time."""
    write("app", UNPATCHED_AND_LOCKED)
    answer = run("--json", "--fix", "--", sys.executable, "app.py")
    assert (answer.code, answer.json["causes"][0]["code"]) == (3, "patched-too-late"), answer
    first = answer.json["remedies"][0]
    assert (first["code"], first["verdict"]) == ("patch-all-first", "concurrent")
    assert "greenlets waited at app.py:13 while 1 used one" in first["why"]
    free = UNPATCHED_AND_LOCKED.replace("with lock:", "if True:")
    write("app", free)
    answer = run("--json", "--fix", "--", sys.executable, "app.py")
    assert answer.json["remedies"][0]["why"] == ""


def test_probed_in_the_worker_of_a_forking_server(run, write):
    write(
        "wsgi", "import requests\n\ndef app(environ, start):\n    start('200 OK', [])\n    return [b'']\n"
    )
    argv = [sys.executable, "-m", "gunicorn", "-k", "gevent", "-w", "2", "-b", "127.0.0.1:0", "wsgi:app"]
    answer = run("--json", "--after", "1s", "--", *argv)
    assert (answer.code, answer.json["verdict"]) == (0, "concurrent"), answer
    # The arbiter patches nothing; the worker was probed.
    assert answer.json["facts"]["patched"]["socket"] is True


def test_other_connections_do_not_affect_the_probe(run, write):
    work = """\
import gevent, requests

def work(number):
    requests.get("https://localhost:9/%d" % number)

gevent.joinall([gevent.spawn(work, number) for number in range(20)])
"""
    answer = run("--json", "--", sys.executable, write("app", INJECT + work) + ".py")
    assert answer.cause == ("pyopenssl-unpatched-select", "app.py:4"), answer


def test_own_sitecustomize_still_runs(run, write, tmp_path):
    write("sitecustomize", "import builtins\nbuiltins.SEEN = 1\n")
    text = "from gevent import monkey; monkey.patch_all()\nimport requests\nassert SEEN\n"
    answer = run(
        "--json", "--", sys.executable, write("app", text) + ".py", env={"PYTHONPATH": str(tmp_path)}
    )
    assert answer.code == 0, answer


def test_command_that_fails(run, write):
    answer = run(
        "--", sys.executable, write("app", "raise ValueError('https://h/?token=s3cret is wrong')\n") + ".py"
    )
    assert answer.code == 4
    assert "app.py ended with ValueError" in answer.line
    assert "s3cret" not in answer.line


def test_command_that_is_not_python(run):
    answer = run("--after", "200ms", "--", "sleep", "1000")
    assert (answer.code, "no Python was seen among its processes" in answer.line) == (4, True)


def test_command_that_does_not_exist(run):
    answer = run("--", "there-is-no-such-command")
    assert (answer.code, answer.line) == (
        2,
        "diagnostics: there-is-no-such-command: there is no such command",
    )
