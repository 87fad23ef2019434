"""Verdict, cause with its place, remedies, and the contract of the JSON, by real runs."""

from __future__ import annotations

import re

import pytest
from program_parts import INJECT, PATCH

LATE = """
    import json
    import requests
    from gevent import monkey

    monkey.patch_all()
"""


@pytest.mark.parametrize("style", ["requests", "grequests", "urllib3", "downloader"])
def test_styles_are_concurrent(run, style):
    answer = run("check", "--style", style, "--json")
    assert (answer.code, answer.json["verdict"]) == (0, "concurrent"), answer
    assert answer.json["causes"] == []
    assert answer.json["socket_class"] == "gevent.ssl.SSLSocket"
    assert answer.json["concurrency"] == pytest.approx(10 * 0.2 / answer.json["wall_s"], rel=0.1)


def test_check_and_the_downloader_style_are_the_defaults(run):
    answer = run()
    assert answer.code == 0
    assert answer.out.startswith("OK    HTTPS is concurrent: 10 × 0.2 s took")


def test_the_classic_trap_with_its_remedies(run, write):
    answer = run("--app", write("proj", INJECT), "--fix", "--json")
    assert answer.code == 1
    found = answer.json
    assert found["verdict"] == "serialized"
    assert found["concurrency"] < 1.5
    assert found["socket_class"] == "urllib3.contrib.pyopenssl.WrappedSocket"
    assert answer.cause == ("pyopenssl-unpatched-select", "proj.py:4")
    evidence = "\n".join(found["causes"][0]["evidence"])
    assert "injected by proj.py:4" in evidence
    assert "grequests.py:22 calls patch_all(thread=False, select=False)" in evidence
    assert "urllib3/util/wait.py:" in evidence
    codes = [each["code"] for each in found["remedies"]]
    assert codes == ["patch-all-first", "extract-pyopenssl", "patch-select", "no-injection"]
    for remedy in found["remedies"]:
        assert remedy["verdict"] == "concurrent"
        assert 0 < remedy["wall_s"] < found["wall_s"] / 2
    facts = found["facts"]
    assert facts["pyopenssl_injected"] is True
    assert (facts["patched"]["socket"], facts["patched"]["select"]) == (True, False)
    assert facts["ssl_imported_before_patch_by"] is None


def test_text_output(run, write):
    answer = run("--app", write("proj", INJECT), "--fix", "--profile")
    assert answer.code == 1
    for text in (
        "FAIL  HTTPS is serialized: 10 × 0.2 s took",
        "cause pyopenssl-unpatched-select  proj.py:4",
        "1. from gevent import monkey; monkey.patch_all()   the first line of proj.py   measured again:",
        "profile longest time without the hub",
        "urllib3/util/wait.py:",
    ):
        assert text in answer.out


def test_what_gevent_imports_to_patch_is_not_imported_before(run, write):
    answer = run("--app", write("proj", PATCH + "import requests\n"), "--json")
    assert answer.code == 0, answer
    assert answer.json["facts"]["ssl_imported_before_patch_by"] is None


def test_patched_too_late_names_the_first_importer(run, write):
    answer = run("--app", write("proj", LATE), "--json", "--fix")
    assert (answer.code, answer.json["verdict"]) == (3, "error")
    assert answer.cause == ("patched-too-late", "proj.py:3")
    assert "RecursionError" in answer.json["error"]
    assert answer.json["facts"]["ssl_imported_before_patch_by"] == "proj.py:3"
    assert answer.json["remedies"][0]["code"] == "patch-all-first"


def test_a_dependency_of_a_dependency_is_named(run, write):
    write("deep", "import urllib3.contrib.pyopenssl as p\n\n\np.inject_into_urllib3()\n")
    write("shallow", "import deep\n")
    answer = run("--app", write("proj", "import grequests\nimport shallow\n"), "--json")
    assert answer.cause == ("pyopenssl-unpatched-select", "deep.py:4")


def test_importer_of_ssl_in_a_pth_or_sitecustomize_is_named(run, write, tmp_path):
    write("sitecustomize", "import os\nimport urllib3\n")
    answer = run(
        "--app",
        write("proj", "from gevent import monkey\nmonkey.patch_all()\nimport requests\n"),
        "--json",
        "--fix",
        env={"PYTHONPATH": str(tmp_path)},
    )
    assert answer.code == 3
    assert answer.cause == ("patched-too-late", "sitecustomize.py:2")
    # The application begins with this import already, which is too late here.
    [remedy] = answer.json["remedies"]
    assert (remedy["code"], remedy["where"]) == (
        "patch-before-everything",
        "the first line of sitecustomize.py",
    )
    assert answer.json["tried"] == []


def test_a_callable_is_the_fetch(run, write):
    text = """
        from gevent import monkey; monkey.patch_all()
        import threading
        import requests

        LOCK = threading.Lock()

        class Client:
            @staticmethod
            def fetch(url):
                with LOCK:
                    return requests.get(url)
    """
    answer = run("--app", write("proj", text) + ":Client.fetch", "--json")
    assert answer.code == 1
    assert answer.cause == ("own-lock", "proj.py:11")
    # Without the callable the module is only imported, and requests fetches.
    assert run("--app", "proj", "--json").json["verdict"] == "concurrent"


@pytest.mark.parametrize(
    "application",
    [
        "def app(environ, start_response): raise SystemExit('called')",
        "class App:\n    def __call__(self, environ, start): raise SystemExit('called')\napp = App()",
        "async def app(scope, receive, send): raise SystemExit('called')",
    ],
)
def test_wsgi_and_asgi_applications_are_only_imported(run, write, application):
    write("proj", f"from gevent import monkey; monkey.patch_all()\n{application}\n")
    found = run("--app", "proj:app", "--json").json
    (note,) = found["notes"]
    assert (found["verdict"], "proj:app takes more than a URL" in note) == ("concurrent", True), note


def test_some_errors_give_the_verdict_error(run, write):
    text = """
        from gevent import monkey; monkey.patch_all()
        import itertools
        import requests

        turn = itertools.count()

        def fetch(url):
            if next(turn) % 3 == 2:
                raise ConnectionError("every third one")
            return requests.get(url)
    """
    answer = run("--app", write("proj", text) + ":fetch", "--json")
    assert (answer.code, answer.json["verdict"]) == (3, "error")
    assert answer.json["error"] == "ConnectionError: every third one"


@pytest.mark.parametrize(
    ("expected", "code"),
    [("serialized", 0), ("concurrent", 1), pytest.param("error", 1, marks=pytest.mark.slow)],
)
def test_expect(run, write, expected, code):
    assert run("--app", write("proj", INJECT), "--expect", expected).code == code


def test_expect_of_a_concurrent_program(run):
    assert run("--style", "requests", "--expect", "concurrent").code == 0
    assert run("--style", "requests", "--expect", "serialized").code == 1


def test_expect_of_an_error(run, write):
    app = write("proj", "def fetch(url): raise OSError('no')\n") + ":fetch"
    assert run("--app", app, "--expect", "error").code == 0
    assert run("--app", app, "--expect", "concurrent").code == 3


def test_a_tls_context_for_each_request_is_no_serialization(run, write):
    text = """
        from gevent import monkey; monkey.patch_all()
        import ssl
        import urllib.request

        def fetch(url):
            context = ssl.create_default_context()  # which reads all authorities of the system
            return urllib.request.urlopen(url, context=context).read()
    """
    answer = run("--app", write("proj", text) + ":fetch", "--json")
    assert answer.json["verdict"] == "concurrent", answer.json


@pytest.mark.parametrize("times", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_busy_cores_give_no_serial_verdict(run, write, times):
    """Five runs are slow: they would show an error of one in many."""
    import subprocess
    import sys

    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
    try:
        verdicts = [run("--style", "requests", "--json").json["verdict"] for _ in range(times)]
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
    assert verdicts == ["concurrent"] * times


def test_hanging_fetch_is_reported_with_measured_seconds(run, write):
    text = """
        from time import sleep
        from gevent import monkey; monkey.patch_all()

        def fetch(url):
            sleep(1000)
    """
    answer = run("--app", write("proj", text) + ":fetch", "--json")
    assert (answer.code, answer.json["verdict"]) == (3, "error")
    assert answer.json["concurrency"] == 0
    evidence = answer.json["causes"][0]["evidence"][0]
    held, whole = re.search(r"([\d.]+) of ([\d.]+) s$", evidence).groups()
    assert 1 < float(held) <= float(whole)


def test_immediate_errors_are_no_concurrency(run, write):
    text = "from gevent import monkey; monkey.patch_all()\ndef fetch(url): raise OSError('no')\n"
    answer = run("--app", write("proj", text) + ":fetch", "--json")
    assert (answer.code, answer.json["verdict"], answer.json["concurrency"]) == (3, "error", 0)


def test_own_limit_is_reported_and_is_no_failure(run, write):
    text = """
        from gevent import monkey; monkey.patch_all()
        import requests
        from gevent.lock import BoundedSemaphore

        FOUR = BoundedSemaphore(4)

        def fetch(url):
            with FOUR:
                return requests.get(url)
    """
    answer = run("--app", write("proj", text) + ":fetch")
    assert answer.code == 0
    assert "limit small-pool  proj.py:9" in answer.out
    assert "fix" not in answer.out


def test_fetch_that_goes_elsewhere_is_not_said_to_fail(run, write):
    write(
        "proj",
        "from gevent import monkey; monkey.patch_all()\nimport requests\ndef fetch(url):\n    pass\n",
    )
    answer = run("--app", "proj:fetch")
    assert answer.code == 3, answer
    begin = answer.out.splitlines()[:2]
    assert begin == [
        "FAIL  HTTPS was not measured: the fetch sends no request to the server of the probe",
        "cause no-request",
    ]


TASKS = """
    from gevent import monkey; monkey.patch_all()
    import time
    import requests
    from gevent.pywsgi import WSGIServer

    def works(limit=10):
        time.sleep(1)

    def number(number):
        return requests.get("https://localhost:9/%d" % int(number))

    def file(path):
        return open(path).read()

    def main(argv=None):
        while True:
            time.sleep(0.1)

    def serve(app=None):
        WSGIServer(("127.0.0.1", 0), app).serve_forever()
"""
SENDS_NONE = "the fetch sends no request to the server of the probe"
FAILS = "the function fails before it sends a request"


@pytest.mark.parametrize(
    ("function", "summary", "where", "evidence"),
    [
        ("works", SENDS_NONE, "", "of 1 requests 0 came"),  # it is not called ten times more
        ("number", FAILS, "proj.py:11", "ValueError: invalid literal for int()"),
        ("file", FAILS, "proj.py:14", "No such file or directory"),
        ("main", SENDS_NONE, "proj.py:18", "it waits at proj.py:18; nothing more came within 5 s"),
        ("serve", SENDS_NONE, "proj.py:21", "it waits at proj.py:21; nothing more came within 5 s"),
    ],
)
def test_function_that_fetches_nothing_is_told_at_once(run, write, function, summary, where, evidence):
    answer = run("--app", f"{write('proj', TASKS)}:{function}", "--json")
    [cause] = answer.json["causes"]
    assert (answer.code, cause["code"], cause["summary"], cause["where"]) == (
        3,
        "no-request",
        summary,
        where,
    )
    assert evidence in cause["evidence"][0]
    assert "--app MODULE:CALLABLE expects a function of one argument, the URL" in cause["explanation"]
    assert run("--app", f"proj:{function}").out.startswith(f"FAIL  HTTPS was not measured: {summary}")


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("import json\nNAME = 'x'\n", "proj.py:1", True),
        ("import json\nimport requests\n", "proj.py:2", True),
        ("import json\nimport gevent\n", "proj.py:2", False),
    ],
    ids=["nothing", "requests", "gevent"],
)
def test_place_of_a_program_that_patches_nothing_is_its_own(run, write, text, place, said):
    # requests is what the probe fetches with, whoever imported it.
    answer = run("--app", write("proj", text), "--json")
    assert answer.cause == ("not-patched", place), answer
    told = "the application does not import gevent" in answer.json["causes"][0]["evidence"]
    assert told == said


RATE = """
    from gevent import monkey; monkey.patch_all()
    import threading, time
    import requests

    LOCK = threading.Lock()

    def fetch(url):
        with LOCK:
            time.sleep(0.5)
        return requests.get(url).text
"""


def test_requests_that_a_rate_lets_through_one_by_one_are_not_called_concurrent(run, write):
    answer = run("--app", f"{write('proj', RATE)}:fetch", "--requests", "6")
    assert answer.code == 0, answer
    start = "OK    HTTPS is limited by a rate, and whether it is concurrent is not known: 6 × 0.2 s took"
    assert answer.out.startswith(start), answer
    assert "5 greenlets waited for each other at proj.py:9" in answer.out


EXECUTOR = """
    from gevent import monkey; monkey.patch_all()
    from concurrent.futures import ThreadPoolExecutor
    import requests

    EXECUTOR = ThreadPoolExecutor(1)

    def fetch(url):
        return EXECUTOR.submit(requests.get, url).result().text
"""
QUEUE = """
    from gevent import monkey; monkey.patch_all()
    import queue, threading
    import requests

    QUEUE = queue.Queue()

    def work():
        while True:
            url, box = QUEUE.get()
            box.put(requests.get(url).text)

    threading.Thread(target=work, daemon=True).start()

    def fetch(url):
        box = queue.Queue()
        QUEUE.put((url, box))
        return box.get()
"""
OWN = """
    from gevent import monkey; monkey.patch_all()
    import threading
    import requests

    LOCK = threading.Lock()

    def fetch(url):
        with LOCK:
            return requests.get(url).text
"""


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        (EXECUTOR, "proj.py:9", "in an executor that has too few workers"),
        (QUEUE, "proj.py:18", "in a queue of the application"),
        (OWN, "proj.py:9", "at a line of the application"),
    ],
    ids=["executor", "queue", "lock"],
)
def test_what_requests_wait_for_each_other_in_is_named(run, write, text, place, what):
    answer = run("--app", f"{write('proj', text)}:fetch", "--json")
    assert (answer.code, answer.cause) == (1, ("own-lock", place)), answer
    assert answer.json["causes"][0]["summary"] == f"the requests wait for each other {what}"
