"""How a command is started patched, and what was made before it was: from an observation alone."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import pytest
from test_diagnostics_causes import ASK, PATCHED, SEEN, held, observation

from diagnostics.causes import explain
from diagnostics.evidence import Case
from diagnostics.model import Target
from diagnostics.remedy import KNOWN
from diagnostics.start_remedies import starts
from diagnostics.verdict import judge

LIBRARY = "/py/lib/python3.11"
LOCK = """\
# guard = Lock()
import threading
guard = threading.Lock()

def fetch():
    with guard:
        pass
"""


def event(line: int, at: int, file: str = "/proj/app.py", **fields: Any) -> dict[str, Any]:
    """Return an event at a line of the user's."""
    spot = [file, line, "<module>"]
    return {"caller": spot, "user": spot, "stack": [spot], "at": at, **fields}


def case(
    seen: dict[str, Any], command: tuple[str, ...] = (), argv: tuple[str, ...] = (), **facts: Any
) -> Case:
    """Return the case of a process of ``command`` with these arguments, in which ``seen`` was seen."""
    plain = observation({}, started="/proj", **facts)
    found = replace(plain, seen={**SEEN, **seen}, argv=list(argv))
    question = replace(ASK, target=Target(command=command) if command else ASK.target)
    return Case(question, found, judge(question, found))


EARLY = {"imports": {"requests": {**event(1, 1), "user": None}}}


@pytest.mark.parametrize(
    ("command", "argv", "expected"),
    [
        (
            "python3 -X dev -m pytest -q 'a b.py'",
            ("pytest", "-q", "a b.py"),
            "python3 -X dev -m gevent.monkey --module pytest -q 'a b.py'",
        ),
        (
            "python3 -um celery worker",
            ("celery", "worker"),
            "python3 -u -m gevent.monkey --module celery worker",
        ),
        ("python3 -Wd app.py -m", ("app.py", "-m"), "python3 -Wd -m gevent.monkey app.py -m"),
    ],
)
def test_command_that_patches_first(command, argv, expected):
    found = starts(case(EARLY, tuple(shlex.split(command)), argv, runs_modules=True))
    assert (found[0].line, found[0].where) == (expected, "as the command")


def test_console_script_is_started_by_its_interpreter(tmp_path):
    script = tmp_path / "serve"
    script.write_text("#!/srv/venv/bin/python3 -s\nimport site\n")
    script.chmod(0o755)
    [found, *_] = starts(case(EARLY, (str(script), "--port", "0"), ("serve", "--port", "0")))
    assert found.line == f"/srv/venv/bin/python3 -s -m gevent.monkey {script} --port 0"


def test_gevent_that_starts_no_modules_is_given_the_script_beside(tmp_path):
    for name in ("python3", "pytest"):
        (tmp_path / name).touch()
    command = (str(tmp_path / "python3"), "-m", "pytest", "-q")
    found = starts(case(EARLY, command, ("pytest", "-q"), runs_modules=False))
    assert found[0].line == f"{tmp_path}/python3 -m gevent.monkey {tmp_path}/pytest -q"


def test_workers_of_xdist_are_patched_by_a_plugin():
    [found] = starts(case(EARLY, ("python3", "-m", "pytest", "-n", "2"), ("-c",), runs_modules=True))
    assert found.place["argv"] == ["python3", "-m", "pytest", "-p", "gevent_first", "-n", "2"]
    assert "thread=False" in found.line


def test_workers_of_xdist_with_the_arguments_of_the_command():
    # What was probed was the process that starts them.
    command = ("python3", "-m", "pytest", "-n", "2")
    [found] = starts(case(EARLY, command, ("pytest", "-n", "2"), runs_modules=True))
    assert found.place["place"] == "module"


@pytest.mark.parametrize(
    ("seen", "command"),
    [
        ({"imports": {"requests": event(1, 1)}}, ("python3", "app.py")),  # the user's line is early enough
        (EARLY, ("python3", "-m", "gevent.monkey", "app.py")),
        (EARLY, ("python3", "-c", "import app")),
        (EARLY, ("sh", "-c", "exec python3 app.py")),
        (EARLY, ()),
    ],
)
def test_no_other_start(seen, command):
    assert starts(case(seen, command, ("app.py",), roots=["/proj/app.py"])) == []


def test_remedy_names_the_copy_that_is_there():
    injection = event(3, 3, module="pip._vendor.truststore._api", function="inject_into_ssl")
    [plan] = KNOWN["extract-truststore"].plans(case({"injections": [injection]}, roots=["/proj/app.py"]))
    assert plan.line == "import pip._vendor.truststore; pip._vendor.truststore.extract_from_ssl()"
    injection = event(3, 3, module="old.packages.urllib3.contrib.pyopenssl", function="inject_into_urllib3")
    [plan] = KNOWN["extract-pyopenssl"].plans(case({"injections": [injection]}, roots=["/proj/app.py"]))
    assert plan.line.startswith("import old.packages.urllib3.contrib.pyopenssl; ")


def explained(stack: list[list[Any]], made: list[dict[str, Any]]) -> tuple[str, str]:
    """Return cause and place of a process whose hub is held in ``stack``."""
    holds = {**held("", 0, 9.0), "stack": stack}
    plain = observation({"problem": "nothing more came", "held": [holds]}, patched=PATCHED)
    patches = [event(6, 5, function="patch_all", arguments={})]
    found = replace(plain, seen={**SEEN, "patches": patches, "made": made})
    [(cause, _)] = explain(Case(ASK, found, judge(ASK, found)))
    return cause.code, cause.where


def test_pool_of_threads_is_told_at_the_line_that_made_it():
    stack = [
        [f"{LIBRARY}/concurrent/futures/thread.py", 81, "_worker"],
        [f"{LIBRARY}/threading.py", 9, "run"],
    ]
    made = [event(4, 2, cls="ThreadPoolExecutor")]
    assert explained(stack, made) == ("made-before-patching", "app.py:4")
    later = [event(8, 9, cls="ThreadPoolExecutor")]
    assert explained(stack, later)[0] != "made-before-patching"


def test_lock_is_told_at_the_line_that_made_it(tmp_path):
    app = tmp_path / "app.py"
    app.write_text(LOCK)
    stuck = {"problem": "nothing more came", "held": [held(str(app), 6, 9.0)]}
    plain = observation(stuck, patched=PATCHED, own_files=[str(app)])
    patches = [event(6, 5, function="patch_all", arguments={})]
    found = replace(plain, seen={**SEEN, "patches": patches})
    [(cause, _)] = explain(Case(ASK, found, judge(ASK, found)))
    assert (cause.code, cause.where) == ("made-before-patching", f"{app}:3")


def test_the_statement_of_a_line_with_several():
    text = "import json; import requests; x = 1"
    facts = {"sources": {"<python -c>": [text]}}
    spot = ["<python -c>", 1, "<module>", text.index("import requests")]
    found = case({}, **facts)
    assert found.where(spot) == "python -c, line 1: import requests"
    assert found.where(spot[:3]) == f"python -c, line 1: {text}"
    assert found.where(["<compiled code of gevent>", 7, "x"]) == "compiled code of gevent"
    assert found.where(["<frozen runpy>", 7, "x"]) == "runpy of Python"
    assert found.where(["<__array__ internals>", 7, "x"]) == "generated code __array__ internals"
