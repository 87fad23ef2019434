"""The line that is named for an application that raises during its setup."""

from __future__ import annotations

from typing import Any

import pytest

from diagnostics.launch import _place

FROZEN = ["<frozen importlib._bootstrap>", 129, "release"]
LIBRARY = ["/py/lib/python3.11/importlib/__init__.py", 126, "import_module"]
OWN = ["/proj/app.py", 6, "<module>"]
CALL = {
    "module": "eventlet.patcher",
    "function": "monkey_patch",
    "caller": ["/proj/settings.py", 5, "begin"],
}
INJECTION = {**CALL, "module": "urllib3.contrib.pyopenssl"}


@pytest.mark.parametrize(
    ("stack", "calls", "at"),
    [
        ([FROZEN, LIBRARY], [CALL], " (eventlet.monkey_patch() at settings.py:5)"),
        ([FROZEN, OWN], [CALL], " (eventlet.monkey_patch() at settings.py:5)"),
        ([FROZEN, OWN], [INJECTION], " (app.py:6)"),
        ([OWN, LIBRARY], [CALL], " (app.py:6)"),
        ([FROZEN, LIBRARY], [], " (/py/lib/python3.11/importlib/__init__.py:126)"),
        ([FROZEN], [], ""),
    ],
)
def test_error_line_is_the_users(stack: list[Any], calls: list[Any], at: str) -> None:
    facts = {"cwd": "/proj", "path": [], "library": "/py/lib/python3.11", "executable": "/py/bin/python"}
    assert _place({"stack": stack, "seen": {"injections": calls, "patches": []}, "facts": facts}) == at
