"""Bugs about a DEST that somebody else has changed, moved or removed, and about what reports replace."""

from __future__ import annotations

from known.mutant import Mutant

__all__ = ["KNOWN"]

CHANGED = "tests/faults/test_changed_destination.py::"
MOUNTS = "tests/integration/test_bind_mounts.py::"
MOVED = "tests/faults/test_moved_directories.py::"
BYTES = "tests/unit/test_undecodable.py::"
WRITTEN = "tests/unit/test_written_files.py::"

KNOWN = (
    Mutant(
        "text that is not UTF-8 is no damage",
        "one bit of a KEY.json: verify, or each run that goes on with the part, ends with a traceback",
        "is_stated",
        "UNDECODABLE",
        "msgspec.DecodeError",
        (f"{BYTES}test_metadata_of_a_sample_is_read_whole",),
    ),
    Mutant(
        "torn metadata counts",
        "a sample counts whose URL is no text, and its shard can never be published",
        "is_stated",
        "metadata.decode()",
        "pass",
        (f"{BYTES}test_metadata_of_a_sample_is_read_whole",),
    ),
    Mutant(
        "nesting without end in a plan",
        "status and verify end with a traceback",
        "PlanDirectory._decoded",
        "UNDECODABLE",
        "ValueError",
        (f"{BYTES}test_damaged_plan[deep]",),
    ),
    Mutant(
        "lock of a process that there cannot be",
        "a lock file with twenty digits: OverflowError",
        "is_alive",
        "(ProcessLookupError, OverflowError)",
        "ProcessLookupError",
        (f"{BYTES}test_number_that_no_process_has",),
    ),
    Mutant(
        "moved journal is not missed",
        "`rm -rf DEST/.downloader` during a run: exit 0, and no journal",
        "Destination.displaced",
        "self.home.is_in_place()",
        "True",
        (f"{CHANGED}test_destination_that_goes_away_during_a_run[remove_home-files]",),
    ),
    Mutant(
        "moved destination is not missed",
        "`mv DEST elsewhere` during a run: exit 0, and DEST is not there",
        "Destination.displaced",
        "is_at(config.local_output, self._root)",
        "True",
        (f"{CHANGED}test_destination_that_goes_away_during_a_run[replace-tar]",),
    ),
    Mutant(
        "cut log is not missed",
        "journal.sqlite-wal is cut during a run: exit 0, and a journal that nothing can read",
        "Rows.lost",
        "found.st_size >= seen.st_size",
        "True",
        (f"{CHANGED}test_destination_that_goes_away_during_a_run[cut_log-files]",),
    ),
    Mutant(
        "changed ledger is believed",
        "bits of a ledger flip during a run: exit 0, and verify refuses the journal for ever",
        "ActiveBatch.done",
        "item_states.sums_of(self.states) != counted",
        "False",
        (f"{CHANGED}test_ledger_that_is_changed_during_a_run_is_not_believed",),
    ),
    Mutant(
        "a list in DEST by another path is replaced",
        "mount --bind DEST elsewhere, read elsewhere/list.csv: a download replaces the list",
        "reserved_names",
        "name_below(target, root) or os.path.relpath(target, root)",
        "os.path.relpath(target, root)",
        (f"{MOUNTS}test_list_in_the_destination_is_not_replaced[d1-d2]",),
    ),
    Mutant(
        "a link in what is mounted into DEST is followed",
        "mount --bind e DEST/e, --report e/r.json, where r.json is somebody's link",
        "_parts",
        'point.startswith(f"{directory}/")',
        "False",
        (f"{MOUNTS}test_a_link_in_what_is_mounted_into_the_destination_is_not_followed",),
    ),
    Mutant(
        "unsafe process where the destination is gone",
        "DEST moved while workers boot: exit 3, or what failed for that reason",
        "Supervisor._stop",
        "self._destination.displaced() or error",
        "error",
        (f"{CHANGED}test_home_that_goes_away_while_a_child_boots[worker]",),
    ),
    Mutant(
        "report over a list",
        "--report list.csv: the list is overwritten, exit 0",
        "check_overwrites",
        "file in seen",
        "False",
        (f"{WRITTEN}test_file_that_is_read_is_not_written[report-list.csv]",),
    ),
    Mutant(
        "report over a login",
        "--report FILE that is --auth-file: the login is gone",
        "Config.own_files",
        "('--auth-file', self.auth_file)",
        "('--auth-file', '')",
        (f"{WRITTEN}test_file_that_is_read_is_not_written[report-auth]",),
    ),
    Mutant(
        "report over the lock",
        "--report DEST/.downloader/journal.sqlite: the journal is gone",
        "_own_directory",
        "os.path.basename(above) == HOME",
        "False",
        (f"{WRITTEN}test_files_of_the_tool_are_not_written",),
    ),
    Mutant(
        "crafted Parquet shard is opened",
        "verify takes gigabytes for a file of kilobytes",
        "ShardComparison._parquet",
        "not _is_whole(digesting, stated, exact=True)",
        "False",
        (f"{CHANGED}test_crafted_parquet_shard_is_not_opened",),
    ),
    Mutant(
        "Parquet that nobody vouches for is read as it is",
        "the same where there is no record",
        "batches",
        "_check(table.metadata)",
        "None",
        (f"{CHANGED}test_crafted_parquet_shard_is_not_opened",),
    ),
    Mutant(
        "edited rows are in the manifest",
        "rows beside a shard that somebody has changed are copied, exit 0",
        "_is_published",
        "(digesting.size, other.md5 and digesting.md5) != (other.size, other.md5)",
        "False",
        (f"{CHANGED}test_rows_that_were_not_published_are_not_read",),
    ),
    Mutant(
        "compressed tar without end",
        "verify of a zst of kilobytes takes minutes",
        "read_tar",
        "Bounded(file, most)",
        "Bounded(file, sys.maxsize)",
        (f"{CHANGED}test_shard_without_end_is_not_read_to_it[zst]",),
    ),
    Mutant(
        "verify follows links",
        "a directory of DEST is a link: all files agree, and a run refuses them all",
        "DirectoryKind.inspector.inspect",
        "open_below(root, where)",
        "os.open(root / where, os.O_RDONLY)",
        (f"{CHANGED}test_verify_follows_no_link_below_the_destination",),
    ),
    Mutant(
        "directory that is moved is trusted",
        "`mv DEST/host elsewhere` during a run: all that follows is stored there, and exit 0",
        "FilesSink.astray",
        "self._identity_at(held.path, known) != held.identity",
        "False",
        (f"{MOVED}test_a_directory_that_is_moved_away_takes_no_file_with_it[mirror]",),
    ),
)
