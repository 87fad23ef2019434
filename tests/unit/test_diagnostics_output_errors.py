"""The error in what a command wrote, as programs of many kinds end."""

from __future__ import annotations

import pytest

from diagnostics.output_errors import error_in

TRACE = 'Traceback (most recent call last):\n  File "app.py", line 3, in <module>\n    load()\n    ~~~~^^\n'
LOG = "[2026-01-31 10:00:00 +0000] [7]"
CASES = {
    "exception": (TRACE + "ValueError: no settings\n", "ValueError: no settings"),
    "name without text": (TRACE + "AssertionError\n", "AssertionError"),
    "text that ends in a bracket": (
        TRACE + "RuntimeError: cannot load: [\n  'a',\n  'b',\n]\n",
        "RuntimeError: cannot load: [ 'a', 'b', ]",
    ),
    "pydantic": (
        TRACE + "pydantic_core._pydantic_core.ValidationError: 1 validation error for Settings\n"
        "api_key\n  Field required [type=missing, input_value={}, input_type=dict]\n",
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for Settings api_key"
        " Field required [type=missing, input_value={}, input_type=dict]",
    ),
    "sqlalchemy": (
        TRACE + "KeyError: 'a'\n\nDuring handling of the above exception, another exception occurred:\n\n"
        f"{TRACE}app.Problem: no table\n[SQL: select]\n(Background: https://sqlalche.me/e/20/e3q8)\n",
        "app.Problem: no table [SQL: select] (Background: https://sqlalche.me/e/20/e3q8)",
    ),
    "syntax": (
        '  File "app.py", line 1\n    foo(\n       ^\nSyntaxError: never closed\n',
        "SyntaxError: never closed",
    ),
    "exception group": (
        "  + Exception Group Traceback (most recent call last):\n"
        '  |   File "app.py", line 1, in <module>\n  |     raise group\n'
        "  | ExceptionGroup: many (1 sub-exception)\n  +-+---------------- 1 ----------------\n"
        "    | ValueError: a\n    +------------------------------------\n",
        "ExceptionGroup: many (1 sub-exception) ValueError: a",
    ),
    "gunicorn": (
        f"{LOG} [ERROR] Exception in worker process\n{TRACE}ModuleNotFoundError: No module named 'nope'\n"
        f"{LOG} [INFO] Worker exiting (pid: 7)\n{LOG} [ERROR] Shutting down: Master\n"
        f"{LOG} [ERROR] Reason: Worker failed to boot.\n",
        "ModuleNotFoundError: No module named 'nope'",
    ),
    "rich": (
        "╭──── Traceback (most recent call last) ────╮\n│ app.py:3 in <module>                      │\n"
        "╰───────────────────────────────────────────╯\nValueError: x\n",
        "ValueError: x",
    ),
    "typer": (
        "Usage: app [OPTIONS]\nTry 'app --help' for help.\n╭─ Error ───────────────╮\n"
        "│ Missing option '--x'. │\n╰───────────────────────╯\n",
        "Error Missing option '--x'.",
    ),
    "click, in colours": (
        "Usage: celery [OPTIONS]\nTry 'celery --help' for help.\n\n\x1b[31mError: \n"
        "Unable to load celery application.\nThe module nope was not found.\x1b[0m\n",
        "Error: Unable to load celery application. The module nope was not found.",
    ),
    "argparse": ("usage: app [-h] x\napp: error: x is required\n", "app: error: x is required"),
    "pytest": (
        "==== ERRORS ====\n____ ERROR collecting test_app.py ____\nTraceback:\n"
        "E   ModuleNotFoundError: No module named 'nope'\n==== short test summary info ====\n"
        "ERROR test_app.py\n==== 1 error in 0.06s ====\n",
        "ModuleNotFoundError: No module named 'nope' … ==== 1 error in 0.06s ====",
    ),
    "node": (
        "node:a:1\n  throw err;\n  ^\n\nError: Cannot find module 'x'\nRequire stack: [\n  '/a'\n]\n",
        "Error: Cannot find module 'x' Require stack: [ '/a' ]",
    ),
    "JSON": (
        '{\n  "error": "no connection",\n  "details": [\n    1\n  ]\n}\n',
        '{ "error": "no connection", "details": [ 1 ] }',
    ),
    "sys.exit with a text": (
        "started\nconfig invalid: {\n  'port': 'a number',\n  'hosts': [\n  ]\n}\n",
        "config invalid: { 'port': 'a number', 'hosts': [ ] }",
    ),
    "no error": ("reads\nsettings are\n{'a': 1,\n 'b': [\n   2]}\n", "{'a': 1, 'b': [ 2]}"),
    "shell": ("/bin/sh: 1: foo: not found\n", "/bin/sh: 1: foo: not found"),
    "hook of a server": (
        "[2026-11-28] [1] [ERROR] HTTPS would be serialized here: own-lock at a.py:2: why\n"
        "[2026-11-28] [1] [ERROR] Reason: Worker failed to boot.\n",
        "HTTPS would be serialized here: own-lock at a.py:2: why",
    ),
    "hook that logs why it ends gunicorn": (
        f"{LOG} [INFO] Booting worker with pid: 7\n{LOG} [ERROR] refusing: DATABASE_URL is missing\n"
        f"{LOG} [INFO] Worker exiting (pid: 7)\n{LOG} [ERROR] Worker (pid:7) exited with code 3.\n"
        f"{LOG} [ERROR] Shutting down: Master\n{LOG} [ERROR] Reason: Worker failed to boot.\n",
        f"{LOG} [ERROR] refusing: DATABASE_URL is missing",
    ),
    "hook that prints why it ends gunicorn": (
        f"{LOG} [INFO] Booting worker with pid: 7\nthe vault is sealed\n"
        f"{LOG} [ERROR] Worker (pid:7) exited with code 4.\n{LOG} [ERROR] Reason: App failed to load.\n",
        "the vault is sealed",
    ),
    "worker that gunicorn boots again and again": (
        f"{LOG} [ERROR] two are left\n{LOG} [CRITICAL] refusing: migrations are pending\n"
        f"{LOG} [ERROR] Worker (pid:7) exited with code 1.\n{LOG} [INFO] Booting worker with pid: 8\n"
        "[2026-01-31 10:00:01 +0000] [8] [ERROR] two are left\n"
        "[2026-01-31 10:00:01 +0000] [8] [CRITICAL] refusing: migrations are pending\n",
        "[2026-01-31 10:00:01 +0000] [8] [ERROR] two are left …"
        " [2026-01-31 10:00:01 +0000] [8] [CRITICAL] refusing: migrations are pending",
    ),
    "gunicorn that listens when its workers have ended": (
        f"the vault is sealed\n{LOG} [INFO] Control socket listening at /run/gunicorn.ctl\n",
        "the vault is sealed",
    ),
    "gunicorn alone": (f"{LOG} [ERROR] Shutting down: Master\n", f"{LOG} [ERROR] Shutting down: Master"),
    "nothing": ("\n", ""),
}


@pytest.mark.parametrize(("output", "error"), CASES.values(), ids=CASES)
def test_error_in_output(output: str, error: str) -> None:
    assert error_in(output) == error


def test_long_error_is_cut() -> None:
    assert error_in(TRACE + f"ValueError: {'x' * 1000}\n").startswith("ValueError: xxx")
    assert len(error_in(TRACE + f"ValueError: {'x' * 1000}\n")) == 300
    assert len(error_in("x" * 1000)) == 300


@pytest.mark.timeout(20)
def test_output_of_any_form_is_read_quickly() -> None:
    for text in (
        " " * 60000,
        "|" * 60000,
        "│ " * 30000,
        "a." * 30000,
        "[\n" * 30000,
        "\x1b[" * 30000,
        "- " * 30000,
    ):
        error_in(text)
        error_in(TRACE + text)
