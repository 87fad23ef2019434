"""Bugs in places and buckets: what is one, what one is opened with, and what a dataset in it is made of."""

from __future__ import annotations

from known.mutant import Mutant

__all__ = ["KNOWN"]

PLACES = "tests/unit/test_bucket_place.py::"
BUCKET = "tests/integration/test_bucket_datasets.py::"
INDEXES = "tests/integration/test_shard_indexes.py::"
SETTINGS = "tests/integration/test_bucket_settings.py::"
ACCESS = "tests/integration/test_bucket_access.py::"
ELSEWHERE = "tests/integration/test_bucket_elsewhere.py::"
PLAN_ELSEWHERE = "tests/cluster/test_plan_elsewhere.py::"
MANIFEST = "tests/integration/test_bucket_manifest.py::"

OUTAGES = "tests/faults/test_bucket_outages.py::"

KNOWN = (
    Mutant(
        "a run takes any bucket of that name for that of its job",
        "resumed with another --endpoint-url, a job ends with 0, and each store has a part of its dataset",
        "Destination._check_mounted",
        "leads_to(job.output, config.output)",
        "False",
        (f"{ELSEWHERE}test_finished_job_at_another_store[tar]",),
    ),
    Mutant(
        "verify believes an empty bucket",
        "all is recorded as damaged, and a run replaces good shards by those of links that still work",
        "_verify_with",
        "is_bucket(output)",
        "False",
        (f"{ELSEWHERE}test_finished_job_at_another_store[tar]",),
    ),
    Mutant(
        "a driver takes any bucket of that name for that of its plan",
        "a job that is run again with another --endpoint-url is complete, and the bucket is empty",
        "run_cluster",
        "found is not None and config.is_bucket and not config.restart",
        "False",
        (f"{PLAN_ELSEWHERE}test_plan_at_another_store[tar]",),
    ),
    Mutant(
        "verify of a plan believes an empty bucket",
        "all is recorded as damaged, and fetched again",
        "_Verifying.__init__",
        "is_bucket(output)",
        "False",
        (f"{PLAN_ELSEWHERE}test_plan_at_another_store[tar]",),
    ),
    Mutant(
        "shards in a staging are not there",
        "a driver that was killed before it gave shards their names cannot go on",
        "_two_files",
        "f'{ATTEMPTS}/{staging}/{name}'",
        "name",
        (f"{PLAN_ELSEWHERE}test_plan_at_another_store[tar]",),
    ),
    Mutant(
        "an object of the name of a shard is the shard",
        "another dataset at another store is taken for damage, and all is fetched again",
        "_published",
        "not md5 or found.attributes.get(MD5, md5) == md5",
        "True",
        (f"{ELSEWHERE}test_another_dataset_at_the_other_store",),
    ),
    Mutant(
        "who may not look has lost all",
        "with credentials that may only put objects, a job cannot be resumed",
        "_published",
        "names[:1] if denied else []",
        "[]",
        (f"{ELSEWHERE}test_credentials_that_may_only_list_or_look[PutOnly]",),
    ),
    Mutant(
        "a page of a proxy is an empty listing",
        "verify records all as damaged, though each object is there",
        "ShardComparison._read_file",
        "self._files.is_gone(name)",
        "not self._files.has(name)",
        (f"{ELSEWHERE}test_page_that_is_no_listing",),
    ),
    Mutant(
        "an outage of a bucket ends a run",
        "a gateway that is started again, or SlowDown for five seconds, ends an overnight run with 4",
        "Patience.__call__",
        "not self._waits(error) or left <= 0",
        "True",
        (f"{OUTAGES}test_an_outage_in_the_midst_of_a_run_is_waited_for[503]",),
    ),
    Mutant(
        "an answer of 503 is no outage",
        "a bucket that says SlowDown for five seconds ends a run",
        "refused",
        "_down(text) is not None",
        "False",
        (f"{OUTAGES}test_an_outage_in_the_midst_of_a_run_is_waited_for[503]",),
    ),
    Mutant(
        "a mistake in the command is waited for",
        "an address with a typing error, which no name server knows, is told after 20 seconds",
        "Patience._waits",
        "self._first is None",
        "True",
        (
            f"{OUTAGES}test_a_certificate_or_a_name_ends_a_run_at_once",
            f"{OUTAGES}test_patience_has_an_end",
        ),
    ),
    Mutant(
        "a publisher that waits for a bucket is taken for dead",
        "with a short --stall-timeout an answer that is late ends the run",
        "_show_life",
        "since is not None",
        "False",
        (f"{OUTAGES}test_a_publisher_that_waits_is_left_alone",),
    ),
    Mutant(
        "a part that hangs is not sent again",
        "one request without an answer costs a whole shard, or the run",
        "_retries",
        "min(3 * within, _LONGEST_RETRIES) if within > _ANSWER_WITHIN else within - 1",
        "within - 1",
        (f"{OUTAGES}test_a_request_that_hangs_is_sent_again[part]",),
    ),
    Mutant(
        "a slow line is a fault",
        "a part that takes longer than half a minute is sent again and again, and then the run ends",
        "_open",
        "max(sent // _SLOWEST_LINE, whole // _SLOWEST_STORE)",
        "0",
        (f"{OUTAGES}test_a_slow_line_that_goes_on_is_no_fault",),
    ),
    Mutant(
        "a short range is read on from",
        "verify asks a store that answers with too few bytes again for ever",
        "BucketFiles._range",
        "len(found) == length",
        "True",
        (f"{OUTAGES}test_a_range_that_is_short_is_an_error[7]",),
    ),
    Mutant(
        "the owner of a plan ends in an outage",
        "a bucket of a plan that does not answer for 45 seconds ends the job of a cluster",
        "BucketLock.check",
        "monotonic() > until or not pause(_LOOK_EVERY)",
        "True",
        (f"{OUTAGES}test_the_owner_of_a_plan_waits_for_its_bucket",),
    ),
    Mutant(
        "a bucket is reached as the environment says",
        "proxies and CAs of the environment are used for a bucket, though nobody asked for them",
        "_environment",
        "{name: os.environ.pop(name) for name in _AMBIENT if name in os.environ}",
        "{}",
        (f"{ACCESS}test_trust_is_what_the_options_say",),
    ),
    Mutant(
        "prefix that no client takes",
        "-o s3://BUCKET/a//b ends with 4 when its first shard is whole, at each resume",
        "prefix_problem",
        "prefix.split('/') if prefix else []",
        "[]",
        ("tests/unit/test_bucket_place.py::test_a_prefix_that_no_client_takes_is_refused",),
    ),
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
        "endpoint_of",
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
        "only shards themselves say which of a batch has a file",
        "after a retry, a manifest of a job into a bucket has no shard for any file of the batch",
        "ShardLocator._of_batch",
        "record is not None and record.stored is not None",
        "False",
        (f"{MANIFEST}test_each_file_is_in_the_shard_that_the_manifest_names[moto-index]",),
    ),
    Mutant(
        "a further shard has all files of its batch",
        "after a retry, a manifest names the further shard for what was stored before",
        "ShardLocator._place",
        "has_index(stored, written.index)",
        "True",
        (f"{MANIFEST}test_each_file_is_in_the_shard_that_the_manifest_names[moto-index]",),
    ),
    Mutant(
        "of two shards that had a file the former one counts",
        "after verify and a repair, a manifest names a shard that is to be removed",
        "ShardLocator._of_batch",
        "recorded.sort(reverse=True)",
        "recorded.sort()",
        (f"{MANIFEST}test_what_was_damaged_is_where_it_is_published_anew[moto]",),
    ),
    Mutant(
        "only the first page of a bucket is looked at",
        "behind a thousand objects of a directory, the dataset is not seen, and is overwritten",
        "_dataset",
        "range(_MOST_PAGES)",
        "range(1)",
        (f"{BUCKET}test_what_may_be_a_dataset[moto]",),
    ),
    Mutant(
        "a lost shard stays in the indexes of a bucket",
        "shards.json lists a shard that is not there, and verify says for ever that the next run mends it",
        "_Published.__init__",
        "frozenset(compared.lost)",
        "frozenset()",
        (f"{BUCKET}test_a_lost_or_damaged_shard_is_published_anew[moto]",),
    ),
    Mutant(
        "stats that change are believed",
        "a bit that flips in the stats of a shard is in shards.json, or takes the shard out of it",
        "_Published.files",
        "read_record(self._home, shard)",
        "None",
        (f"{INDEXES}test_stats_that_change_are_written_again_and_those_of_others_do_not_count",),
    ),
    Mutant(
        "stats that change stay as they are",
        "what is beside a shard is damaged for ever, although the job knows what it was",
        "_Published._check_stats",
        "_has_md5(self._directory / name, record)",
        "True",
        (f"{INDEXES}test_stats_that_change_are_written_again_and_those_of_others_do_not_count",),
    ),
    Mutant(
        "a shard of which nothing is known is left out in silence",
        "a shard without a record, whose stats are damaged, is in no index, and the run ends with 0",
        "_Published._files_of_stats",
        "self._tell(name)",
        "pass",
        (f"{INDEXES}test_a_run_says_that_it_cannot_write_them_again[lost]",),
    ),
    Mutant(
        "a shard of another job in a bucket is replaced",
        "two runs under one prefix replace each other's shards, both with 0",
        "Bucket._publish",
        "found is not None and found[1] and (not is_ours) and (not self._of_slice)",
        "False",
        (
            "tests/integration/test_shard_bucket.py::test_shard_of_another_run_with_this_prefix_is_not_replaced[moto]",
        ),
    ),
)
