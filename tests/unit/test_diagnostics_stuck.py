"""Whether a set-up has come to a standstill, from looks at it."""

from __future__ import annotations

import os
from typing import Any

import pytest

from diagnostics.stuck import Look, dumped, patching, place, standstill

APP = os.path.abspath("app.py")
FACTS = {"cwd": os.getcwd(), "library": "/usr/lib/python3.11", "executable": "/usr/bin/python3", "path": []}


def told(*spots: tuple[str, int, str], modules: int = 100) -> dict[str, Any]:
    """Return the agent's report; the spots are innermost first."""
    return {"at": list(spots), "modules": modules, "facts": FACTS}


STILL = told(("/usr/lib/python3.11/threading.py", 9, "wait"), (APP, 3, "run"), (APP, 7, "<module>"))


def looks(*given: tuple[Any, float], every: float = 2.5) -> list[Look]:
    return [Look(20 + number * every, report, used) for number, (report, used) in enumerate(given)]


def test_the_same_line_without_using_a_cpu_is_a_standstill() -> None:
    assert standstill(looks((STILL, 1.0))) == ""
    assert standstill(looks((STILL, 1.0), (STILL, 1.0))) == ""
    assert standstill(looks((STILL, 1.0), (STILL, 1.1), (STILL, 1.2))) == "waits"


def test_a_loop_that_calls_this_and_that_is_a_standstill() -> None:
    other = told(("/usr/lib/python3.11/socket.py", 8, "connect"), (APP, 2, "run"), (APP, 7, "<module>"))
    assert standstill(looks((STILL, 1.0), (other, 1.0), (STILL, 1.0))) == "waits"


@pytest.mark.parametrize(
    "second",
    [told(*STILL["at"], modules=101), told((APP, 8, "<module>"))],
    ids=["a module more", "another line"],
)
def test_an_import_that_goes_on(second: dict[str, Any]) -> None:
    assert standstill(looks((STILL, 1.0), (second, 1.0), (second, 1.0))) == ""
    assert standstill(looks((STILL, 1.0), (second, 1.0), (second, 1.0), (second, 1.0))) == "waits"


def test_what_computes_or_has_no_cpu_is_waited_for_up_to_a_limit() -> None:
    assert standstill(looks((STILL, 1.0), (STILL, 3.0), (STILL, 5.0))) == ""
    assert standstill(looks((STILL, 11.0), (STILL, 13.0), (STILL, 15.5))) == "computes"


def test_no_reaction_to_a_signal_is_a_standstill_too() -> None:
    assert standstill(looks((None, 1.0), (None, 1.0), (None, 1.0))) == "waits"
    assert standstill(looks((None, 21.0), (None, 23.0), (None, 25.0))) == ""
    assert standstill(looks((None, 1.0), (STILL, 1.0), (None, 1.0))) == ""


def test_place_is_the_users_line_and_what_it_called() -> None:
    assert place(STILL) == "app.py:3, in wait at /usr/lib/python3.11/threading.py:9"
    assert place(told((APP, 3, "run"), (APP, 7, "<module>"))) == "app.py:3"
    assert place(told(("<string>", 1, "<module>"))) == ""


def test_place_from_what_faulthandler_wrote() -> None:
    stack = (
        'Current thread 0x00007f (most recent call first):\n  File "/old.py", line 1 in <module>\n'
        "Current thread 0x00007f [python] (most recent call first):\n"
        f'  File "/opt/lib/python3.12/queue.py", line 5 in get\n  File "{APP}", line 4 in <module>\n'
        '  File "<frozen importlib._bootstrap>", line 6 in _load\n'
        '  File "/agent/boot.py", line 5 in _main\n'
    )
    found = dumped(stack, "/agent")
    assert found is not None
    assert place(found) == "app.py:4, in get at /opt/lib/python3.12/queue.py:5"
    assert dumped("", "/agent") is None


@pytest.mark.parametrize(
    ("spots", "by", "says"),
    [
        (
            [
                ("/usr/lib/python3.11/importlib/__init__.py", 90, "import_module"),
                ("/usr/lib/python3.11/site-packages/django/conf/__init__.py", 7, "setup"),
                ("/usr/lib/python3.11/site-packages/gevent/monkey/api.py", 9, "patch_module"),
            ],
            (APP, 3, "<module>"),
            "and is at /usr/lib/python3.11/site-packages/django/conf/__init__.py:7,"
            " in import_module at /usr/lib/python3.11/importlib/__init__.py:90: nothing",
        ),
        (
            [(APP, 5, "load")],
            (APP, 3, "<module>"),
            "at app.py:3 has not returned and is at app.py:5: nothing",
        ),
        ([], None, "patch_all() has not returned: nothing"),
    ],
)
def test_call_that_patches_is_told_with_where_it_waits(spots: Any, by: Any, says: str) -> None:
    report = told(*spots)
    report["patching"] = {"function": "patch_all", "by": by, "stack": spots}
    assert says in patching(report)
    assert patching(STILL) == ""
