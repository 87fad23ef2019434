"""``-- COMMAND`` of several processes: the one that uses gevent is probed, once it is set up."""

from __future__ import annotations

import os
import sys

import pytest
from program_parts import DAEMONIZE, FETCH, INJECT, PATCH

from diagnostics import launch
from diagnostics.agent.https_agent.life import SIGNAL
from diagnostics.errors import ProbeError
from diagnostics.examine import examine
from diagnostics.model import Question, Target

WSGI = """\
import requests

def app(environ, start):
    start("200 OK", [])
    return [b""]
"""


def gunicorn(*options):
    return [sys.executable, "-m", "gunicorn", "-k", "gevent", "-b", "127.0.0.1:0", *options, "wsgi:app"]


# gunicorn


def test_gunicorn_whose_arbiter_fetches_in_hooks(run, write):
    write("wsgi", WSGI)
    write("plain", FETCH)
    write(
        "conf",
        """
        import plain

        def on_starting(server):
            plain.fetch()

        def when_ready(server):
            plain.fetch()
        """,
    )
    answer = run("--json", "--after", "1s", "--", *gunicorn("-c", "conf.py"))
    assert (answer.code, answer.json["verdict"]) == (0, "concurrent"), answer
    assert answer.json["facts"]["patched"]["socket"] is True


@pytest.mark.slow
def test_gunicorn_whose_patched_arbiter_fetches_in_a_greenlet(run, write):
    # Only the worker imports what makes it serial.
    write("wsgi", INJECT + WSGI)
    write("plain", FETCH)
    conf = """
        import grequests, gevent, plain

        def when_ready(server):
            gevent.spawn(plain.fetch).join()
    """
    write("conf", conf)
    write(
        "keep", "import gunicorn.workers.ggevent as g\nclass Worker(g.GeventWorker):\n    patch = print\n"
    )
    argv = [sys.executable, "-m", "gunicorn", "-k", "keep.Worker", "-b", "127.0.0.1:0", "-c", "conf.py"]
    answer = run("--json", "--fix", "--after", "1s", "--", *argv, "wsgi:app")
    assert answer.code == 1, answer
    assert answer.cause == ("pyopenssl-unpatched-select", "wsgi.py:4")


def test_gunicorn_that_has_no_workers_within_after(run, write):
    write("wsgi", "import time\ntime.sleep(1)\n\ndef app(environ, start): pass\n")
    answer = run("--json", "--after", "200ms", "--", *gunicorn("--preload"))
    assert (answer.code, answer.json["verdict"]) == (0, "concurrent"), answer
    assert answer.json["facts"]["patched"]["socket"] is True


@pytest.mark.slow
def test_gunicorn_whose_worker_starts_late_and_patches_later(run, write):
    write("wsgi", WSGI)
    late = "def on_starting(server): time.sleep(7)\ndef post_fork(server, worker): time.sleep(2)\n"
    write("conf", f"import time\n{late}")
    answer = run("--json", "--after", "200ms", "--", *gunicorn("-c", "conf.py"))
    assert (answer.code, answer.json["verdict"]) == (0, "concurrent"), answer


def test_gunicorn_whose_worker_is_still_importing(run, write):
    write("wsgi", "import time\ntime.sleep(1)\n" + INJECT)
    write("more", "from wsgi import *\n\ndef app(environ, start): pass\n")
    write(
        "keep", "import gunicorn.workers.ggevent as g\nclass Worker(g.GeventWorker):\n    patch = print\n"
    )
    argv = [sys.executable, "-m", "gunicorn", "-k", "keep.Worker", "-b", "127.0.0.1:0", "more:app"]
    answer = run("--json", "--after", "200ms", "--", *argv)
    assert answer.code == 1, answer
    assert answer.cause == ("pyopenssl-unpatched-select", "wsgi.py:6")


def test_gunicorn_whose_workers_do_not_boot(run, write):
    write("wsgi", "raise ValueError('no database')\n")
    write("conf", PATCH)
    answer = run("--", *gunicorn("-c", "conf.py"))
    assert answer.code == 4, answer
    assert "exit code 3" in answer.line


@pytest.mark.parametrize(
    ("app", "conf", "said"),
    [
        (
            WSGI,
            "import sys\ndef post_worker_init(worker):\n"
            "    worker.log.error('migrations pending')\n    sys.exit(1)\n",
            "migrations pending",
        ),
        (
            WSGI,
            "import os\ndef post_worker_init(worker):\n"
            "    print('vault sealed', flush=True)\n    os._exit(1)\n",
            "vault sealed",
        ),
        ("import sys, requests\nsys.exit('no licence file')\n", "", "no licence file"),
        ("print('done', flush=True)\nraise SystemExit\n", "", "done"),
    ],
    ids=["hook", "hook at once", "application", "application without an error"],
)
def test_gunicorn_whose_workers_never_serve(run, write, app, conf, said):
    write("wsgi", app)
    write("conf", conf)
    answer = run("--", *gunicorn("-c", "conf.py"))
    assert answer.code == 4, answer
    assert "its workers end before they come to serve, one after the other" in answer.line
    assert said in answer.line


def test_gunicorn_as_a_daemon_is_probed_and_ended(run, write):
    write("wsgi", WSGI)
    answer = run("--json", "--after", "1s", "--", *gunicorn("--daemon"))
    assert (answer.code, answer.json["verdict"]) == (0, "concurrent"), answer


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can drop its privileges")
def test_gunicorn_workers_of_another_user(run, write):
    # Import everything as root: the folders of the test and of Python may be closed to others.
    write("plain", "import requests\n\ntry: requests.get('https://localhost:9/')\nexcept OSError: pass\n")
    keep = "import gunicorn.workers.ggevent as g\nclass Worker(g.GeventWorker):\n    patch = print\n"
    write("keep", keep)
    write("wsgi", INJECT + "import plain, netrc, encodings.idna\n" + WSGI)
    write("conf", "import wsgi\nwsgi_app = 'wsgi:app'\nworker_class = 'keep.Worker'\nuser = 'nobody'\n")
    argv = [sys.executable, "-m", "gunicorn", "-b", "127.0.0.1:0", "-c", "conf.py"]
    answer = run("--json", "--after", "4s", "--", *argv)
    assert answer.code == 1, answer
    assert answer.cause == ("pyopenssl-unpatched-select", "wsgi.py:4")


# no gevent


def test_a_command_that_never_loads_gevent(run, write):
    write("plain", FETCH)
    write("app", "import plain\nplain.fetch()\n")
    answer = run("--after", "200ms", "--", sys.executable, "app.py")
    assert answer.code == 4, answer
    assert "no process of it loads gevent" in answer.line


def test_a_command_that_never_loads_gevent_and_stays(write, tmp_path, monkeypatch):
    """Run in this process, so that the test need not wait as long as the command does."""
    write("plain", FETCH)
    write("app", "import plain, time\nplain.fetch()\ntime.sleep(1000)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launch, "_UNLOADED", 1.0)
    with pytest.raises(ProbeError, match="no process of it loads gevent"):
        examine(Question(Target(command=(sys.executable, "app.py")), after=0.2))


@pytest.mark.parametrize(
    ("rest", "hint"),
    [("", ""), ("import time; time.sleep(1000)\n", "; give a later --after")],
    ids=["ends", "stays"],
)
def test_a_command_that_imports_gevent_and_does_not_use_it(run, write, rest, hint):
    write("app", f"import gevent, requests\n{rest}")
    answer = run("--after", "200ms", "--", sys.executable, "app.py")
    assert answer.code == 4, answer
    assert f"gevent is imported, but runs no hub and has patched nothing{hint}" in answer.line


def test_a_command_that_uses_gevent_later_than_after(run, write):
    write("app", f"import gevent, time\ntime.sleep(3)\n{PATCH}import requests\ntime.sleep(1000)\n")
    answer = run("--json", "--after", "200ms", "--", sys.executable, "app.py")
    assert (answer.code, answer.json["verdict"]) == (0, "concurrent"), answer


# one process


def test_a_fetch_before_patching_is_not_probed(run, write):
    write("plain", FETCH)
    text = "import plain; plain.fetch()\n" + INJECT
    write("app", text)
    answer = run("--json", "--", sys.executable, "app.py")
    assert answer.cause == ("pyopenssl-unpatched-select", "app.py:5"), answer


def test_a_fetch_in_a_greenlet_while_the_application_is_imported(run, write):
    write("settings", "import gevent, plain\ngevent.spawn(plain.fetch).join()\n")
    write("plain", FETCH)
    text = "import grequests, settings\n" + INJECT
    write("app", text)
    answer = run("--json", "--", sys.executable, "app.py")
    assert answer.cause == ("pyopenssl-unpatched-select", "app.py:5"), answer


def test_gevent_monkey_runs_a_script_that_fetches_at_its_start(run, write):
    write("plain", FETCH)
    write("app", "import plain, gevent\nplain.fetch()\ngevent.sleep(1000)\n")
    answer = run("--json", "--after", "1s", "--", sys.executable, "-m", "gevent.monkey", "app.py")
    assert (answer.code, answer.json["verdict"]) == (0, "concurrent"), answer


def test_a_module_that_is_read_when_the_probe_is_asked_for_is_imported_first(run, write):
    # gevent's hub imports pprint. Its loader runs outside of the module's own code.
    write("plain", FETCH)
    text = f"""\
    import importlib.machinery, signal, sys

    class Loader(importlib.machinery.SourceFileLoader):
        def exec_module(self, module):
            signal.raise_signal({SIGNAL})
            super().exec_module(module)

    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name != "pprint":
                return None
            spec = importlib.machinery.PathFinder.find_spec(name)
            spec.loader = Loader(name, spec.origin)
            return spec

    import gevent.monkey, plain
    gevent.monkey.patch_all()
    sys.modules.pop("pprint", None)
    sys.meta_path.insert(0, Finder)
    gevent.get_hub()
    gevent.joinall([gevent.spawn(plain.fetch) for _ in range(3)])
    """
    write("app", text)
    answer = run("--json", "--", sys.executable, "app.py")
    assert (answer.code, answer.json["verdict"]) == (0, "concurrent"), answer


def test_what_comes_after_the_only_greenlet_until_the_probe_is_not_known(run, write):
    write("plain", FETCH)
    text = f"{PATCH}import gevent, plain\n\ngevent.spawn(plain.fetch).join()\n"
    write("app", text + "gevent.joinall([gevent.spawn(plain.fetch) for _ in range(10)])\n")
    answer = run("--json", "--", sys.executable, "app.py")
    assert answer.code == 0, answer
    (note,) = answer.json["notes"]
    assert note.startswith("until the probe began, no more than one greenlet was seen to fetch"), note
    assert note.endswith("from app.py:4 on is not known"), note


# threads

SDK = """
import contextlib
import threading
import urllib.request

def read(url):
    with contextlib.suppress(OSError):
        urllib.request.urlopen(url)

def report():
    thread = threading.Thread(target=read, args=(HOST,))
    thread.start()
    thread.join()

HOST = "https://localhost:9"  # nothing listens there
"""
GIVES = """
import gevent.monkey; gevent.monkey.patch_all(thread=False)
import sys; sys.path.insert(0, "site-packages")
from concurrent.futures import ThreadPoolExecutor
from urllib.request import urlopen
import sdk

with ThreadPoolExecutor(2) as executor: executor.map(FUNCTION, [sdk.HOST] * 2)
"""


@pytest.fixture
def sdk(write, tmp_path):
    """Install the package ``sdk``, which is none of the known clients."""
    (tmp_path / "site-packages").mkdir()
    write("site-packages/sdk", SDK)


@pytest.mark.parametrize("function", ["urlopen", "sdk.read"])
def test_what_threads_are_given_to_call_is_of_no_greenlet(run, write, sdk, function):
    write("app", GIVES.replace("FUNCTION", function))
    answer = run("--", sys.executable, "app.py")
    assert answer.code == 4, answer
    assert "its requests (app.py:8) run in threads of the operating system" in answer.line


def test_a_thread_that_a_package_has_for_itself_is_not_the_program(run, write, sdk):
    text = """
    import gevent.monkey; gevent.monkey.patch_all(thread=False)
    import sys; sys.path.insert(0, "site-packages")
    import requests, sdk

    session = requests.Session()
    session.mount("https://", requests.adapters.HTTPAdapter(pool_maxsize=1, pool_block=True))
    sdk.report()
    """
    write("app", text)
    answer = run("--json", "--", sys.executable, "app.py")
    assert answer.cause == ("pool-of-one", "app.py:7"), answer


# helpers


@pytest.mark.parametrize("fetches", [True, False], ids=["fetches", "ends"])
def test_a_helper_without_gevent_is_not_probed(run, write, fetches):
    write("plain", FETCH)
    write("helper", "import plain\nplain.fetch()\n" if fetches else "1 / 0\n")
    text = "import subprocess, sys\nsubprocess.call([sys.executable, 'helper.py'])\n"
    write("app", text + INJECT)
    answer = run("--json", "--fix", "--", sys.executable, "app.py")
    assert answer.cause == ("pyopenssl-unpatched-select", "app.py:6"), answer
    assert answer.json["remedies"][0]["code"] == "patch-all-first"


def test_non_python_helper_is_not_probed(run, write):
    # gevent's Popen forks in Python: until its exec the child looks like a worker.
    text = PATCH + "import gevent, requests, subprocess\nsubprocess.Popen(['sleep', '1000'])\n"
    write("app", text + "gevent.sleep(1000)\n")
    answer = run("--json", "--after", "1s", "--", sys.executable, "app.py")
    assert (answer.code, answer.json["verdict"]) == (0, "concurrent"), answer


def test_a_helper_that_uses_gevent_and_ends(run, write):
    write("helper", PATCH + "import gevent; gevent.sleep(0.01)\n")
    text = "import subprocess, sys\nsubprocess.check_call([sys.executable, 'helper.py'])\n"
    write("app", text + INJECT)
    answer = run("--json", "--", sys.executable, "app.py")
    assert answer.cause == ("pyopenssl-unpatched-select", "app.py:6"), answer


@pytest.mark.parametrize("size", [1, 2, 3])
def test_note_tells_of_a_program_that_was_seen_to_make_few_at_once(run, write, size):
    text = "import gevent.pool, requests\npool = gevent.pool.Pool({})\ndef get(_):\n    {}\n    {}\n{}\n"
    get = "try: requests.get('https://localhost:9/')", "except OSError: pass"
    write("app", PATCH + text.format(size, *get, "pool.map(get, range(10))"))
    answer = run("--json", "--", sys.executable, "app.py")
    (note,) = answer.json["notes"]
    who = "one greenlet was" if size == 1 else f"{size} greenlets were"
    assert f"no more than {who} seen to fetch (app.py:5)" in note


@pytest.mark.slow
def test_note_tells_of_an_import_that_does_not_return(run, write):
    write("boot", "import socket\ns = socket.create_server(('127.0.0.1', 0))\ns.accept()\n")
    write("app", PATCH + "import gevent, requests, boot\n")
    answer = run("--json", "--", sys.executable, "app.py")
    assert any("still importing boot: that is at boot.py:3, in " in note for note in answer.json["notes"])


# uWSGI: its master loads the application, forks in C without Python's hooks, and runs no Python any more

FORKED_IN_C = """\
import ctypes
c = ctypes.PyDLL(None)
lock = ctypes.create_string_buffer(64)
if c.fork():
    while True: c.pthread_mutex_lock(lock)  # the second one is not interrupted by signals
"""


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (PATCH + "import requests\n", "import gevent; gevent.sleep(60)\n", "concurrent"),
        ("import requests\n", "import gevent; gevent.sleep(60)\n", "serialized"),
        (PATCH, FETCH + "fetch()\n", "concurrent"),
    ],
    ids=["patched", "loads gevent", "fetches"],
)
def test_worker_that_was_forked_in_c_is_probed(run, write, before, after, verdict):
    write("app", before + FORKED_IN_C + after)
    answer = run("--json", "--after", "2s", "--", sys.executable, "app.py")
    assert answer.out, answer
    assert answer.json["verdict"] == verdict, answer


# multiprocessing


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("how", ["gevent.joinall([gevent.spawn(fetch)])", "fetch()"], ids=["pool", "one"])
def test_workers_of_multiprocessing(run, write, method, how):
    write("work", f"from plain import fetch\n\ndef work():\n    import patched, gevent\n    {how}\n")
    write("patched", INJECT)
    write("plain", FETCH)
    text = f"""
        import multiprocessing
        from work import work

        if __name__ == "__main__":
            worker = multiprocessing.get_context({method!r}).Process(target=work)
            worker.start()
            worker.join()
    """
    write("app", text)
    answer = run("--json", "--", sys.executable, "app.py")
    assert answer.code == 1, answer
    assert answer.cause == ("pyopenssl-unpatched-select", "patched.py:4")


# daemons


@pytest.mark.parametrize("leave", ["os._exit(0)", "sys.exit(0)"])
def test_a_daemon_is_probed_and_ended(run, write, leave):
    stay = "os.chdir('/')\nimport gevent\ngevent.sleep(1000)\n"
    write("app", INJECT + DAEMONIZE.format(leave=leave) + stay)
    answer = run("--json", "--after", "1s", "--", sys.executable, "app.py")
    assert answer.code == 1, answer
    assert answer.json["causes"][0]["code"] == "pyopenssl-unpatched-select"


SHORT_LIVED = """\
import os, sys
import grequests
import plain

if os.fork():
    {leave}
os.setsid()
os.chdir("/")
import patched
{work}
"""


@pytest.mark.parametrize(
    ("leave", "work"),
    [
        ("os._exit(0)", "plain.fetch(); os._exit(0)"),
        ("sys.exit(0)", "plain.fetch()"),
        ("sys.exit(0)", ""),
        ("import time; time.sleep(0.2); os._exit(0)", ""),
        ("import time; [0 for i in range(10**9) if time.process_time() > 1 and os._exit(0)]", ""),
    ],
)
def test_a_daemon_that_ends_at_once_is_probed(run, write, leave, work):
    write("plain", FETCH)
    write("patched", INJECT)
    write("app", SHORT_LIVED.format(leave=leave, work=work))
    answer = run("--json", "--", sys.executable, "app.py")
    assert answer.cause == ("pyopenssl-unpatched-select", "patched.py:4"), answer


def test_paths_of_a_process_started_elsewhere_are_relative_to_here(run, write, tmp_path):
    write("work", INJECT)
    start = f"subprocess.Popen([sys.executable, {str(tmp_path / 'work.py')!r}], cwd='/')"
    write("app", f"import subprocess, sys\n{start}\n")
    answer = run("--json", "--", sys.executable, "app.py")
    assert answer.cause == ("pyopenssl-unpatched-select", "work.py:4"), answer


def test_processes_started_by_a_probed_command_are_ended(run, write):
    start = "subprocess.Popen(['sleep', '1000'], start_new_session=True)"
    write("app", PATCH + f"import gevent, subprocess\n{start}\ngevent.sleep(1000)\n")
    answer = run("--after", "1s", "--", sys.executable, "app.py")
    assert answer.code == 0, answer


def test_processes_started_by_an_application_are_ended(run, write):
    start = "subprocess.Popen(['sleep', '1000'], start_new_session=True)"
    write("proj", PATCH + f"import subprocess\n{start}\n")
    assert run("--app", "proj").code == 0
