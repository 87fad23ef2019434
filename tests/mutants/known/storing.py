"""Bugs in publishing files, in who owns a name, and in what a journal and a ledger say."""

from __future__ import annotations

from syntax import Replacement

from known.mutant import Mutant

__all__ = ["KNOWN"]

HOST = "tests/faults/test_host.py::"
PROCESSES = "tests/faults/test_processes.py::"
SINKS = "tests/unit/test_sinks.py::"
SOURCES = "tests/integration/test_sources.py::"
TAKEN = "tests/faults/test_names_taken.py::"
RESUME = "tests/integration/test_resume.py::"
LISTING = "tests/faults/test_hostile_listing.py::"

KNOWN = (
    # Publishing
    Mutant(
        "named too early",
        "a file has its final name before its bytes are there; a kill leaves half of it",
        "FilesWriter.__init__",
        "self.crc = 0",
        "self.crc = 0\nwith contextlib.suppress(OSError):\n    self._link(leaf)",
        (
            f"{SINKS}test_a_name_appears_whole_or_not_at_all",
            "tests/faults/test_kill.py::test_kill_in_the_midst_of_large_files[supervisor]",
        ),
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
        "small file named too early",
        "a disk that fills up leaves a truncated file under its final name",
        "FilesSink.put",
        "if _write(fd, body) == len(body):\n"
        "    files = self.open_files\n"
        "    _link(_digits(fd), name, src_dir_fd=files, dst_dir_fd=root, follow_symlinks=True)\n"
        "    return True",
        "_link(str(fd), name, src_dir_fd=self.open_files, dst_dir_fd=root, follow_symlinks=True)\n"
        "if _write(fd, body) == len(body):\n"
        "    return True",
        (f"{SINKS}test_a_small_file_that_cannot_be_written_has_no_name",),
    ),
    Mutant(
        "a body's rest read twice",
        "what follows a large body in one read is counted wrongly: a file gets the bytes of another",
        "ResponseParser.feed",
        "self._left > 0",
        "self._left > len(data)",
        ("tests/fuzz/test_fuzz_wire.py::test_fuzz[reader]",),
    ),
    Mutant(
        "an error whose page ends with the connection is forgotten",
        "the file comes to no end, and so the run does not",
        "PipelinedConnection._on_close",
        "self._commit_window()",
        "",
        ("tests/fuzz/test_fuzz_wire.py::test_fuzz[pipeline]",),
    ),
    Mutant(
        "a large body's beginning cut short",
        "what came of it with the headers is counted wrongly where it is left for the writer",
        "ResponseParser._inside",
        "len(body)",
        "len(body) - 1",
        ("tests/fuzz/test_fuzz_wire.py::test_fuzz[reader]",),
    ),
    Mutant(
        "short write taken for whole",
        "where a quota ends in the midst of a write, half a file is stored and counted",
        "FilesWriter.write",
        "written < len(chunk)",
        "False",
        (f"{SINKS}test_short_writes_and_full_disks",),
    ),
    Mutant(
        "counted before stored",
        "the journal says stored of a file that never got its name",
        "ActiveBatch.put_all",
        "if not put(task.item, body, task.response):\n"
        "    how = self._put(task, body)\n"
        "    length = length if how else 0\n"
        "    old += not how\n"
        "    replaced += how == REPLACED\n"
        "    if how == WRITTEN:\n"
        "        written += 1\n"
        "        length = 0\n"
        "else:\n"
        "    states[index] = length + 2\n"
        "size += length\n"
        "count += 1",
        "count += 1\n"
        "if not put(task.item, body, task.response):\n"
        "    how = self._put(task, body)\n"
        "    length = length if how else 0\n"
        "    old += not how\n"
        "    replaced += how == REPLACED\n"
        "    if how == WRITTEN:\n"
        "        written += 1\n"
        "        length = 0\n"
        "else:\n"
        "    states[index] = length + 2\n"
        "size += length",
        (f"{SOURCES}test_two_items_of_one_name",),
    ),
    Mutant(
        "over another",
        "of two items of one name the second replaces the first, and both count as stored",
        "rule",
        "Decision.CONTESTED",
        "Decision.REPLACE",
        (f"{SOURCES}test_two_items_of_one_name",),
    ),
    Mutant(
        "a file that is there is trusted",
        "what lay there before, old or damaged, is taken for the download",
        "FilesWriter._meet",
        "file_matches(self._leaf, self._directory, self.size, self.crc)",
        "True",
        (f"{HOST}test_what_was_there_before_is_never_trusted",),
    ),
    Mutant(
        "what is large is read",
        "a worker that finds a large file of old is taken for stuck and killed while it reads it",
        "FilesWriter._meet",
        "decision is Decision.REPLACE_FOREIGN and self.size > _LONG_TO_READ",
        "False",
        (f"{SINKS}test_what_is_long_to_read_is_replaced_unread_if_it_was_there_before",),
    ),
    # Who owns a name
    Mutant(
        "nothing is written down before a name appears",
        "after a kill in that instant nobody knows the file, and its name is taken for ever",
        "ActiveBatch.put_all",
        "states[index] = -3 - length",
        "",
        (f"{TAKEN}test_killed_between_a_file_s_name_and_its_mark[20-supervisor]",),
    ),
    Mutant(
        "nothing is written down before the name of a large file appears",
        "the same, for what takes the way of the requests lane",
        "ActiveBatch._publish",
        "self.marks.intend(task.index, writer.size, writer.crc)",
        "",
        (f"{TAKEN}test_killed_between_a_file_s_name_and_its_mark_in_the_requests_lane",),
    ),
    Mutant(
        "a failure overwrites that a file is damaged",
        "the damaged file is never replaced: its name is taken for ever",
        "ActiveBatch.forget",
        "self.claims.get(index, UNTOUCHED)",
        "UNTOUCHED",
        (f"{TAKEN}test_a_damaged_file_is_replaced_though_the_server_failed_in_between",),
    ),
    Mutant(
        "a damaged file of an open batch is forgotten",
        "the job that was interrupted never comes to its end",
        "Journal.mark_damaged",
        "self._claim(seq, row[1], dict.fromkeys((f.index for f in damaged), OWNED))",
        "self._recount("
        "seq, changed(self.marks(seq), row[1], dict.fromkeys((f.index for f in damaged), 0)))",
        (f"{TAKEN}test_a_damaged_file_is_known_to_be_the_item_s_own",),
    ),
    Mutant(
        "nobody is asked who owns a name",
        "a file that the user put there while the job was interrupted is in the way for ever",
        "Supervisor._fetch_contested",
        "claims = self._destination.settle_names()",
        "claims: dict[int, dict[int, int]] = {}",
        (f"{TAKEN}test_a_file_that_i_put_there_while_the_job_was_interrupted[server-replace]",),
    ),
    Mutant(
        "a name is thought to be nobody's",
        "the second item of a name replaces the first, in silence",
        "_owned",
        "owned.add(name)",
        "pass",
        (f"{TAKEN}test_two_items_of_one_name_are_told_apart_in_every_run",),
    ),
    Mutant(
        "a file of the user is replaced in silence",
        "nobody is told, and nothing counts it",
        "FilesWriter._meet",
        "REPLACED if decision is Decision.REPLACE_FOREIGN else NEW",
        "NEW",
        (f"{TAKEN}test_a_file_of_mine_is_replaced_and_i_am_told",),
    ),
    Mutant(
        "the list of URLs is a file like any other",
        "a download overwrites the list that it came from",
        "settled",
        "rules.reserved.get(item.name)",
        "None",
        (f"{TAKEN}test_a_download_named_like_the_list_of_urls",),
    ),
    Mutant(
        "a known name serves twice",
        "with --relist a second item of a name is skipped, and its bytes are nowhere",
        "Known.marks",
        "row is None or row[3:] not in ((None, None), (seq, index))",
        "row is None",
        ("tests/integration/test_relist.py::test_a_second_item_of_a_known_name_is_no_less_taken",),
    ),
    # Journal, cursor, ledger
    Mutant(
        "cursor ahead",
        "a killed run goes on behind names that nobody has fetched: lost, and exit 0",
        "ServerLister._slices",
        "if taken < len(names):\n"
        "    crc = _crc(part, crc)\n"
        "    cursor = _Cursor(at.marker, taken, crc, page=at.page)",
        "if False:\n    crc = _crc(part, crc)\n    cursor = _Cursor(at.marker, taken, crc, page=at.page)",
        (f"{PROCESSES}test_one_signal_drains[15-16]",),
    ),
    Mutant(
        "page that changed is not noticed",
        "names that came into a page between two runs are skipped",
        "ServerLister._slices",
        "taken and _crc(names[:taken], 0) != crc",
        "False",
        (f"{LISTING}test_a_page_that_changed_between_two_runs_is_handed_out_again",),
    ),
    Mutant(
        "a second ? in a listing's URL",
        "the pages behind the first are lost in silence where --list-path has a query",
        "page_url",
        "'?' if '?' not in first else '' if first.endswith(('?', '&')) else '&'",
        "'?'",
        (f"{LISTING}test_a_list_path_with_a_query_loses_no_page[auto-/list?dir=a%20b/&caf%C3%A9&]",),
    ),
    Mutant(
        "half a line is a line for ever",
        "a list that a program still wrote to is never complete: its last URL was cut, and so was the next",
        "Lines._end_of_tail",
        "Place(end.offset, end.line, end.crc, (before.offset, before.crc))",
        "end",
        (
            f"{RESUME}test_a_line_that_was_read_before_it_was_written_to_its_end[missing-half]",
            "tests/unit/test_lines.py::test_each_line_is_there_once_it_is_whole",
        ),
    ),
    Mutant(
        "marks believed without a look",
        "a file that was lost or changed after the ledger was written counts as stored",
        "reconcile",
        "_on_disk(sink, Written(lease.seq, mark.index, items[mark.index].name, mark.size, mark.crc))",
        "True",
        (f"{HOST}test_what_changed_between_two_runs_is_fetched_again",),
    ),
    Mutant(
        "ledger cleared too early",
        "the supervisor is killed between an outcome and its row: the batch is fetched again",
        "Ledger.close",
        "slot.free()",
        "slot.marks.clear()\nslot.free()",
        ("tests/unit/test_ledger.py::test_a_reported_batch_stays_readable_until_the_slot_is_the_oldest",),
    ),
    Mutant(
        "what a drain gives back is forgotten",
        "after Ctrl-C the next run fetches all of the open batches again",
        "Checkpoint.write",
        "self._destination.keep({outcome.seq: outcome.marks})",
        "pass",
        (f"{PROCESSES}test_one_signal_drains[15-16]",),
    ),
    Mutant(
        "sync after the journal",
        "after a power cut the journal says stored of files that are empty",
        "Checkpoint.write",
        "if came:\n    self._destination.sync()",
        "",
        ("tests/unit/test_checkpoint.py::test_nothing_is_counted_that_could_not_be_synced",),
        more=(
            Replacement(
                "Checkpoint.write",
                "return done",
                "if came:\n    self._destination.sync()\nreturn done",
            ),
        ),
    ),
    Mutant(
        "a damaged row is believed",
        "a bit that turned round in the journal makes a file stored that never was",
        "Rows.select",
        "row_sum(*row[:-1]) != row[-1]",
        "not row",
        ("tests/fuzz/test_fuzz_journal.py::test_what_was_never_written_is_not_believed",),
    ),
    Mutant(
        "lost rows are not missed",
        "a page that is lost takes batches and failures with it, and the job counts as complete",
        "Journal.job",
        "self._inspect()",
        "",
        ("tests/fuzz/test_fuzz_journal.py::test_what_was_never_written_is_not_believed",),
    ),
    Mutant(
        "failed files never tried again",
        "the same command again says complete and leaves out what had failed",
        "_UNFINISHED",
        "'(done = 0 OR failed > 0)'",
        "'(done = 0)'",
        (f"{HOST}test_retry_failed",),
    ),
    Mutant(
        "a second owner",
        "two runs write one journal and one destination",
        "lock",
        "fcntl.LOCK_EX",
        "fcntl.LOCK_SH",
        (f"{PROCESSES}test_two_runs_on_one_destination",),
    ),
)
