"""Bugs in what is published of shards: what verify compares, what names have, what a server sends back."""

from __future__ import annotations

from known.mutant import Mutant

__all__ = ["KNOWN"]

VERIFY = "tests/integration/test_shard_verify.py::"
MEMBERS = "tests/integration/test_shard_members.py::"
EXISTING = "tests/integration/test_shard_existing.py::"
BUCKET = "tests/integration/test_shard_bucket.py::"
SECRETS = "tests/faults/test_secrets.py::"
CSV = "tests/unit/test_manifest_csv.py::"

KNOWN = (
    Mutant(
        "verify compares contents only",
        "a bit that flips in KEY.txt or KEY.json is in a dataset of which all files agree",
        "_Sample.seen",
        "self._whole and (sums is None or self._sum in sums)",
        "True",
        (f"{VERIFY}test_sample_that_is_removed_is_missed[crc32]",),
    ),
    Mutant(
        "verify does not look beside the shards",
        "rows and stats may be damaged, removed or swapped, and all files agree",
        "ShardComparison.left",
        "self._others(shard, stated)",
        "()",
        (f"{VERIFY}test_files_beside_shards_are_named_and_can_be_had_again",),
    ),
    Mutant(
        "a sample counts that is in a damaged shard",
        "one bit in a header: one sample is stored elsewhere, all agrees, readers get a fifth of it",
        "ShardComparison.problem",
        "found is not None and read.is_whole",
        "found is not None",
        (f"{VERIFY}test_a_damaged_shard_is_named_until_it_is_published_anew[tar]",),
    ),
    Mutant(
        "what is whole in a damaged shard is fetched again",
        "ten thousand requests for one bit, and what the servers do not have any more is lost",
        "ShardSink._recover",
        "lease.only and sealed is None",
        "False",
        ("tests/integration/test_shards_run.py::test_damaged_shard_is_found_and_its_samples_stored_again",),
    ),
    Mutant(
        "a shard of which nothing is known is whole",
        "after a power cut the run ends with 4 for ever, and verify says that all agrees",
        "ShardComparison._is_known",
        "self._files.stats(shard) is not None",
        "True",
        (f"{VERIFY}test_shard_of_which_nothing_says_what_was_published",),
    ),
    Mutant(
        "a damaged shard is published anew as another",
        "the damaged one stays, and readers of all shards get its samples twice, or an error",
        "ShardNumbers.again",
        "state == _DAMAGED",
        "False",
        ("tests/integration/test_shards_run.py::test_damaged_shard_is_found_and_its_samples_stored_again",),
    ),
    Mutant(
        "verify takes the sample of another item",
        "of two items of one key and equal bytes one is removed, and both are found",
        "ShardComparison._item",
        "keys[written.index]",
        "min((k for k in keys if k.split('%~')[0] == keys[written.index].split('%~')[0]), key=len)",
        (f"{VERIFY}test_sample_that_is_removed_is_missed[crc32]",),
    ),
    Mutant(
        "verify does not compare the indexes",
        "shards.json has a wrong number of samples or another MD5, and nobody is told",
        "JobComparison.finish",
        "self.indexes([file for _, found in sorted(files.items()) for file in found or ()])",
        "[]",
        (f"{VERIFY}test_files_beside_shards_are_named_and_can_be_had_again",),
    ),
    Mutant(
        "verify forgets that the indexes were written",
        "shards.json is damaged or gone: the first verify names it, the second says that all agree",
        "Indexed.renew",
        "self._note.write(count + comma + _DUE)",
        "self._note.unlink(missing_ok=True)",
        (f"{VERIFY}test_indexes_are_named_until_they_are_written_again[gone-shards.json]",),
    ),
    Mutant(
        "indexes that were never written are right",
        "a run ends with 4, as a file of the user has the name; verify says that all agree",
        "JobComparison.finish",
        "not complete",
        "True",
        (f"{VERIFY}test_index_that_a_run_could_not_write[keep]",),
    ),
    Mutant(
        "no record of what was published",
        "what is beside the samples of a shard cannot be verified",
        "_Files.publish",
        "write_record(self._home, job.number, record)",
        "pass",
        (f"{VERIFY}test_files_beside_shards_are_named_and_can_be_had_again",),
    ),
    Mutant(
        "a server chooses what a reader unpickles",
        "a file x.pickle becomes a member of that name: .decode() of webdataset runs what the server sent",
        "ShardBatch.members",
        "extension in EXECUTED and not self._unsafe",
        "False",
        (f"{MEMBERS}test_content_gets_no_extension_that_a_reader_executes",),
    ),
    Mutant(
        "KEY.json in types of its own",
        "1 beside 1.5 where the table has doubles: load_dataset gives 6 for 6.5, in silence",
        "_fitted",
        "kinds is not None",
        "False",
        ("tests/integration/test_shard_schemas.py::test_metadata_in_tars_has_the_types_of_the_job",),
    ),
    Mutant(
        "a member's name of 101 bytes",
        "the longest key with the longest extension, which --member has, too, ends the run with 4",
        "encode_sample",
        "extension if len(extension) <= _LONGEST_EXTENSION else UNKNOWN",
        "extension",
        (f"{MEMBERS}test_longest_key_and_extensions_fit",),
    ),
    Mutant(
        "other kept columns in the middle of a job",
        "two schemas in one dataset",
        "JobAgreement._check_kept",
        "self._columns(job) == self._named_columns or not (mine.kept or self._named_columns)",
        "True",
        (f"{MEMBERS}test_kept_columns_of_a_job_cannot_change[parquet]",),
    ),
    Mutant(
        "beginning of a credential is published",
        "of a token with `token=` in it all but its end stands in manifests, as the name of a parameter",
        "forms_of",
        "_EQUAL_SIGN.finditer(form, SHORTEST)",
        "()",
        ("tests/unit/test_core_redact.py::test_secret_that_looks_like_a_parameter_is_cut_whole",),
    ),
    Mutant(
        "what a server sends back is published",
        "a redirect to a path with the token that the server got stands in manifests, rows and KEY.json",
        "Echoes.cut",
        "pattern_of(own) if own else None",
        "None",
        (f"{SECRETS}test_what_a_server_sends_back_of_credentials_is_cut[tar-requests]",),
    ),
    Mutant(
        "name of a parameter counts by its letters only",
        "`max_tokens` and `signal` are cut from URLs, and files have digests for names",
        "_is_secret",
        "return _counts(rest, naming)",
        "return found",
        (
            "tests/unit/test_core_redact.py::test_harmless_parameter_names[max_tokens]",
            "tests/unit/test_core_redact.py::test_harmless_parameter_names[signal]",
        ),
    ),
    Mutant(
        "last word of a parameter counts with its number only as itself",
        "`pass1` and `auth2` stand in manifests and names with their values",
        "_ends_secretly",
        "words[-1].rstrip(_DIGITS) or words[-1]",
        "words[-1]",
        ("tests/unit/test_core_redact.py::test_secret_parameter_names[pass1]",),
    ),
    Mutant(
        "words of the name of a parameter count as one only",
        "`session_key`, `oobCode` and `service_ticket` stand in manifests and names with their values",
        "_ends_secretly",
        "''.join(words[-2:])",
        "''.join(words)",
        ("tests/unit/test_core_redact.py::test_secret_parameter_names[data[session_key]]",),
    ),
    Mutant(
        "what a server sends back of a redirect is published",
        "a signature of a redirect, which its target repeats in an ETag, stands in manifests and rows",
        "RequestsClient._open",
        "attempt.hops.append(url)",
        "",
        (f"{SECRETS}test_what_a_server_sends_back_of_a_redirect_is_cut[tar-requests]",),
    ),
    Mutant(
        "the file of somebody else under the name of a shard is replaced in silence",
        "the only copy of something is lost, and nobody is told",
        "give_name",
        "path.move_new(target)",
        "path.move(target)",
        (f"{EXISTING}test_files_are_kept_and_the_run_goes_on_once_they_are_moved[keep]",),
    ),
    Mutant(
        "a bucket that tells nothing takes nothing",
        "with credentials that may only put objects (HEAD answers 403) no shard is stored",
        "Bucket.found",
        "is_denied(error)",
        "False",
        (f"{BUCKET}test_credentials_that_may_only_put[moto]",),
    ),
    Mutant(
        "text in a manifest without quotes",
        "duckdb guesses from the first rows that there are no quotes, and cannot read a later one",
        "_csv_field",
        "_quoted(_as_text(value))",
        "_quoted(_as_text(value)) if set(_as_text(value)) & set(',\"\\n\\r') else _as_text(value)",
        (f"{CSV}test_quotes_behind_the_rows_that_a_reader_looks_at",),
    ),
)
