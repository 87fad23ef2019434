"""The choice of the process with the packages of 2019, on Python 2.7 and 3.7."""

from __future__ import annotations

import pytest
from program_parts import DAEMONIZE, FETCH, PATCH

from diagnostics import environments
from diagnostics.scenario import FOLDER, read

FETCHES = "import plain\nplain.fetch()\n"
PATCHES = PATCH + "import gevent\n"
WORKER = """\
import multiprocessing

def work():
    import patches, fetches

if __name__ == "__main__":
    worker = multiprocessing.Process(target=work)
    worker.start()
    worker.join()
"""
DAEMON = "import patches, gevent\n" + DAEMONIZE.format(leave="sys.exit(0)") + "gevent.sleep(1000)\n"
HELPED = """\
import subprocess, sys
import fetches

subprocess.call([sys.executable, "fetches.py"])
import patches
"""


@pytest.fixture(params=["2.7", "3.7"])
def old(request):
    """Return the interpreter of an environment with gevent 1.4."""
    found = environments.find(request.param)
    if found is None:
        pytest.skip(f"no interpreter {request.param}")
    return environments.prepare(found, read(FOLDER / "stage_01.py")[0].packages, lambda text: None)


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [["worker.py"], ["daemon.py"], ["helped.py"], ["-m", "gevent.monkey", "fetches.py"]],
    ids=["worker", "daemon", "helped", "monkey"],
)
def test_command_with_packages_of_2019(run, write, old, command):
    for name, text in [
        ("plain", FETCH),
        ("fetches", FETCHES),
        ("patches", PATCHES),
        ("worker", WORKER),
        ("daemon", DAEMON),
        ("helped", HELPED),
    ]:
        write(name, text)
    answer = run("--json", "--after", "2s", "--", old, *command)
    assert (answer.code, answer.json["verdict"]) == (0, "concurrent"), answer
    assert answer.json["facts"]["patched"]["socket"] is True


@pytest.mark.slow
def test_command_with_packages_of_2019_without_gevent(run, write, old):
    write("plain", FETCH)
    write("fetches", FETCHES)
    answer = run("--", old, "fetches.py")
    assert answer.code == 4
    assert "no process of it loads gevent" in answer.line
