"""What the user has given to ``python -c``, by the arguments of the interpreter."""

from __future__ import annotations

import sys

import pytest

from diagnostics.agent.https_agent import places

TEXT = "import app\napp.run()"


@pytest.fixture
def told(monkeypatch):
    """Return the text of the command that an interpreter with these arguments has."""
    monkeypatch.setattr(places, "_told", [])
    monkeypatch.setattr(places, "sources", {})

    def ask(*arguments):
        monkeypatch.setattr(sys, "orig_argv", ["python", *arguments], raising=False)
        places._told.clear()
        return places.command()

    return ask


@pytest.mark.parametrize(
    "arguments",
    [
        ("-c", TEXT),
        ("-c" + TEXT,),
        ("-uc", TEXT, "-m", "other"),
        ("-W", "ignore", "-Xdev", "-X", "utf8", "-Wd", "-c", TEXT),
        ("--check-hash-based-pycs", "always", "-Ic", TEXT),
    ],
)
def test_text_of_a_command(told, arguments):
    assert told(*arguments) == TEXT
    assert places.sources == {places.COMMAND: TEXT.split("\n")}


@pytest.mark.parametrize(
    "arguments", [("app.py", "-c", TEXT), ("-m", "app", "-c", TEXT), ("-mc", TEXT), ("-",), (), ("-c",)]
)
def test_other_program(told, arguments):
    assert told(*arguments) == ""


@pytest.mark.parametrize(
    "text",
    [
        "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5, pipe_handle=7)",
        "import sys;exec(eval(sys.stdin.readline()))",
    ],
)
def test_command_that_a_library_has_written_is_not_the_users(told, text):
    assert told("-c", text) == ""
    assert places.sources == {}
