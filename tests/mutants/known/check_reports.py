"""Bugs in the reports of the diagnostics: what a pipeline shows, and what a person reads."""

from __future__ import annotations

from known.mutant import Mutant

__all__ = ["KNOWN"]

RUNS = "tests/diagnostics/test_reports.py::"
UNIT = "tests/unit/test_diagnostics_reports.py::"

KNOWN = (
    Mutant(
        "control characters of a program in its reports",
        "a CI cannot read the JUnit XML of a check, and a page shows code in another order than it runs",
        "shown",
        "each.isprintable() or each in '\\n\\t'",
        "True",
        (
            f"{UNIT}test_junit_is_read_whatever_text_is_in_it",
            f"{UNIT}test_text_of_the_program_is_shown_and_is_never_markup",
        ),
    ),
    Mutant(
        "secrets of a program in its reports",
        "an artifact that everybody can fetch has the password in a line of code",
        "shown",
        "redact(text)",
        "text",
        (f"{UNIT}test_secrets_are_in_no_report",),
    ),
    Mutant(
        "a comma or colon in a path ends a property of a workflow command",
        "the annotation is at no file, or at another",
        "_property",
        "_data(shown(text)[:_LONGEST_TITLE]).replace(':', '%3A').replace(',', '%2C')",
        "_data(shown(text)[:_LONGEST_TITLE])",
        (f"{UNIT}test_annotation_is_escaped_and_one_line",),
    ),
    Mutant(
        "paths of annotations begin at the current directory",
        "in a repository with several services, GitHub shows the annotation at no line",
        "commands",
        "variables.get('GITHUB_WORKSPACE') or here()",
        "here()",
        (f"{UNIT}test_annotation_is_relative_to_the_checkout",),
    ),
    Mutant(
        "a quoted line of a program is taken for a workflow command",
        "the log of a workflow has errors that no tool has found",
        "_print",
        "without_commands(text.get())",
        "text.get()",
        (f"{RUNS}test_line_of_a_program_is_no_command_of_a_workflow",),
    ),
    Mutant(
        "paths of reports are tried at the end only",
        "after minutes of measuring a typing error in the path is told",
        "ReportFiles.check",
        "_check(option, path)",
        "pass",
        (f"{RUNS}test_path_that_cannot_be_written_ends_it_before_anything_is_started",),
    ),
    Mutant(
        "no report where the probe could not be run",
        "a CI shows the result of an earlier check",
        "_examined",
        "return Outcome(question, None, code, time.monotonic() - began, text, expected)",
        "raise",
        (f"{RUNS}test_what_cannot_be_probed_is_an_error_in_every_report",),
    ),
    Mutant(
        "times of another clock in a timeline",
        "on Python 2 a page shows every request at the server at once, or never",
        "timeline_of",
        "start - _CLOCKS_AGREE <= came <= end + _CLOCKS_AGREE",
        "True",
        (f"{UNIT}test_timeline_without_a_common_clock_has_no_times_of_the_server",),
    ),
    Mutant(
        "a hold is not known to be of a request",
        "the timeline does not show who held the hub",
        "Timeline.begin",
        "self._frames[id(frame)] = index",
        "pass",
        (f"{RUNS}test_all_reports_of_the_classic_trap",),
    ),
)
