"""Commands that end at once, on Python 3.12, which starts no threads at exit, and on 3.13."""

from __future__ import annotations

import pytest
from program_parts import DAEMONIZE, INJECT

from diagnostics import environments

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

DAEMON = "import injected\n" + DAEMONIZE.format(leave="sys.exit(0)")
THREAD = """\
import injected, threading, time

threading.Thread(target=time.sleep, args=(1,)).start()
"""


@pytest.fixture(params=["3.12", "3.13"])
def python(request):
    """Return an interpreter with the packages of the trap."""
    found = environments.find(request.param)
    if found is None:
        pytest.skip(f"no interpreter {request.param}")
    return environments.prepare(found, ("grequests", "pyOpenSSL"), lambda text: None)


@pytest.mark.parametrize("argv", [["app.py"], ["-m", "app"]], ids=["script", "module"])
@pytest.mark.parametrize(
    "text",
    ["import injected\n", "import injected, sys\nsys.exit(0)\n", DAEMON],
    ids=["returns", "exits", "daemon"],
)
def test_command_is_probed_when_it_ends(run, write, python, argv, text):
    write("injected", INJECT)
    write("app", text)
    answer = run("--json", "--", python, *argv)
    assert answer.code == 1, answer
    assert answer.cause == ("pyopenssl-unpatched-select", "injected.py:4")


def test_exception_of_a_command_is_reported(run, write, python):
    write("injected", INJECT)
    write("app", "import injected\n1 / 0\n")
    answer = run("--", python, "app.py")
    assert answer.code == 4, answer
    assert "ended with ZeroDivisionError" in answer.line


def test_a_command_whose_threads_outlive_its_main_module(run, write, python):
    write("injected", INJECT)
    write("app", THREAD)
    answer = run("--json", "--", python, "app.py")
    if python.rpartition("scenarios/")[2].startswith("3.12"):
        assert answer.code == 4, answer
        assert "starts no threads when a program ends" in answer.line
    else:
        assert answer.cause == ("pyopenssl-unpatched-select", "injected.py:4"), answer
