"""Argv and environment of what is started, and why a Python that was started so has no agent."""

from __future__ import annotations

import json

import pytest

from diagnostics.agent.https_agent.entrance import IGNORED, VARIABLE, Entrance, entered, options, refusal

WAY = Entrance("/run/spec.json", ["/agent"], {"MORE": "1"})
HAS = {VARIABLE: "/run/spec.json", "PYTHONPATH": "/agent"}


@pytest.mark.parametrize(
    ("words", "letters"),
    [
        ("app.py -I", ""),
        ("-I app.py", "I"),
        ("-sEB -m app -S", "sEB"),
        ("-c -I", ""),
        ("-Ic pass -E", "I"),
        ("-W error -E app.py", "E"),
        ("-Werror -X dev -I", "I"),
        ("-bX E -I -", "bI"),
        ("--check-hash-based-pycs never -S app.py", "S"),
        ("--version -I", "I"),
        ("-- -I", ""),
        ("- -I", ""),
        ("", ""),
    ],
)
def test_options_of_the_interpreter(words, letters):
    assert "".join(letter for _, letter in options(["python", *words.split()])) == letters


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ("-I app.py -I", "app.py -I"),
        ("-sE -m app", "-s -m app"),
        ("-Im app", "-m app"),
        ("-IEc pass", "-c pass"),
        ("-bIX dev app.py", "-bX dev app.py"),
        ("-E -I -E x", "x"),
        ("-W I -u x", "-W I -u x"),
    ],
)
def test_options_that_ignore_the_environment_are_dropped(words, left):
    assert entered(["python", *words.split()], {}, WAY, True)[0] == ["python", *left.split()]
    assert entered(["sh", *words.split()], {}, WAY, False)[0] == ["sh", *words.split()]


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        ({}, "/agent"),
        ({"PYTHONPATH": ""}, "/agent"),
        ({"PYTHONPATH": "src"}, "/agent:src"),
        ({"PYTHONPATH": "own:/agent:src"}, "/agent:own:src"),
        ({"PYTHONPATH": ":src"}, "/agent::src"),
        ({"PYTHONPATH": "/agent:src", VARIABLE: "/run/spec.json"}, "/agent:src"),
    ],
)
def test_environment_has_what_leads_to_the_agent(environ, path):
    _, env = entered(["python", "app.py"], environ, WAY, True)
    assert env == {VARIABLE: "/run/spec.json", "PYTHONPATH": path, "MORE": "1"}
    assert refusal(["python", "app.py"], env, WAY) == ""


def test_what_another_controller_starts_is_its():
    """A check that is started within a watch."""
    environ = {"PYTHONPATH": "/its/agent", VARIABLE: "/another"}
    assert entered(["python", "-I", "x"], environ, WAY, True) == (["python", "-I", "x"], environ)


def test_program_keeps_its_value_of_a_variable():
    assert entered(["python"], {"MORE": "own"}, WAY, True)[1]["MORE"] == "own"


def test_what_isolation_ignores_is_kept_from_the_interpreter():
    own = {"PYTHONPATH": "src", "PYTHONWARNINGS": "error", "A": "b"}
    _, env = entered(["python", "-I", "app.py"], own, WAY, True)
    assert (env["PYTHONPATH"], env["PYTHONSAFEPATH"], env["PYTHONNOUSERSITE"]) == ("/agent", "1", "1")
    assert "PYTHONWARNINGS" not in env
    assert json.loads(env[IGNORED])["variables"] == {"PYTHONPATH": "src", "PYTHONWARNINGS": "error"}


@pytest.mark.parametrize(
    ("words", "environ", "customized", "why"),
    [
        ("app.py", HAS, [], ""),
        ("-S app.py", HAS, [], "-S leaves out site, through which the diagnostics come in"),
        ("-Is app.py", HAS, [], "-I ignores PYTHONPATH"),
        ("-m app -I", HAS, [], ""),
        (
            "app.py",
            {"PATH": "/bin"},
            [],
            "PYTHONPATH and HTTPS_DIAGNOSTICS were removed from its environment",
        ),
        ("app.py", {**HAS, "PYTHONPATH": "src"}, [], "PYTHONPATH was set to src"),
        ("app.py", {"PYTHONPATH": "src"}, [], "PYTHONPATH was set to src"),
        ("app.py", {VARIABLE: "/run/spec.json"}, [], "PYTHONPATH was unset"),
        ("app.py", {**HAS, "PYTHONPATH": "own:/agent"}, [], ""),
        (
            "app.py",
            {**HAS, "PYTHONPATH": "own:/agent:src"},
            ["own", "src"],
            "PYTHONPATH has another sitecustomize in front, in own",
        ),
        ("app.py", {**HAS, "PYTHONPATH": "/agent:src"}, ["src"], ""),
        ("app.py", {"PYTHONPATH": "/agent"}, [], f"the variable {VARIABLE} was removed"),
    ],
)
def test_reason_why_the_agent_is_not_there(words, environ, customized, why):
    assert refusal(["python", *words.split()], environ, WAY, customized) == why
