"""Bugs in checksums that responses state, and in the records of a manifest."""

from __future__ import annotations

from syntax import Replacement

from known.mutant import Mutant

__all__ = ["KNOWN"]

KILL = "tests/faults/test_manifest_kill.py::"
MANIFEST = "tests/integration/test_manifest.py::"
CHECKSUMS = "tests/integration/test_checksums.py::"
STATED = "tests/unit/test_stated_checksum.py::"
SPOOL = "tests/unit/test_record_spool.py::"
RECORD = "self._recorder.record(self.seq, tasks, list(map(len, bodies)), crcs, hashes)"

KNOWN = (
    Mutant(
        "CR in a CSV manifest without quotes",
        "one row of a manifest becomes two, of which one has a single field",
        "_csv_field",
        "_quoted(_as_text(value))",
        "_quoted(_as_text(value)) if set(_as_text(value)) & set(',\"\\n') else _as_text(value)",
        ("tests/integration/test_shard_schemas.py::test_manifest_in_csv_is_read_alike_by_all",),
    ),
    Mutant(
        "record after the names",
        "the row of a file that was stored when its worker was killed has neither status nor ETag",
        "RecordedBatch.put_all",
        f"if tasks:\n    {RECORD}",
        "pass",
        (f"{KILL}test_a_worker_that_dies_when_a_file_has_its_name[auto]",),
        more=(
            Replacement(
                "RecordedBatch.put_all",
                "self._count(count, old, size, replaced)",
                f"self._count(count, old, size, replaced)\n{RECORD}",
            ),
        ),
    ),
    Mutant(
        "what takes long to read ends a run that records files",
        "a large file that the user puts there meanwhile: exit code 4, and nothing says why",
        "RecordedBatch.put_all",
        "(FetchError, DestinationError, Unprepared)",
        "(FetchError, DestinationError)",
        (
            "tests/faults/test_kept_files.py::"
            "test_large_files_of_the_user_come_while_small_ones_are_requested[more1]",
        ),
    ),
    Mutant(
        "record of other bytes",
        "the row of a file that was fetched twice has the ETag of bytes that were not stored",
        "records",
        "[states[at] - 2 for at in indices] != sizes or [crcs[at] for at in indices] != sums",
        "False",
        (f"{SPOOL}test_a_record_is_used_for_the_bytes_that_are_stored",),
    ),
    Mutant(
        "records by their places only",
        "with --relist the row of a file has the URL and the ETag of another one",
        "records",
        "sum_of([names[at] for at in indices]) != frame.names",
        "False",
        (f"{SPOOL}test_a_frame_of_another_listing_is_not_used",),
    ),
    Mutant(
        "records of an earlier pass by name only",
        "with --relist two items that share a file have the URL of one of them",
        "KnownRecords._of_item",
        "'SELECT record FROM item WHERE name = ? AND url = ? AND size = ? AND crc = ?'",
        "'SELECT record FROM item WHERE name = ? AND (url = ? OR 1) AND size = ? AND crc = ?'",
        ("tests/integration/test_relist.py::test_what_is_known_belongs_to_a_row_not_to_a_name",),
    ),
    Mutant(
        "records are lost when a source is read again",
        "--relist empties the rows of all files that did not change",
        "Destination._read_again",
        "known_records.write(self.home, self.journal, keep=begun_anew)",
        "",
        (f"{MANIFEST}test_a_source_that_is_read_again",),
    ),
    Mutant(
        "digest of the coded content compared with decoded bytes",
        "with --compressed each file whose response has a digest fails",
        "stated_checksum",
        "body.coding and body.decoded",
        "False",
        (f"{CHECKSUMS}test_digests_of_the_coded_content[True]",),
    ),
    Mutant(
        "hash of the whole object for a part of it",
        "where a source requests ranges, each of them fails",
        "_all",
        "body.status != 200",
        "False",
        (f"{STATED}test_a_field_is_used_where_it_covers_the_stored_bytes",),
    ),
    Mutant(
        "checksum-mismatch retried as often as others",
        "a server with a wrong digest is asked for each file six times",
        "Retries.again",
        "retry and task.mismatches == 1",
        "retry",
        (f"{CHECKSUMS}test_what_differs_from_its_response_is_not_stored",),
    ),
    Mutant(
        "digest of a file of any size",
        "a manifest with --hash reads a file that was replaced to its end, however large it is",
        "JournalRows._hash_of",
        "os.fstat(fd).st_size != written.size",
        "False",
        ("tests/integration/test_manifest.py::test_files_that_were_there_before",),
    ),
)
