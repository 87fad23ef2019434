"""Bugs in publishing files, in the ownership of names, and in journal and ledger."""

from __future__ import annotations

from syntax import Replacement

from known.mutant import Mutant

__all__ = ["KNOWN"]

CLAIMS = "tests/faults/test_claims.py::"
HOST = "tests/faults/test_host.py::"
PROCESSES = "tests/faults/test_processes.py::"
SIGNALS = "tests/faults/test_signals.py::"
SINKS = "tests/unit/test_sinks.py::"
SOURCES = "tests/integration/test_sources.py::"
SYSTEMS = "tests/faults/test_file_systems.py::"
TAKEN = "tests/faults/test_names_taken.py::"
RELIST = "tests/integration/test_relist.py::"
RESUME = "tests/integration/test_resume.py::"
LISTING = "tests/faults/test_hostile_listing.py::"

KEPT = "tests/faults/test_kept_files.py::"
WRONG = "tests/faults/test_wrong_state_files.py::"
CHANGED = "tests/faults/test_changed_destination.py::"

KNOWN = (
    Mutant(
        "a note without words is a defect",
        "an emptied shards.json.md5 ends every further run of the job with exit code 4",
        "_Known.__init__",
        'pairwise([*words, ""])',
        'zip(words, [*words[1:], ""], strict=True)',
        ("tests/faults/test_damaged_notes.py::test_damage_is_mended_or_named[tar-empty]",),
        seconds=120,
    ),
    Mutant(
        "the advice is to remove the key of names",
        "a job whose name-key has another owner is ended by following the advice",
        "without_copy",
        "not error.removable",
        "True",
        (
            "tests/faults/test_name_key.py::test_advice_about_a_key_or_journal_that_is_not_ours_can_be_followed",
        ),
    ),
    Mutant(
        "what a killed process has not written wholly is left to the next worker",
        "without O_TMPFILE a partial file stays in DEST for ever where its item is never stored",
        "take_back",
        "unfinished = {index: (-1, 0) for index in in_flight}",
        "unfinished = {}",
        ("tests/integration/test_sinks_run.py::test_partial_file_of_a_killed_process_is_removed",),
    ),
    Mutant(
        "verify takes a file that the disk cannot read for damaged",
        "all files are recorded as damaged and fetched again, where their file system is dead",
        "DirectoryKind.inspector.inspect",
        "if is_unreadable(error):\n    raise unreadable(root / where, error) from error",
        "",
        (f"{SYSTEMS}test_verify_takes_a_disk_that_fails_for_no_damage",),
    ),
    Mutant(
        "another key of names is taken for that of the job",
        "name-key is damaged: --relist stores every file with a secret in its URL a second time, exit 0",
        "check_key",
        "digest in ('', key_digest(key))",
        "True",
        ("tests/faults/test_name_key.py::test_key_that_is_not_the_one_of_the_names[flipped-False]",),
    ),
    Mutant(
        "what a killed run has probed stays in DEST",
        "an empty directory .downloader-… is in DEST for ever",
        "Destination._open",
        "remove_probe(self._root)",
        "pass",
        ("tests/integration/test_job_begun.py::test_what_a_probe_of_names_has_left_is_removed",),
    ),
    Mutant(
        "columns of a manifest change in the middle of a job",
        "rows of before have an empty column where the list has values, and nothing says so",
        "JobAgreement._kept_columns",
        "has_shards(self._config) or self._config.recording",
        "has_shards(self._config)",
        ("tests/integration/test_job_begun.py::test_kept_columns_of_a_manifest_stay_the_same",),
    ),
    Mutant(
        "verify takes a file that may not be read for damaged",
        "chmod 644 of DEST: all files are recorded as damaged and fetched again",
        "is_unreadable",
        "code_of(error.errno or 0, Step.PLACE) != 'bad-name'",
        "is_of_disk(error)",
        (f"{SYSTEMS}test_verify_takes_what_may_not_be_read_for_no_damage[files-.-420]",),
    ),
    Mutant(
        "verify takes a mount point for a DEST of which all is lost",
        "the disk is not mounted: all files are recorded as damaged, and fetched again when it is",
        "check_mounted",
        "found.st_ctime_ns >= began_ns",
        "True",
        (f"{SYSTEMS}test_destination_whose_disk_is_not_mounted[files-]",),
    ),
    Mutant(
        "rows that say which shards there are may be missing",
        "a shard is published again beside the one that is there: all of its samples are there twice",
        "ShardNumbers.inspect",
        "without or (count and (first < 0 or last - first + 1 != count))",
        "False",
        (f"{WRONG}test_journal_that_does_not_know_all_shards", f"{WRONG}test_journal_that_knows_no_shard"),
    ),
    Mutant(
        "a journal without any shard is one of files",
        "a job of shards whose table is empty publishes all of them again",
        "Destination._open",
        "has_shards(config)",
        "False",
        (f"{WRONG}test_journal_that_knows_no_shard",),
    ),
    Mutant(
        "a number of the job is not looked at before it is used",
        "a journal with text in its place is called a defect in the downloader",
        "Journal._number",
        "not (text.isascii() and text.isdigit()) or len(text) > _DIGITS",
        "False",
        (f"{WRONG}test_what_a_journal_has_as_a_number_is_none",),
    ),
    Mutant(
        "an index is read to know whose it is",
        "a file of a terabyte in its place holds the end of the job up for hours",
        "_Known.has",
        "known in (size, -1)",
        "True",
        (f"{WRONG}test_what_has_another_size_is_not_read[sizes.json]",),
    ),
    Mutant(
        "what is in a mount point makes it a DEST",
        "a file that says that the disk is not mounted: the job goes on there, exit code 0",
        "_is_as_before",
        "found >= files",
        "found",
        (f"{SYSTEMS}test_destination_whose_disk_is_not_mounted[tar-NOT-MOUNTED]",),
    ),
    Mutant(
        "files that were kept are not those of the job",
        "a job that has kept all files cannot be run again",
        "_is_as_before",
        "found >= files",
        "False",
        (f"{SYSTEMS}test_destination_whose_files_were_all_kept_is_the_right_one",),
    ),
    Mutant(
        "what a killed worker has stored is forgotten without its directory",
        "DEST is moved after a kill: the job goes on in another one, exit code 0",
        "Destination._check_mounted",
        "count_left(self.home)",
        "0",
        (f"{SYSTEMS}test_destination_of_a_killed_run_that_is_not_there",),
    ),
    Mutant(
        "a run that writes no manifest takes other columns",
        "a later manifest has a column more, and no values where the list has some",
        "JobAgreement._check_kept",
        "not (mine.kept or self._named_columns)",
        "not mine.kept",
        ("tests/integration/test_job_begun.py::test_kept_columns_of_a_manifest_stay_the_same",),
    ),
    Mutant(
        "a job of an earlier version begins with this run",
        "a DEST that the user has emptied is taken for a mount point, until it is touched",
        "JobAgreement._check_output",
        "not began_ns and not is_empty(self._config.local_output)",
        "not began_ns",
        (f"{SYSTEMS}test_job_of_a_version_that_did_not_record_when_it_began[True]",),
    ),
    Mutant(
        "an index that could not be written counts as written",
        "a run ends with 4 since shards.json is the user's, and status calls the job complete",
        "ShardKind.complete",
        "indexed.renew()",
        "",
        (
            "tests/integration/test_shard_verify.py::"
            "test_complete_job_whose_index_gives_way_to_one_of_the_user[shards.json-file]",
        ),
    ),
    Mutant(
        "outcome of a shard without its checksum",
        "a flipped bit, or the outcome of another shard, gets into the journal",
        "read_sealed",
        "sealed.sum not in (None, _sum_of(shard, sealed))",
        "False",
        (f"{WRONG}test_outcome_of_another_shard_and_of_a_flipped_bit",),
    ),
    Mutant(
        "failures of no item taken from an outcome",
        "the journal is damaged, or each run ends with an IndexError",
        "read_sealed",
        "_check(sealed)",
        "",
        (f"{WRONG}test_outcome_of_a_shard_that_no_worker_wrote[False-failures0]",),
    ),
    Mutant(
        "sizes that no file has taken from a ledger",
        "verify and each run end with an OverflowError",
        "read",
        "states.forget_impossible()",
        "",
        (f"{WRONG}test_ledger_with_sizes_that_no_file_has",),
    ),
    Mutant(
        "table of records that is empty",
        "after a power cut each run ends with 4, and names another file",
        "KnownRecords.__init__",
        "known is not None and not has_table(known, 'known')",
        "False",
        (f"{WRONG}test_tables_of_what_was_known_before_a_source_is_read_again[records-known.sqlite-]",),
    ),
    Mutant(
        "part of another shard counted",
        "status says that a negative number of files is pending",
        "_unrecorded",
        "min(count, row.count)",
        "count",
        (f"{WRONG}test_part_of_another_shard_is_not_counted_beyond_its_items",),
    ),
    Mutant(
        "shards published in what has the path of DEST",
        "DEST is moved away during a run: shards count as stored that are elsewhere when it is put back",
        "Directory.__init__",
        "check_same(self._root.fd, root, which)",
        "",
        (f"{CHANGED}test_shards_are_not_published_in_what_takes_the_place_of_dest[tar-5]",),
    ),
    Mutant(
        "indexes written into what has the path of DEST",
        "DEST is moved away during a run: its indexes lack what is in it",
        "Destination.finish",
        "(problem := self.displaced()) is not None",
        "False",
        (f"{CHANGED}test_shards_are_not_published_in_what_takes_the_place_of_dest[tar-10]",),
    ),
    Mutant(
        "only the exact .downloader is reserved",
        "a name in another case reaches the journal of a job below DEST where the file system ignores case",
        "_is_reserved",
        "naming < _NAMING_6",
        "True",
        ("tests/unit/test_core_naming.py::test_escape",),
    ),
    Mutant(
        "a job that has begun gets other names",
        "a resumed job fetches .DownLoader again, under an escaped name",
        "_is_reserved",
        "naming < _NAMING_6",
        "False",
        ("tests/unit/test_core_naming.py::test_a_job_that_began_before_goes_on_with_its_names",),
    ),
    Mutant(
        "a kept file is the item's own",
        "--existing keep: an edited file is replaced after verify or --relist, with exit 0",
        "Worker._unkept",
        "batch.published(index, *outcome, KEPT)",
        "batch.published(index, *outcome, 0)",
        (
            f"{KEPT}test_kept_file_is_edited",
            f"{KEPT}test_report_counts_what_a_dead_worker_has_kept_and_replaced",
        ),
    ),
    Mutant(
        "a kept file that verify finds changed is the item's own",
        "--existing keep: the user edits a kept file, and after verify it is replaced, with exit 0",
        "Journal.mark_damaged",
        "lost.get(f.index, OWNED)",
        "OWNED",
        (f"{KEPT}test_kept_file_is_edited",),
    ),
    Mutant(
        "a kept file that a run finds changed is the item's own",
        "--existing keep: the user edits a kept file after a kill, and it is replaced, with exit 0",
        "reconcile",
        "mark.foreign",
        "False",
        (f"{KEPT}test_kept_file_is_edited_after_a_kill",),
    ),
    Mutant(
        "a damaged file is known by its time only",
        "--existing keep: DEST is copied after verify, a damaged file becomes the user's, with exit 0",
        "FilesWriter._claim_on",
        "claim.file == content_id(found.st_size, crc)",
        "False",
        (f"{KEPT}test_damaged_file_stays_the_items_own_where_the_destination_is_copied",),
    ),
    Mutant(
        "a damaged file that was requested again is not damaged",
        "verify ends with 0 while wrong bytes lie in DEST that it named, once the server has answered 404",
        "_Settling.left",
        "not owned or shards",
        "True",
        (f"{TAKEN}test_damaged_file_is_replaced_after_server_failures",),
    ),
    Mutant(
        "what a dead worker has replaced is new",
        "files of the user that a worker replaced before it died are missing in `replaced`",
        "_how",
        "mark.flags & REPLACED",
        "False",
        (f"{KEPT}test_report_counts_what_a_dead_worker_has_kept_and_replaced",),
    ),
    Mutant(
        "what nobody reported was not stored",
        "after Ctrl-C twice the report has 96 files, where thousands are stored and in the journal",
        "Supervisor._add_unreported",
        "self._destination.ledgers.unreported(left)",
        "Tally()",
        (f"{SIGNALS}test_report_of_a_run_that_was_ended_counts_what_is_stored",),
    ),
    Mutant(
        "a source is forgotten before it answers",
        "--relist of a server that is down empties the journal, and nothing seems to be stored",
        "Destination._read_again",
        "source_kind(self._config).editable",
        "True",
        ("tests/integration/test_relist.py::test_server_that_is_down_takes_nothing_back",),
    ),
    Mutant(
        "a file of an earlier pass is known by its name only",
        "--relist of an edited list: old bytes under a new URL, a manifest that pairs them, and exit 0",
        "Known._known",
        "row[0] == digest.url",
        "True",
        (f"{RELIST}test_what_is_known_belongs_to_a_row_not_to_a_name",),
    ),
    Mutant(
        "a new size or checksum of a row is not looked at",
        "--relist with a corrected checksum skips the file that does not have it",
        "Known._known",
        "digest.checksum in (0, checksum) and item.size in (-1, size)",
        "True",
        (f"{RELIST}test_what_is_known_belongs_to_a_row_not_to_a_name",),
    ),
    Mutant(
        "files of an earlier pass are somebody else's",
        "--relist of an edited list counts own files as replaced, and --existing keep keeps old bytes",
        "settle_contested",
        "name in ours",
        "False",
        (f"{RELIST}test_changed_row_of_standard_input",),
    ),
    Mutant(
        "the list is not read ahead for a changed row",
        "--relist fetches each row that has another URL twice, and throws the first one away as name-taken",
        "Known._superseding",
        "not self._is_known_ahead or any(row[2:] not in ((None, None), (seq, index)) for row in rows)",
        "True",
        (f"{RELIST}test_each_changed_row_is_fetched_once[replace]",),
    ),
    Mutant(
        "a changed row owns what another row has stored",
        "--relist of a list with a second row of a name replaces the file of the first one, with exit 0",
        "Known._superseding",
        "not self._is_known_ahead or any(row[2:] not in ((None, None), (seq, index)) for row in rows)",
        "False",
        (f"{RELIST}test_each_changed_row_is_fetched_once[replace]",),
    ),
    Mutant(
        "whatever has the name of a damaged file is the job's",
        "--relist replaces what the user has put in its place, whatever --existing says",
        "Known._is_of_user",
        "crc != 0 and not self._is_left(name, crc)",
        "False",
        (f"{KEPT}test_file_that_was_edited_since_verify_is_the_users_at_relist[keep-False-None]",),
    ),
    Mutant(
        "a contested name is a failure at once",
        "an interrupted run names files as name-taken that no other item owns, and status says complete",
        "Journal._settle",
        "f.code == _NAME_TAKEN",
        "False",
        (f"{TAKEN}test_contested_name_is_pending_until_its_owner_is_known[interrupted]",),
    ),
    Mutant(
        "a job that is read again begins anew",
        "--relist killed before it lists: --existing keep keeps old bytes under new URLs, with exit 0",
        "JobAgreement.agree",
        "not (self._journal.position().listed or read_again)",
        "not self.journal.position().listed",
        (f"{RELIST}test_edited_list_resumes_after_a_kill",),
    ),
    Mutant(
        "samples of an earlier run are stored again",
        "the report of a run that was ended counts what an earlier run had stored in the same shard",
        "WorkerLedgers.unreported",
        "min(len(known), count)",
        "0",
        (f"{SIGNALS}test_report_of_a_run_that_was_ended_counts_what_is_stored",),
    ),
    Mutant(
        "a smaller --limit ends a source earlier",
        "`--limit 10` on a job that is complete makes it not complete",
        "Journal.end",
        "limited and self.ended",
        "False",
        (f"{HOST}test_limit_then_the_remaining_files",),
    ),
    Mutant(
        "--limit is no end",
        "the run says complete, and status says not complete",
        "status",
        "journal.read",
        "journal.ended",
        (f"{HOST}test_limit_then_the_remaining_files",),
    ),
    Mutant(
        "verify must write",
        "on a full disk `verify` ends with 4 and reports nothing",
        "verify",
        "not home.is_full()",
        "True",
        (f"{HOST}test_full_disk",),
    ),
    # Publishing
    Mutant(
        "final name before the content",
        "a file has its final name before its content; a kill leaves a partial file",
        "FilesWriter.__init__",
        "self.crc = 0",
        "self.crc = 0\nwith contextlib.suppress(OSError):\n    self._link(leaf)",
        (
            f"{SINKS}test_file_appears_complete_or_not_at_all",
            "tests/faults/test_kill.py::test_kill_during_large_files[supervisor]",
        ),
    ),
    Mutant(
        "the errno of one file is the destination's",
        "a name or a size that the file system refuses ends the run, and every run after it",
        "code_of",
        "return _CODES[step].get(number, '')",
        "return ''",
        (
            f"{SYSTEMS}test_a_name_that_the_file_system_refuses_fails_alone[EPROTO-bad-name]",
            f"{SYSTEMS}test_a_file_larger_than_the_file_system_takes_fails_alone[files]",
        ),
    ),
    Mutant(
        "the errno of the destination is one file's",
        "a share whose permission is taken away: every file fails, and the run is complete",
        "FilesSink._refuses_all",
        "return error",
        "return None",
        (f"{SYSTEMS}test_a_destination_that_takes_nothing_any_more_ends_the_run[13]",),
    ),
    Mutant(
        "ports are written anew in each run",
        "a job that was begun where colons are refused has other names once they are taken",
        "Destination.config_of_job",
        "self.job.colon",
        "':'",
        (f"{SYSTEMS}test_ports_where_colons_are_refused[EINVAL]",),
    ),
    Mutant(
        "names in the encoding of the locale",
        "a name that the locale cannot express ends the run, and every run after it",
        "UTF8",
        "sys.getfilesystemencoding().lower() == 'utf-8'",
        "True",
        ("tests/faults/test_locale.py::test_names_outside_the_locale_are_stored[C-flat]",),
    ),
    Mutant(
        "final name before the content, small file",
        "a disk that fills up leaves a truncated file under its final name",
        "FilesSink.put",
        "if _write(fd, body) == len(body):\n"
        "    files = self.open_files\n"
        "    _link(_digits(fd), name, src_dir_fd=files, dst_dir_fd=root, follow_symlinks=True)\n"
        "    return NEW",
        "_link(str(fd), name, src_dir_fd=self.open_files, dst_dir_fd=root, follow_symlinks=True)\n"
        "if _write(fd, body) == len(body):\n"
        "    return NEW",
        (f"{SINKS}test_a_small_file_that_cannot_be_written_has_no_name",),
    ),
    Mutant(
        "rest of a large body counted wrongly",
        "what follows a large body in one read is counted wrongly: a file gets the bytes of another",
        "ResponseParser.feed",
        "self._left > 0",
        "self._left > len(data)",
        ("tests/fuzz/test_fuzz_wire.py::test_fuzz[reader]",),
    ),
    Mutant(
        "error status without a length is dropped",
        "the file never ends, and so the run does not end",
        "PipelinedConnection._on_close",
        "self._commit_window()",
        "",
        ("tests/fuzz/test_fuzz_wire.py::test_fuzz[pipeline]",),
    ),
    Mutant(
        "start of a large body counted wrongly",
        "the part that arrived with the headers is counted wrongly where it is left for the writer",
        "ResponseParser._inside",
        "len(body)",
        "len(body) - 1",
        ("tests/fuzz/test_fuzz_wire.py::test_fuzz[reader]",),
    ),
    Mutant(
        "short write counts as complete",
        "where a quota is reached within a write, a partial file is stored and counted",
        "FilesWriter.write",
        "written < len(chunk)",
        "False",
        (f"{SINKS}test_short_writes_and_full_disks",),
    ),
    Mutant(
        "counted before stored",
        "the journal records a file as stored that never got its name",
        "ActiveBatch.put_all",
        "how = put(task.item, index, body, crc, task.response)\n"
        "if how == NEW:\n"
        "    states[index] = length + 2\n"
        "elif how == WRITTEN:\n"
        "    written += 1\n"
        "else:\n"
        "    how = self._put(task, body)\n"
        "    is_old = how in OLD\n"
        "    length = 0 if is_old else length\n"
        "    old += is_old\n"
        "    replaced += how == REPLACED\n"
        "    written += how == WRITTEN\n"
        "size += length\n"
        "count += 1",
        "count += 1\n"
        "how = put(task.item, index, body, crc, task.response)\n"
        "if how == NEW:\n"
        "    states[index] = length + 2\n"
        "elif how == WRITTEN:\n"
        "    written += 1\n"
        "else:\n"
        "    how = self._put(task, body)\n"
        "    is_old = how in OLD\n"
        "    length = 0 if is_old else length\n"
        "    old += is_old\n"
        "    replaced += how == REPLACED\n"
        "    written += how == WRITTEN\n"
        "size += length",
        (f"{SOURCES}test_two_items_of_one_name",),
    ),
    Mutant(
        "existing file replaced",
        "of two items of one name the second replaces the first, and both count as stored",
        "rule",
        "Decision.CONTESTED",
        "Decision.REPLACE",
        (f"{SOURCES}test_two_items_of_one_name",),
    ),
    Mutant(
        "existing file counts as downloaded",
        "a file from before, old or damaged, is taken for the download",
        "FilesWriter._resolve_conflict",
        "self._is_same(found)",
        "True",
        (f"{HOST}test_files_outside_the_journal_are_compared_and_replaced",),
    ),
    Mutant(
        "large existing file is read",
        "a large file that is replaced anyway is read before",
        "FilesWriter._resolve_conflict",
        "decision is Decision.REPLACE_FOREIGN and self.size > _LONG_TO_READ",
        "False",
        (f"{SINKS}test_large_existing_file_is_replaced_unread",),
    ),
    # Ownership of names
    Mutant(
        "file not recorded before its name appears",
        "after a kill at that instant the file is unknown, and its name stays taken",
        "ActiveBatch.put_all",
        "states[index] = -3 - length",
        "",
        (f"{TAKEN}test_worker_killed_between_publishing_a_file_and_recording_it[20-supervisor]",),
    ),
    Mutant(
        "large file not recorded before its name appears",
        "the same, for files that the requests client stores",
        "ActiveBatch._publish",
        "self.marks.intend(task.index, writer.size, writer.crc)",
        "",
        (f"{TAKEN}test_requests_client_worker_killed_between_publishing_and_recording",),
    ),
    Mutant(
        "failure overwrites the damaged state",
        "the damaged file is never replaced: its name stays taken",
        "ActiveBatch.forget",
        "self.claims.get(index, NO_CLAIM)",
        "NO_CLAIM",
        (f"{TAKEN}test_damaged_file_is_replaced_after_server_failures",),
    ),
    Mutant(
        "damaged file of an open batch not fetched again",
        "the interrupted job never completes",
        "Journal.mark_damaged",
        "claimed(marks, row.items, given)",
        "changed(marks, row.items, dict.fromkeys(given, 0))",
        (f"{TAKEN}test_damaged_file_is_recognized_as_the_items_own",),
    ),
    Mutant(
        "claim is valid for any file",
        "what was known of a removed file lets an item replace another item's, with exit code 0",
        "is_valid",
        "claim.file == file_id(found)",
        "True",
        (
            "tests/unit/test_core_ownership.py::test_ownership_table",
            f"{CLAIMS}test_claim_on_a_file_of_the_user_that_is_gone",
        ),
    ),
    Mutant(
        "verify claims the file of another item",
        "two items of one name replace each other's file in turn, and no run converges",
        "settle_damaged",
        "name in owned",
        "False",
        (f"{CLAIMS}test_damaged_file_whose_name_another_item_has_by_now",),
    ),
    Mutant(
        "replaced file not looked at",
        "a file that is put there between the look and the rename is lost, with exit code 0",
        "FilesWriter._exchange",
        "_which(self._at(spare)) == _which(found)",
        "True",
        ("tests/unit/test_exchanged_files.py::test_file_that_has_the_name_when_it_is_replaced",),
    ),
    Mutant(
        "file looked at once before it is replaced",
        "of two workers that store one name, both replace the same file",
        "FilesWriter._replace",
        "_which(self._at(self._leaf)) == _which(found)",
        "True",
        ("tests/unit/test_exchanged_files.py::test_file_that_has_the_name_when_it_is_replaced",),
    ),
    Mutant(
        "exchange not undone after a kill",
        "the file that was replaced stays under a temporary name, and nobody is told of it",
        "undo_exchange.undo",
        "spare.exchange(file.leaf)",
        "pass",
        ("tests/unit/test_exchanged_files.py::test_killed_while_it_replaces_a_file",),
    ),
    Mutant(
        "half done exchange of a dead worker not looked for",
        "its file counts as stored, and the one that was replaced stays under a temporary name",
        "_keep",
        "undo is not None",
        "False",
        (f"{CLAIMS}test_worker_killed_while_it_replaces_a_file",),
    ),
    Mutant(
        "owner of a contested name not looked up",
        "a file that the user created while the job was interrupted blocks the item for ever",
        "Supervisor._fetch_contested",
        "{} if self._phase is Phase.SETTLING else self._destination.settle_names()",
        "{}",
        (f"{TAKEN}test_user_file_created_while_the_job_was_interrupted[server-replace]",),
    ),
    Mutant(
        "contested name counts as unowned",
        "the second item of a name silently replaces the first",
        "_owned",
        "owned.add(names[mark.index])",
        "pass",
        (f"{TAKEN}test_two_items_of_one_name_are_distinguished_in_every_run",),
    ),
    Mutant(
        "user file silently replaced",
        "the replacement is neither reported nor counted",
        "FilesWriter._resolve_conflict",
        "REPLACED if decision is Decision.REPLACE_FOREIGN else NEW",
        "NEW",
        (f"{TAKEN}test_user_file_is_replaced_and_reported",),
    ),
    Mutant(
        "list of URLs not reserved",
        "a download overwrites the list that it came from",
        "settled",
        "rules.reserved.option(item.name)",
        "None",
        (f"{TAKEN}test_download_named_like_the_url_list",),
    ),
    Mutant(
        "reserved names with case",
        "where case does not matter, a download overwrites the list that it came from",
        "reserved_names",
        "folds_names(root)",
        "False",
        (f"{SYSTEMS}test_own_files_on_ntfs",),
    ),
    Mutant(
        "stored files become lists",
        "what a server sent is read as a list of URLs when the same command is run again",
        "UrlList.check_files",
        "may_be_in(config.source, config.output, below=below)",
        "False",
        (f"{TAKEN}test_lists_are_not_looked_for_in_the_destination",),
    ),
    Mutant(
        "known name accepted twice",
        "with --relist a second item of a name is skipped, and its content is not stored",
        "Known._by_name",
        "row is None or row[3:] not in ((None, None), (seq, index))",
        "row is None",
        (f"{RELIST}test_job_of_an_earlier_version_is_known_by_names",),
    ),
    # Journal, cursor, ledger
    Mutant(
        "cursor ahead",
        "a killed run resumes behind names that were not fetched: lost, and exit 0",
        "ServerLister._slices",
        "if taken < len(names):\n"
        "    crc = _crc(part, crc)\n"
        "    cursor = _Cursor(at.marker, taken, crc, page=at.page)",
        "if False:\n    crc = _crc(part, crc)\n    cursor = _Cursor(at.marker, taken, crc, page=at.page)",
        (f"{SIGNALS}test_first_signal_drains[15-16]",),
    ),
    Mutant(
        "changed page not detected",
        "names that came into a page between two runs are skipped",
        "ServerLister._slices",
        "taken and _crc(names[:taken], 0) != crc",
        "False",
        (f"{LISTING}test_page_changed_between_runs_is_listed_again",),
    ),
    Mutant(
        "a second ? in a listing's URL",
        "the pages behind the first are silently lost where --list-path has a query",
        "page_url",
        "'?' if '?' not in first else '' if first.endswith(('?', '&')) else '&'",
        "'?'",
        (f"{LISTING}test_a_list_path_with_a_query_loses_no_page[auto-/list?dir=a%20b/&caf%C3%A9&]",),
    ),
    Mutant(
        "partial last line never completed",
        "a list that was still being written is never complete: its last URL was cut, and so was the next",
        "Lines._end_of_tail",
        "Place(end.offset, end.line, end.crc, (before.offset, before.crc))",
        "end",
        (
            f"{RESUME}test_partially_written_last_line_is_completed_by_the_next_run[missing-half]",
            "tests/unit/test_lines.py::test_complete_lines_are_read_exactly_once",
        ),
    ),
    Mutant(
        "item states not compared with the disk",
        "a file that was lost or changed after the ledger was written counts as stored",
        "reconcile",
        "_on_disk(sink, stored)",
        "True",
        (f"{HOST}test_file_damaged_between_runs_is_fetched_again",),
    ),
    Mutant(
        "ledger cleared too early",
        "if the supervisor is killed between a result and its row, the batch is fetched again",
        "Ledger.close",
        "slot.free()",
        "slot.marks.clear()\nslot.free()",
        ("tests/unit/test_ledger.py::test_a_reported_batch_stays_readable_until_the_slot_is_the_oldest",),
    ),
    Mutant(
        "states returned by a drain are dropped",
        "after Ctrl-C the next run fetches all of the open batches again",
        "Checkpoint.write",
        "self._destination.ledgers.keep({outcome.seq: outcome.marks})",
        "pass",
        (f"{SIGNALS}test_first_signal_drains[15-16]",),
    ),
    Mutant(
        "sync after the journal",
        "after a power cut the journal records empty files as stored",
        "Checkpoint.write",
        "if came:\n    self._destination.sync()",
        "",
        ("tests/unit/test_checkpoint.py::test_unsynced_files_are_not_counted_as_stored",),
        more=(
            Replacement(
                "Checkpoint.write",
                "return done",
                "if came:\n    self._destination.sync()\nreturn done",
            ),
        ),
    ),
    Mutant(
        "damaged row accepted",
        "a flipped bit in the journal makes a file count as stored that is not",
        "Rows.select",
        "row_sum(*values) != stated",
        "not values",
        ("tests/fuzz/test_fuzz_journal.py::test_records_never_written_are_refused",),
    ),
    Mutant(
        "lost rows not detected",
        "a page that is lost takes batches and failures with it, and the job counts as complete",
        "Journal.job",
        "self._inspect()",
        "",
        ("tests/fuzz/test_fuzz_journal.py::test_records_never_written_are_refused",),
    ),
    Mutant(
        "failed files never retried",
        "the same command reports complete and omits what had failed",
        "_UNFINISHED",
        "'(done = 0 OR failed > 0)'",
        "'(done = 0)'",
        (f"{HOST}test_retry_failed",),
    ),
    Mutant(
        "a second owner",
        "two runs write one journal and one destination",
        "_locked_by",
        "fcntl.LOCK_EX",
        "fcntl.LOCK_SH",
        (f"{PROCESSES}test_second_run_on_a_destination_is_refused",),
    ),
    Mutant(
        "runs with journals in different places share DEST",
        "two runs at once in one DEST: each replaces files of the other, and both say complete",
        "Destination._open",
        "not config.slice and not config.is_bucket",
        "False",
        (
            "tests/integration/test_journal_apart.py::"
            "test_runs_with_other_journals_do_not_share_a_destination_at_once",
        ),
    ),
    Mutant(
        "large files that are kept are read first",
        "with --existing keep a large file of the user holds up all requests, and a stop",
        "FilesSink.find_existing",
        "name not in self._unread",
        "False",
        (f"{TAKEN}test_large_files_that_are_kept_hold_up_no_other",),
    ),
    Mutant(
        "damage is said once",
        "the second verify says that all files agree, and 0, while one is missing",
        "Journal.damaged_names",
        "\"WHERE code = 'damaged' ORDER BY seq, idx\"",
        "\"WHERE code = '' ORDER BY seq, idx\"",
        (f"{TAKEN}test_damaged_file_is_replaced_after_server_failures",),
    ),
)
