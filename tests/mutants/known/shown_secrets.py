"""Bugs in what the diagnostics show of secrets: too little is cut, or what follows one with it."""

from __future__ import annotations

from known.mutant import Mutant

__all__ = ["KNOWN"]

RUNS = "tests/diagnostics/test_secrets_of_programs.py::"
UNIT = "tests/unit/test_diagnostics_redaction.py::"
KEYS = "tests/unit/test_core_issued_keys.py::"

KNOWN = (
    Mutant(
        "what was cut is cut again with what follows it",
        "of a command with a header the reason is not told why there is no verdict",
        "quoted",
        "_quoted[text] = None",
        "pass",
        (
            f"{UNIT}test_what_was_cut_is_not_cut_again",
            f"{RUNS}test_header_of_the_command_takes_nothing_of_the_message_with_it",
        ),
    ),
    Mutant(
        "a header in the text of a shell reaches to the end of the line",
        "nobody sees which program of the line was checked",
        "_shown",
        "is_secret_param(field[2])",
        "False",
        (f"{RUNS}test_header_in_a_shell_ends_with_its_quote",),
    ),
    Mutant(
        "what is cut of the command is not cut of the program's error",
        "the key that was given as an option is in the log and in the artifacts of a pipeline",
        "note_secrets",
        "note_cut(word, cut)",
        "pass",
        (f"{RUNS}test_secret_of_the_command_is_not_in_the_error_of_the_program",),
    ),
    Mutant(
        "only the whole value is known as secret",
        "the token is shown that a header had behind its scheme",
        "_secrets_in",
        "token = _SCHEME.sub('', value, 1)",
        "token = value",
        (f"{UNIT}test_what_is_cut_of_a_command_is_cut_of_all_text",),
    ),
    Mutant(
        "short words are known as secret",
        "paths and sentences have holes",
        "_is_telling",
        "len(value) >= _SURELY or not (value.isalpha() or value.isdecimal())",
        "True",
        (f"{UNIT}test_usual_words_and_numbers_stay",),
    ),
    Mutant(
        "the environment of the probed process is not told",
        "a token that a file of settings brings in is in the error that is shown",
        "Agent.tell",
        "variables.news()",
        "{}",
        (f"{RUNS}test_secret_that_the_program_puts_into_its_environment_is_not_in_its_error",),
    ),
    Mutant(
        "a process that leaves at once does not tell its environment",
        "the token is in the last words of a program that ends with os._exit",
        "Agent._at_os_exit",
        "if news:\n    self.tell('leaves', environment=news)",
        "pass",
        (f"{RUNS}test_secret_that_the_program_puts_into_its_environment_is_not_in_its_error",),
    ),
    Mutant(
        "keys that services issue are known by their names only",
        "a key in a variable of another name is in the error that is shown",
        "redact",
        "ISSUED.sub(_CUT, text)",
        "text",
        (
            f"{KEYS}test_key_is_cut_wherever_it_stands",
            f"{RUNS}test_key_as_a_service_issues_it_is_cut_under_any_name",
        ),
    ),
)
