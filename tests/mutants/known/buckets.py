"""Bugs in places and buckets: what is one, what one is opened with, and what a dataset in it is made of."""

from __future__ import annotations

from known.mutant import Mutant

__all__ = ["KNOWN"]

PLACES = "tests/unit/test_bucket_place.py::"
BUCKET = "tests/integration/test_bucket_datasets.py::"
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
    Mutant(
        "a bucket is not looked at before a job begins",
        "a job with another journal overwrites the dataset that is there, and ends with 0",
        "ShardKind.check_begin",
        "_dataset_in_bucket(config) if config.is_bucket else _dataset_in(config.output)",
        "'' if config.is_bucket else _dataset_in(config.output)",
        (f"{BUCKET}test_a_job_begins_only_where_no_other_dataset_is[moto]",),
    ),
    Mutant(
        "only the first page of a bucket is looked at",
        "behind a thousand objects of a directory, the dataset is not seen, and is overwritten",
        "_dataset",
        "range(_MOST_PAGES)",
        "range(1)",
        (f"{BUCKET}test_what_may_be_a_dataset[moto]",),
    ),
)
