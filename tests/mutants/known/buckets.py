"""Bugs in places and buckets: what is one, what one is opened with, and what a dataset in it is made of."""

from __future__ import annotations

from known.mutant import Mutant

__all__ = ["KNOWN"]

PLACES = "tests/unit/test_bucket_place.py::"
SETTINGS = "tests/integration/test_bucket_settings.py::"

KNOWN = (
    Mutant(
        "a URL that names no bucket is a directory",
        "-o gs://bucket/x stores everything in a directory of the name gs: and ends with 0",
        "place",
        "local_place(text)",
        "text",
        (f"{PLACES}test_a_url_is_no_directory[gs://b/p]",),
    ),
    Mutant(
        "any text is the address of a store",
        "--endpoint-url without a scheme ends in a panic of Rust, with a traceback of 40 lines",
        "_endpoint",
        "url and (problem := endpoint_problem(url))",
        "(problem := '')",
        (f"{SETTINGS}test_what_cannot_be_is_named[--endpoint-url-localhost:9000]",),
    ),
    Mutant(
        "a panic of Rust is no error",
        "what obstore cannot do ends the process with a traceback",
        "translated",
        'type(error).__name__ != "PanicException"',
        "True",
        (f"{SETTINGS}test_a_panic_is_one_line",),
    ),
)
