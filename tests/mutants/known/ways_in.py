"""Bugs in how the diagnostics come into what a program starts, and in what is said where they do not."""

from __future__ import annotations

from known.mutant import Mutant

__all__ = ["KNOWN"]

WAYS = "tests/diagnostics/test_ways_in.py::"
ENTRANCE = "tests/unit/test_diagnostics_entrance.py::"
RELAY = "tests/diagnostics/test_watch_relay.py::"

KNOWN = (
    Mutant(
        "a watch takes the processes of a check for its own",
        "a check that is started by a watched program ends with a KeyError",
        "entered",
        "env.get(VARIABLE) not in (None, entrance.spec)",
        "False",
        (
            f"{ENTRANCE}test_what_another_controller_starts_is_its",
            "tests/faults/test_imports.py::test_diagnostics_with_python_m",
        ),
    ),
    Mutant(
        "a scrubbed environment loses the agent",
        "a pool of Pythons with an environment of their own has to be started a second time",
        "keep",
        "wrapping.replace(_posixsubprocess, 'fork_exec', forks)",
        "pass",
        (f"{WAYS}test_python_that_executes_another_one[pool-serial]",),
    ),
    Mutant(
        "an exec loses the agent",
        "what a tracing tool executes has to be started a second time",
        "keep",
        "keeper.execv",
        "lambda function: function",
        (f"{WAYS}test_python_that_executes_another_one[scrubs-and-executes-serial]",),
    ),
    Mutant(
        "isolation is lost with its option",
        "pex starts itself for ever, and an isolated program imports other modules than alone",
        "restore",
        "sys.flags = _flags(flags)",
        "pass",
        (f"{WAYS}test_dropped_options_are_not_missed[]",),
    ),
    Mutant(
        "what a shell starts is not started again",
        "a program behind a start script that sets PYTHONPATH is not probed",
        "_Watch._start_again",
        "raise _StartAgain(found.start)",
        "pass",
        (f"{WAYS}test_start_script[env-i-serial]",),
    ),
    Mutant(
        "a launcher that has loaded gevent is the program",
        "a serial program behind a patched launcher that scrubs its environment is called concurrent",
        "_Watch._check_command",
        "not self._processes.fetches",
        "not self._processes.loads_gevent",
        (f"{WAYS}test_patched_launcher_that_fetches_nothing[env-i--serial]",),
    ),
    Mutant(
        "a child that C code has forked is not asked",
        "the workers of uWSGI with --master are not probed",
        "Processes._wake",
        "now > since + _SILENT",
        "False",
        (
            "tests/diagnostics/test_probed_processes.py::test_worker_that_was_forked_in_c_is_probed[patched]",
        ),
    ),
    Mutant(
        "the innermost process is started again",
        "a worker that is fed by its parent is started without it, and ends or waits for ever",
        "Missed.to_start",
        "return chain[-1]",
        "return chain[0]",
        (f"{WAYS}test_program_that_starts_one_of_its_own_behind_a_start_script",),
    ),
    Mutant(
        "a process without the agent is not told of",
        "python -S is said to load no gevent, or to be no Python",
        "Missed.told",
        "found = self.with_gevent or self.every",
        "found = []",
        (f"{WAYS}test_python_without_site[command]",),
    ),
    Mutant(
        "a Python behind a shell is not watched",
        "watch reports nothing of a server whose start script sets PYTHONPATH",
        "_Reporter._entered",
        "self._start_again(found)",
        "False",
        (f"{RELAY}test_python_that_would_not_have_the_agent_is_watched[shell]",),
    ),
)
