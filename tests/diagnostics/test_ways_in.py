"""The agent is in the process that matters, however that was started; else it is said why not.

The expected result of the tools is measured first, without the diagnostics: see ``meeting``. Their packages
are in a virtual environment of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from harness import environment
from meeting import meeting, said
from program_parts import INJECT, PATCH
from test_wrapped import interpreter, spec

from diagnostics.agent.https_agent import entrance
from diagnostics.environments import Unavailable, prepare
from diagnostics.unpacking import agent_in

__all__ = ["meeting", "said"]

SLOW = pytest.mark.slow
SERIAL = "pyopenssl-unpatched-select"
# No server is needed: the probe takes the place of the first connection.
FETCH = """
import gevent
import requests

def fetch():
    requests.get("https://localhost:9/", timeout=30)

gevent.joinall([gevent.spawn(fetch) for _ in range(4)])
"""
SCRIPTS = {
    "sets-PYTHONPATH": "export PYTHONPATH=src\nexec {python} {program}\n",
    "other-sitecustomize": 'PYTHONPATH="$PWD/own:$PYTHONPATH" {python} {program}\necho over\n',
    "env-i": "env -i {python} {program}\n",
    "isolated": "exec {python} -I {program}\n",
    "option-among-others": "{python} -bE {program} || exit 3\n",
    "in-another-folder": 'cd / && unset PYTHONPATH && exec {python} "$OLDPWD/{program}"\n',
    "background": "PYTHONPATH= {python} {program} & wait\n",
}
PYTHONS = {
    "scrubs-and-executes": (
        "import os, sys\nos.environ.clear()\nos.execv(sys.executable, [sys.executable, {program!r}])\n"
    ),
    "pool": (
        "import subprocess, sys\nsubprocess.run([sys.executable, {program!r}], env={{}}, check=False)\n"
    ),
    "pool-isolated": (
        "import subprocess, sys\n"
        "subprocess.run([sys.executable, '-sI', {program!r}], env={{'A': 'b'}}, close_fds=False)\n"
    ),
    "shell": "import os, sys\nos.environ.clear()\nos.system(sys.executable + ' ' + {program!r})\n",
    "gevent": (
        "import sys\nfrom gevent import subprocess\n"
        "subprocess.call([sys.executable, {program!r}], env={{'A': 'b'}})\n"
    ),
}


def each(names, *always):
    """Return parameters of ``names``, of which those that are not ``always`` run in the long suite."""
    return [pytest.param(name, marks=() if name in always else SLOW) for name in names]


@pytest.fixture
def program(write):
    """Return a function that writes the program, and returns its name."""

    def put(serial):
        return write("app", (INJECT if serial else PATCH) + FETCH) + ".py"

    return put


@pytest.fixture
def checked(run, program):
    """Check a command for its verdict, and for the line of the cause."""

    def ask(argv, serial, *options):
        answer = run("--json", *options, "--", *argv)
        assert (answer.code, answer.json["verdict"]) == (
            (1, "serialized") if serial else (0, "concurrent")
        ), answer
        if serial:
            assert answer.cause == (SERIAL, "app.py:4")
        return answer

    return ask


def start_script(tmp_path, kind, name):
    (tmp_path / "own").mkdir(exist_ok=True)
    (tmp_path / "own" / "sitecustomize.py").write_text("import builtins\nbuiltins.OWN = 1\n")
    (tmp_path / "start.sh").write_text(
        "#!/bin/sh\n" + SCRIPTS[kind].format(python=sys.executable, program=name)
    )
    return ["sh", "start.sh"]


@pytest.mark.parametrize("serial", [pytest.param(False, marks=SLOW), True], ids=["healthy", "serial"])
@pytest.mark.parametrize("kind", each(SCRIPTS, "env-i"))
def test_start_script(checked, program, tmp_path, kind, serial):
    answer = checked(start_script(tmp_path, kind, program(serial)), serial)
    (note,) = answer.json["notes"]
    assert "was started again by itself" in note


@pytest.mark.parametrize("serial", [pytest.param(False, marks=SLOW), True], ids=["healthy", "serial"])
@pytest.mark.parametrize("kind", each(PYTHONS, "pool-isolated", "scrubs-and-executes"))
def test_python_that_executes_another_one(checked, write, program, kind, serial):
    write("starts", PYTHONS[kind].format(program=program(serial)))
    answer = checked([sys.executable, "starts.py"], serial)
    assert answer.json["notes"] == []  # the agent went on by itself


LAUNCHER = """
from gevent import monkey; monkey.patch_all()
import subprocess, sys
{before}
subprocess.run(["sh", "start.sh"])
{after}
"""


@pytest.mark.parametrize("serial", [pytest.param(False, marks=SLOW), True], ids=["healthy", "serial"])
@pytest.mark.parametrize("after", ["", "import gevent; gevent.sleep(60)"])
@pytest.mark.parametrize("kind", each(SCRIPTS, "env-i", "sets-PYTHONPATH"))
def test_patched_launcher_that_fetches_nothing(checked, program, write, tmp_path, kind, serial, after):
    start_script(tmp_path, kind, program(serial))
    write("launch", LAUNCHER.format(before="", after=after))
    answer = checked([sys.executable, "launch.py"], serial)
    (note,) = answer.json["notes"]
    assert "was started again by itself" in note


def test_patched_launcher_of_what_cannot_be_entered(run, program, write, tmp_path):
    (tmp_path / "start.sh").write_text(f"exec {sys.executable} -S app.py\n")
    program(True)
    source = tmp_path / "app.py"
    source.write_text(f"import sys\nsys.path[:] = {sys.path!r}\n{source.read_text()}")
    write("launch", LAUNCHER.format(before="", after=""))
    answer = run("--", sys.executable, "launch.py")
    assert answer.code == 4, answer
    assert "app.py), which has loaded gevent: -S leaves out site" in answer.line
    assert "what they are in has tried no HTTPS connection" in answer.line


def test_launcher_that_fetches_as_well_is_measured_and_the_other_named(run, program, write, tmp_path):
    start_script(tmp_path, "env-i", program(True))
    # It is not probed yet where it connects in the main greenlet.
    before = (
        "import contextlib, requests\nwith contextlib.suppress(OSError): requests.get('https://[::1]:9')"
    )
    write("launch", LAUNCHER.format(before=before, after=""))
    answer = run("--json", "--", sys.executable, "launch.py")
    assert (answer.code, answer.json["verdict"]) == (0, "concurrent"), answer
    assert any("app.py), which has loaded gevent: " in note for note in answer.json["notes"]), answer


@pytest.mark.parametrize("options", [("-I",), pytest.param(("-WdE", "-s"), marks=SLOW)], ids=" ".join)
def test_python_that_is_isolated(checked, program, options):
    assert checked([sys.executable, *options, program(True)], True).json["notes"] == []


def test_program_that_starts_one_of_its_own_behind_a_start_script(checked, write, program, tmp_path):
    # What the script has started is started again, not what that starts.
    write("starts", PYTHONS["pool"].format(program=program(True)))
    answer = checked(start_script(tmp_path, "sets-PYTHONPATH", "starts.py"), True)
    assert "starts.py was started again by itself" in answer.json["notes"][0]


@pytest.mark.slow
def test_server_of_a_start_script(checked, write, tmp_path):
    write("app", "import requests\n\ndef app(environ, start_response):\n    return []\n")
    gunicorn = "-m gunicorn -k gevent -w 2 -b 127.0.0.1:0 app:app"
    checked(start_script(tmp_path, "sets-PYTHONPATH", gunicorn), False, "--after", "2s")


def test_remedies_behind_a_start_script(checked, program, tmp_path):
    answer = checked(start_script(tmp_path, "sets-PYTHONPATH", program(True)), True, "--fix")
    assert answer.json["remedies"][0]["code"] == "patch-all-first", answer
    assert answer.json["remedies"][0]["where"] == "the first line of app.py"


# what cannot be entered


@pytest.mark.parametrize("before", [(), ("sh", "-c", '"$0" "$@"; exit $?')], ids=["command", "shell"])
def test_python_without_site(run, write, before):
    packages = [folder for folder in sys.path if folder.endswith("-packages")]
    write("app", f"import sys\nsys.path += {packages!r}\n{PATCH}{FETCH}while True:\n    gevent.sleep(1)\n")
    argv = [sys.executable, "-S", "app.py", "https://user:s3cret@h/"]
    answer = run("--after", "1s", "--", *before, *argv)
    assert answer.code == 4, answer
    told = answer.line.partition(": the diagnostics are not in process ")[2]
    assert f"({sys.executable} -S app.py https://***@h/), which has loaded gevent: -S leaves out" in told
    assert "--app MODULE" in told


# a Python whose options were dropped looks as if it had them

LOOK = """
import json, os, plistlib, sys

keep = [name for name in os.environ if name.startswith("PYTHON")]
path = [folder for folder in os.environ["PYTHONPATH"].split(os.pathsep) if folder != {agent!r}]
flags = [sys.flags.ignore_environment, sys.flags.no_user_site, getattr(sys.flags, "isolated", 0)]
if isinstance(sys.flags, tuple):  # an old virtualenv replaces them
    flags += [repr(sys.flags), list(sys.flags)]
print(json.dumps([flags, sorted(keep), path, sys.path, sys.argv, getattr(sys, "orig_argv", None)]))
"""


@pytest.mark.parametrize(
    "version", ["", *(pytest.param(v, marks=SLOW) for v in ("2.7", "3.6", "3.8", "3.10", "3.13"))]
)
def test_dropped_options_are_not_missed(tmp_path, write, version):
    python = interpreter(version)
    write("look", LOOK.format(agent=str(agent_in(tmp_path))))
    way = entrance.Entrance(spec(tmp_path)[entrance.VARIABLE], [str(agent_in(tmp_path))], {})
    env = {**environment(), "PYTHONPATH": "one"}
    for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED"):
        env.pop(name, None)
    for options in [
        ["-E"],
        ["-sE"],
        *([] if version == "2.7" else [["-I"], ["-WdI", "-X", "dev"], ["-bI"]]),
    ]:
        argv = [python, *options, "look.py", "-I"]
        found = []
        for words, environ in ((argv, env), entrance.entered(argv, env, way, True)):
            done = subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, check=False)
            assert done.returncode == 0, done
            found.append(json.loads(done.stdout))
        assert found[1] == found[0]


# tools


@pytest.fixture(scope="module")
def tools():
    """Return an interpreter that has tools which start others."""
    packages = ["gevent", "requests", "pyopenssl", "ddtrace", "pex", "shiv", "setuptools", "wheel"]
    packages += ["opentelemetry-distro", "opentelemetry-instrumentation-requests"]
    try:
        return prepare(sys.executable, packages, lambda text: None)
    except Unavailable as error:
        pytest.skip(str(error))


WORK = """
import os

import gevent
import requests

def fetch():
    requests.get(os.environ["URL"], timeout=30)

def main():
    gevent.joinall([gevent.spawn(fetch) for _ in range(int(os.environ["REQUESTS"]))], raise_error=True)

if __name__ == "__main__":
    main()
"""
TRAP = """\
from gevent import monkey; monkey.patch_all(select=False)
import urllib3.contrib.pyopenssl

urllib3.contrib.pyopenssl.inject_into_urllib3()
"""
TRACING = {
    "opentelemetry": [
        "opentelemetry-instrument",
        "--traces_exporter",
        "none",
        "--metrics_exporter",
        "none",
    ],
    "ddtrace": ["ddtrace-run"],
}
TRACED = {"DD_TRACE_ENABLED": "false", "DD_INSTRUMENTATION_TELEMETRY_ENABLED": "false"}
HEALTH = pytest.mark.parametrize("serial", [False, True], ids=["healthy", "serial"])


@pytest.mark.slow
@pytest.mark.timeout(300)
@HEALTH
@pytest.mark.parametrize("tool", TRACING)
def test_tracing(said, write, tools, monkeypatch, tool, serial):
    for name, value in TRACED.items():
        monkeypatch.setenv(name, value)
    write("app", (TRAP if serial else PATCH) + WORK)
    name, *options = TRACING[tool]
    beside = os.path.join(os.path.dirname(tools), name)
    answer = said([beside, *options, tools, "app.py"], 1 if serial else 3)
    if serial:
        assert answer.cause == (SERIAL, "app.py:4")


@pytest.mark.slow
@pytest.mark.timeout(300)
@HEALTH
@pytest.mark.parametrize("tool", ["pex", "shiv"])
def test_packed(said, write, tools, tmp_path, tool, serial):
    source = tmp_path / "source"
    source.mkdir()
    (source / "worked.py").write_text((TRAP if serial else PATCH) + WORK)
    (source / "setup.py").write_text(
        "from setuptools import setup\nsetup(name='worked', version='1', py_modules=['worked'])\n"
    )
    beside = os.path.join(os.path.dirname(tools), tool)
    needs = ["gevent", "requests", "pyopenssl"]
    argv = {
        "pex": [beside, *needs, "-D", "source", "-m", "worked", "-o", "packed"],
        "shiv": [
            beside,
            "-q",
            "-e",
            "worked:main",
            "-p",
            f"{tools} -E",
            "-o",
            "packed",
            *needs,
            "./source",
        ],
    }[tool]
    env = {**environment(), "PEX_ROOT": str(tmp_path / "root"), "SHIV_ROOT": str(tmp_path / "root")}
    made = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"{tool} made nothing: {made.stderr[-300:]}")
    answer = said(["./packed"], 1 if serial else 3)
    if serial:
        assert (answer.cause[0], answer.cause[1].rpartition("/")[2]) == (SERIAL, "worked.py:4")


@pytest.mark.parametrize(
    "starts", ['run_path("job.py", run_name="__main__")', 'run_module("job", None, "__main__", True)']
)
def test_remedy_is_the_first_line_of_a_launcher(run, write, starts):
    write("wrap", f"import runpy, requests\nrunpy.{starts}\n")
    write("job", "import gevent, requests\ngevent.spawn(requests.get, 'https://localhost:9').join()\n")
    answer = run("--json", "--fix", "--", sys.executable, "wrap.py")
    assert answer.cause == ("not-patched", "wrap.py:1"), answer
    remedy = answer.json["remedies"][0]
    assert (remedy["where"], remedy["verdict"]) == ("the first line of wrap.py", "concurrent")
