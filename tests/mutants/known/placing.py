"""Bugs in the places of the diagnostics: lines that nobody can open, lines that did no harm; starts."""

from __future__ import annotations

from known.mutant import Mutant

__all__ = ["KNOWN"]

NO_FILE = "tests/diagnostics/test_places_in_no_file.py::"
STARTS = "tests/unit/test_diagnostics_starts.py::"
INSPECT = "tests/diagnostics/test_inspect.py::"
SCENARIO = "tests/diagnostics/scenarios/test_scenarios.py::test_scenario"

KNOWN = (
    Mutant(
        "what python -c runs is no one's code",
        "a program in python -c is blamed on a library, or on <string>",
        "_name_of",
        "_in_command(code)",
        "False",
        (f"{NO_FILE}test_statement_of_a_command_and_its_remedy_as_printed",),
    ),
    Mutant(
        "every python -c is the user's",
        "a process of multiprocessing is blamed on a line that the standard library has written",
        "command",
        "_OF_PROGRAMS.search(text)",
        "False",
        (
            "tests/unit/test_diagnostics_agent_places.py::test_command_that_a_library_has_written_is_not_the_users",
        ),
    ),
    Mutant(
        "a name in a traceback is a file",
        "code that exec runs is shown as a file that does not exist",
        "_file",
        "_exists(https_inspection.absolute(name))",
        "True",
        (f"{NO_FILE}test_code_that_exec_runs_is_told_at_the_line_that_runs_it",),
    ),
    Mutant(
        "the whole line of python -c is the statement",
        "of twenty statements in a line it is not said which",
        "_statement",
        "';' in line and column is not None",
        "False",
        (f"{STARTS}test_the_statement_of_a_line_with_several",),
    ),
    Mutant(
        "the agent takes whatever was imported then for what led to the client",
        "an import that led to no client is named as the one that came too early",
        "_Imports._leads",
        "root == goal",
        "True",
        ("tests/diagnostics/test_inspection_file.py::test_a_copy_needs_the_standard_library_alone",),
    ),
    Mutant(
        "the agent does not know when an import ended",
        "an import that came too early has no line",
        "_Imports._may_lead",
        "self._span[0] <= max((self._ended[each] for each in loaded)) < self._span[1]",
        "True",
        (f"{INSPECT}test_a_static_cause_has_its_place",),
    ),
    Mutant(
        "no call patches, for the agent",
        "an import below the patching is named where an import that nothing shows led to it",
        "_Source._look_at_call",
        "self.steps.append((node.lineno, None, False))",
        "pass",
        ("tests/diagnostics/test_inspection_file.py::test_a_copy_needs_the_standard_library_alone",),
    ),
    Mutant(
        "truststore is in ssl alone",
        "truststore from before the patching is told as a patching that came too late",
        "_of_truststore",
        "'truststore' in module.split('.')",
        "'truststore' in module.split('.') and context is kind and name == 'ssl'",
        (f"{INSPECT}test_static_causes",),
    ),
    Mutant(
        "an import of ssl is where it begins",
        "import ssl is blamed where nothing is patched",
        "Case.subject",
        "[self.seen['imports'][name] for name in _SUBJECTS if name in self.seen['imports']]",
        "[self.seen['imports'][name] for name in (*_SUBJECTS, 'ssl') if name in self.seen['imports']]",
        (f"{SCENARIO}[ssl_imported_unpatched]",),
    ),
    Mutant(
        "every recursion is of ssl",
        "a program that recurses is told to patch first, at an import that did no harm",
        "too_late",
        "not _in_ssl(case)",
        "False",
        (f"{SCENARIO}[recursion_of_its_own]",),
    ),
    Mutant(
        "a pool of threads is where it waits",
        "an executor that was made before patching is blamed on the standard library",
        "_made",
        "event['cls'] in names",
        "False",
        (f"{STARTS}test_pool_of_threads_is_told_at_the_line_that_made_it",),
    ),
    Mutant(
        "a comment is code",
        "a commented-out line is named as the one that made the lock",
        "_code",
        "token.type == tokenize.COMMENT",
        "False",
        (f"{STARTS}test_lock_is_told_at_the_line_that_made_it",),
    ),
    Mutant(
        "every gevent starts modules",
        "the command that is printed ends with an error of an older gevent",
        "_with_monkey",
        "runs_modules",
        "True",
        (f"{STARTS}test_gevent_that_starts_no_modules_is_given_the_script_beside",),
    ),
    Mutant(
        "the workers of xdist are patched with the command",
        "the command that is printed ends with an internal error of xdist",
        "starts",
        "not spread",
        "True",
        (f"{STARTS}test_workers_of_xdist_with_the_arguments_of_the_command",),
    ),
    Mutant(
        "a remedy names the package that is not there",
        "the line that is printed for a vendored copy ends with an ImportError, or does nothing",
        "_extract_truststore",
        "calls[-1]['module'] if calls else 'truststore'",
        "'truststore'",
        (f"{STARTS}test_remedy_names_the_copy_that_is_there",),
    ),
    Mutant(
        "truststore is the cause wherever it is in ssl",
        "a lock is called truststore, though pyOpenSSL carries the connections",
        "truststore",
        "not within and not deep",
        "not calls and not made",
        ("tests/diagnostics/scenarios/test_scenarios.py::test_scenario[truststore_unused]",),
    ),
    Mutant(
        "a moment in pyOpenSSL is the cause",
        "a call in a hook that blocks is called sockets that are not patched",
        "Case._telling",
        "sum(map(waited, held)) >= sum(map(waited, self.blocked)) / 3",
        "held",
        ("tests/diagnostics/scenarios/test_scenarios.py::test_scenario[pyopenssl_and_a_call]",),
    ),
    Mutant(
        "nobody watches the hub while the program is observed",
        "a program that stops in a real lock gets neither line nor cause",
        "Probe.guard",
        "watch.start()",
        "None",
        ("tests/diagnostics/test_real_locks.py::test_command_that_stops_in_a_real_lock_has_its_line",),
    ),
    Mutant(
        "a semaphore of two lets one through",
        "what is said of a semaphore of two is not what the server saw",
        "_several",
        "served.mean < 0.75 * served.peak",
        "False",
        ("tests/unit/test_diagnostics_causes.py::test_how_many_a_semaphore_lets_through",),
    ),
)
