"""Changes after which a document is not true any more."""

from __future__ import annotations

from known.mutant import Mutant

__all__ = ["KNOWN"]

DOCUMENTS = "tests/unit/test_documents.py::"
NUMBERS = f"{DOCUMENTS}test_every_number_is_that_of_the_code"
PAGE = "tests/plugins/test_contributing.py::"

KNOWN = (
    Mutant(
        "a limit is not the documented one",
        "docs/design.md says how many items a batch has, and they are twice as many",
        "BATCH_ITEMS",
        "1000",
        "2000",
        (NUMBERS,),
    ),
    Mutant(
        "memory is not what the documents say",
        "docs/design.md says what held responses take at most, and they take twice as much",
        "BUFFER",
        "512 << 10",
        "1 << 20",
        (NUMBERS,),
    ),
    Mutant(
        "a documented code is retried, against its row",
        "docs/usage.md says that a row that cannot be read is not tried again",
        "FAILURES",
        "Kind(False, Blame.FILE, 'a row of the list that cannot be read')",
        "Kind(True, Blame.FILE, 'a row of the list that cannot be read')",
        (f"{DOCUMENTS}test_every_failure_code_is_documented_as_it_is",),
    ),
    Mutant(
        "a documented default differs in a Config",
        "the command waits for another time than download(Config(…)) does",
        "LimitOptions",
        "'2m'",
        "'3m'",
        (f"{DOCUMENTS}test_defaults_are_those_of_the_config",),
    ),
    Mutant(
        "a documented key of the report has another name",
        "a script that reads what docs/report.md describes finds no such key",
        "Report",
        "encoded: int = 0",
        "in_a_coding: int = 0",
        (f"{DOCUMENTS}test_the_report_is_documented_key_by_key",),
    ),
    Mutant(
        "a kind of source must have what the documented steps leave out",
        "who follows CONTRIBUTING.md has a source that ends in AttributeError",
        "SourceForm",
        "editable: bool",
        "editable: bool\nlistable: bool",
        (f"{PAGE}test_the_page_leaves_out_nothing_that_a_kind_must_have",),
    ),
)
