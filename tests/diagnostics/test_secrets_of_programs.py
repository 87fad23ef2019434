"""No secret of a command is shown, whoever prints it, and one that is cut takes nothing else with it."""

from __future__ import annotations

import sys

import pytest
from program_parts import PATCH

KEY = "qX7zLongSecret99"
REFUSED = f"""\
{PATCH}
import os, sys

def value():
    words = [word for word in sys.argv if {KEY!r} in word]
    return os.environ.get("API_TOKEN") or os.environ.get("PLAIN") or words[0].rpartition("=")[2]

raise SystemExit("error: the server refused the key %r" % value())
"""
LOADED = f"""\
{PATCH}
import os, sys

os.environ["API_TOKEN"] = "".join(["qX7z", "LongSecret99"])  # as from a file of settings
"""
ENDS = {
    "exits": 'raise SystemExit("error: refused " + os.environ["API_TOKEN"])\n',
    "raises": 'raise RuntimeError("refused " + os.environ["API_TOKEN"])\n',
    "leaves": 'sys.stderr.write("refused " + os.environ["API_TOKEN"]); sys.stderr.flush(); os._exit(3)\n',
}
COMMANDS = {
    "option": [sys.executable, "app.py", "--api-key", KEY],
    "joined": [sys.executable, "app.py", f"--password={KEY}"],
    "variable": ["env", f"API_TOKEN={KEY}", sys.executable, "app.py"],
    "shell": ["sh", "-c", f"API_TOKEN={KEY} {sys.executable} app.py"],
    "exported": ["bash", "-c", f"export API_TOKEN={KEY};{sys.executable} app.py"],
    "script": ["sh", "start.sh"],
    "option-of-a-script": ["sh", "option.sh"],
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_secret_of_the_command_is_not_in_the_error_of_the_program(run, write, tmp_path, command):
    write("app", REFUSED)
    (tmp_path / "start.sh").write_text(f"export API_TOKEN={KEY}\nexec {sys.executable} app.py\n")
    (tmp_path / "option.sh").write_text(f"{sys.executable} app.py --api-key {KEY}\n")
    answer = run("--junit", "j.xml", "--report", "r.html", "--", *command)
    assert answer.code == 4
    written = [(tmp_path / name).read_text() for name in ("j.xml", "r.html")]
    for text in (answer.line, *written):
        assert "the server refused the key" in text
        assert KEY not in text


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_secret_that_the_program_puts_into_its_environment_is_not_in_its_error(run, write, end):
    write("app", LOADED + end)
    answer = run("--", sys.executable, "app.py")
    assert answer.code == 4
    assert "refused ***" in answer.line
    assert KEY not in answer.err


def test_secret_that_an_import_puts_into_its_environment_is_not_in_its_error(run, write):
    answer = run("--app", write("proj", LOADED + ENDS["raises"]))
    assert answer.code == 4
    assert "refused ***" in answer.line


def test_key_as_a_service_issues_it_is_cut_under_any_name(run, write):
    key = "sk_live_4eC39HqLyjWDarjtT1zdp7dc"
    write("app", REFUSED)
    answer = run("--", sys.executable, "app.py", env={"PLAIN": key})
    assert answer.code == 4
    assert "refused the key '***'" in answer.line


def test_variable_in_place_of_the_command_is_cut(run):
    answer = run("--", f"API_TOKEN={KEY}", sys.executable, "app.py")
    assert answer.code == 2
    assert answer.line == "diagnostics: API_TOKEN=***: there is no such command"


HEADERS = {
    "authorization": ["-H", f"Authorization: Bearer {KEY}"],
    "key": ["-H", f"X-Api-Key: {KEY}"],
    "cookie": [f"--header=Cookie: a={KEY}; b={KEY}"],
    "open-quote": [f'{{"token":"{KEY}'],
    "many": ["-v", "-v", "-v", "-v", "-H", "Authorization: " + KEY * 9],
}


@pytest.mark.parametrize("words", HEADERS.values(), ids=HEADERS)
def test_header_of_the_command_takes_nothing_of_the_message_with_it(run, write, tmp_path, words):
    write("app", "")
    answer = run("--junit", "j.xml", "--report", "r.html", "--", sys.executable, "app.py", *words)
    assert answer.code == 4
    for text in (answer.line, (tmp_path / "j.xml").read_text(), (tmp_path / "r.html").read_text()):
        assert "no process of it loads gevent" in text
        assert KEY not in text


def test_header_in_a_shell_ends_with_its_quote(run, write):
    write("app", f"{PATCH}raise RuntimeError('Authorization: x')\n")
    line = f"printf '%s' 'Authorization: Bearer {KEY}'; exec {sys.executable} app.py"
    answer = run("--", "sh", "-c", line)
    assert answer.code == 4
    assert f"printf '%s' 'Authorization: ***'; exec {sys.executable} app.py ended with" in answer.line
    assert "RuntimeError: Authorization: *** (app.py:" in answer.line
    assert answer.line.endswith(", before it made an HTTPS connection")


def test_header_of_a_process_without_the_diagnostics_takes_no_advice_with_it(run, write):
    begin = f"import sys; sys.path += {[path for path in sys.path if path]}"
    write("app", f"{begin}\nimport gevent\ngevent.sleep(0.5)\nraise SystemExit('bad {KEY}')\n")
    answer = run("--", sys.executable, "-S", "app.py", "-H", f"Authorization: {KEY}")
    assert answer.code == 4
    assert "leave -S out" in answer.line
    assert "bad ***" in answer.line
    assert KEY not in answer.line
