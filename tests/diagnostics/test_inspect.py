"""``inspect()`` and ``check()`` in the process that calls, each in a fresh one."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from harness import environment

from diagnostics.environments import Unavailable, prepare

PATCHED = "from gevent import monkey; monkey.patch_all()\nimport requests\n"
CLASSIC = (
    "import grequests\nimport urllib3.contrib.pyopenssl as p\np.inject_into_urllib3()\nimport requests\n"
)
LATE = "import requests\nfrom gevent import monkey; monkey.patch_all()\n"
TRUSTSTORE = "import truststore; truststore.inject_into_ssl()\n"


def fresh(tmp_path, text):
    """Run ``text`` as a script of its own; return its output, parsed as JSON."""
    (tmp_path / "app.py").write_text(textwrap.dedent(text))
    argv = [sys.executable, "-W", "ignore", "app.py"]
    done = subprocess.run(
        argv, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


TOLD = """
import json, diagnostics
print(json.dumps([[c.code, c.where] for c in diagnostics.inspect().causes]))
"""


@pytest.mark.parametrize(
    ("setup", "causes"),
    [
        ("", []),
        ("import requests", []),
        (PATCHED, []),
        ("import grequests", []),
        (CLASSIC, ["pyopenssl-unpatched-select"]),
        (LATE, ["patched-too-late"]),
        (TRUSTSTORE + PATCHED, ["truststore"]),
        (PATCHED + TRUSTSTORE, ["truststore"]),
        ("import gevent, requests", ["not-patched"]),
        ("from gevent import monkey; monkey.patch_all(ssl=False)\nimport requests", ["ssl-unpatched"]),
        (f"import ssl\nCONTEXT = ssl.create_default_context()\n{PATCHED}", ["context-before-patching"]),
        # Healthy: a server's context, the class under another name, an asyncio client with its own context.
        (f"import ssl\nC = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)\n{PATCHED}", []),
        (f"import ssl\nC = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)\n{PATCHED}", []),
        (f"from ssl import SSLContext\n{PATCHED}", []),
        (f"import stands_for_aiohttp\n{PATCHED}", []),
    ],
)
def test_static_causes(tmp_path, setup, causes):
    package = tmp_path / "site-packages"
    package.mkdir()
    text = "import ssl\nfrom ssl import SSLContext\nCONTEXT = ssl.create_default_context()\n"
    (package / "stands_for_aiohttp.py").write_text(text)
    setup = f"import sys; sys.path.append({str(package)!r})\n{setup}"
    assert [code for code, _ in fresh(tmp_path, setup + TOLD)] == causes


@pytest.mark.parametrize(
    ("setup", "line"),
    [
        (CLASSIC, 3),
        (LATE, 1),
        (f"import boto3\n{PATCHED}", 1),
        (f"import certifi\nimport boto3\n{PATCHED}", 2),
        (f"{TRUSTSTORE}{PATCHED}", 1),
        (f"{PATCHED}{TRUSTSTORE}", 3),
        (f"import ssl\n{LATE}", 2),
        (f"import ssl\nCONTEXT = ssl.create_default_context()\n{PATCHED}", 2),
    ],
)
def test_a_static_cause_has_its_place(tmp_path, setup, line):
    [[_, where]] = fresh(tmp_path, setup + TOLD)
    assert where.endswith(f"app.py:{line}")


def test_inspect_neither_connects_nor_patches_nor_injects(tmp_path):
    text = """
        import gevent, json, sys, socket, ssl, select, threading
        import diagnostics
        diagnostics.inspect()  # the modules of ours are there now
        def state():
            return [sorted(sys.modules), id(socket.socket), id(ssl.SSLContext), id(select.poll)]
        before, threads = state(), threading.active_count()
        def refuse(event, args):
            if event.startswith(("socket.", "subprocess.", "os.fork", "os.exec")):
                raise RuntimeError(event)
        sys.addaudithook(refuse)
        diagnostics.inspect()
        print(json.dumps([before == state(), threads == threading.active_count()]))
    """
    assert fresh(tmp_path, text) == [True, True]


ROOT = Path(__file__).parents[2]


def documented(tmp_path, start):
    """Return the lines of the documentation that begin with ``start``; put what they need into the folder.

    Nothing else of ours can be imported there.
    """
    shutil.copy(ROOT / "diagnostics" / "agent" / "https_agent" / "https_inspection.py", tmp_path)
    for name in ("diagnostics", "downloader"):
        (tmp_path / f"{name}.py").write_text(f"raise SystemError('{name} is not needed')\n")
    text = (ROOT / "docs" / "diagnostics.md").read_text()
    return textwrap.dedent(re.search(rf"    {start}.*?(?=\n\S)", text, re.DOTALL)[0])


def gunicorn(tmp_path, conf):
    """Run gunicorn with the hook of the documentation; return its exit code and output."""
    hook = documented(tmp_path, "def post_worker_init")
    (tmp_path / "conf.py").write_text(
        f"{conf}\n{hook}\nbind = '127.0.0.1:0'\nworker_class = 'gevent'\n{ENDS}"
    )
    (tmp_path / "wsgi.py").write_text("import requests\n\ndef app(environ, start):\n    raise OSError\n")
    argv = [sys.executable, "-m", "gunicorn", "-c", "conf.py", "wsgi:app"]
    done = subprocess.run(
        argv, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stderr


# A worker that is found healthy ends the server, so that the test ends.
ENDS = """
inspected = post_worker_init

def post_worker_init(worker):
    import os, signal
    inspected(worker)
    os.kill(worker.ppid, signal.SIGTERM)
"""


def test_documented_hook_stops_a_serial_gunicorn(tmp_path):
    code, said = gunicorn(tmp_path, "import requests")
    assert (code, "HTTPS would be serialized here" in said, "conf.py:1" in said) == (3, True, True), said
    assert said.count("Booting worker") == 1


def test_documented_hook_lets_a_concurrent_gunicorn_serve(tmp_path):
    code, said = gunicorn(tmp_path, "import ssl")
    assert (code, "HTTPS would" in said) == (0, False), said


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("start", "code"), [("import urllib3.util.ssl_\n", 3), ("", 0)])
def test_documented_hook_stops_a_serial_celery(tmp_path, start, code):
    try:
        python = prepare(sys.executable, ["celery==5.4.0", "gevent", "requests"], lambda text: None)
    except Unavailable as error:
        pytest.skip(str(error))
    hook = documented(tmp_path, "import https_inspection\n    from celery")
    ends = "    raise SystemExit(0)\n"
    app = f"from celery import Celery\n{hook}\n{ends}\napp = Celery('tasks', broker='memory://')\n"
    (tmp_path / "tasks.py").write_text(app)
    (tmp_path / "sitecustomize.py").write_text(start)
    argv = [python, "-m", "celery", "-A", "tasks", "worker", "-P", "gevent", "-c", "2"]
    env = {**environment(), "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == code, done.stderr
    assert ("HTTPS would be serialized here" in done.stderr) == bool(code)


CHECK = """
import json, diagnostics
found = diagnostics.check()
print(json.dumps([found.verdict, [[c.code, c.where] for c in found.causes]]))
"""


def test_check_measures_in_this_process(tmp_path):
    assert fresh(tmp_path, PATCHED + CHECK) == ["concurrent", []]
    where = ["pyopenssl-unpatched-select", "app.py:3"]
    assert fresh(tmp_path, CLASSIC + CHECK) == ["serialized", [where]]
    assert fresh(tmp_path, LATE + CHECK) == ["error", [["patched-too-late", "app.py:1"]]]


def test_check_measures_an_application_in_a_fresh_one(tmp_path):
    (tmp_path / "proj.py").write_text(CLASSIC)
    text = """
        import json, diagnostics
        found = diagnostics.check(app="proj", fix=True)
        print(json.dumps([found.exit_code, [each.code for each in found.remedies][:1]]))
    """
    assert fresh(tmp_path, text) == [1, ["patch-all-first"]]
