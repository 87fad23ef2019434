"""Bugs in reading lists, in what their rows say, and in mirrors."""

from __future__ import annotations

from known.mutant import Mutant

__all__ = ["KNOWN"]

ROWS = "tests/unit/test_list_rows.py::"
FORMATS = "tests/integration/test_list_formats.py::"
RUNS = "tests/integration/test_list_rows_run.py::"
COLUMNS = "tests/integration/test_hostile_columns.py::"
BAGS = "tests/integration/test_bags.py::"

KNOWN = (
    Mutant(
        "files before the cursor are not compared",
        "a list of several files that was replaced is read on in the middle: other files are never fetched",
        "Fingerprints.before",
        "return self._before[number]",
        "return 0",
        (f"{FORMATS}test_files_before_the_cursor_must_stay[directory]",),
    ),
    Mutant(
        "rows of a row group are not skipped",
        "a resumed job fetches the rows before the cursor again, and not those at the end of the list",
        "BinaryRows._open",
        "_behind(found, self._at.within)",
        "found",
        (f"{ROWS}test_every_format_goes_on_from_every_page[l.parquet-7]",),
    ),
    Mutant(
        "row of several lines ends at its first",
        "a line break in quotes makes two broken rows of one",
        "_RowLines.__next__",
        "self._more()",
        "[]",
        (f"{ROWS}test_quoted_fields_survive_any_pages",),
    ),
    Mutant(
        "options of aria2 belong to the next page",
        "a file is stored under the name of its URL where its options are in lines behind the page",
        "Aria2Parser.table",
        "next_byte in _BETWEEN",
        "False",
        (f"{ROWS}test_entries_of_aria2",),
    ),
    Mutant(
        "names of batches that were lost stay taken",
        "after a kill a file is numbered as the second of its name, and is the first",
        "Duplicates._follow",
        "known > seq",
        "False",
        (f"{RUNS}test_batch_that_was_lost_takes_no_names",),
    ),
    Mutant(
        "table of names is believed after a power cut",
        "the second row of a name is not numbered, and fails",
        "Duplicates._follow",
        "journal.batches() if known < seq else ()",
        "()",
        (f"{RUNS}test_names_are_those_of_the_journal_after_a_power_cut",),
    ),
    Mutant(
        "mirror that is gone is tried again",
        "with one mirror of two gone, an item uses up its attempts on it",
        "TaskBuilder.next_mirror",
        "item.mirrors[1:] if drop else (*item.mirrors[1:], item.url)",
        "(*item.mirrors[1:], item.url)",
        (f"{RUNS}test_mirror_that_is_gone_is_not_tried_again",),
    ),
    Mutant(
        "host that is given up ends the item",
        "an item with a mirror fails when the host of its first URL is down",
        "Worker._give_up",
        "not self.retries.elsewhere(task)",
        "True",
        (f"{RUNS}test_mirrors_of_a_dead_host",),
    ),
    Mutant(
        "header fields of a row frame the request",
        "a row of a list can send Content-Length or Host, and desynchronize a connection",
        "row_headers",
        "name.lower() in _OURS",
        "False",
        (f"{RUNS}test_header_fields_that_are_refused",),
    ),
    Mutant(
        "columns from a whole block only",
        "a small list that is cut off ends with IndexError, one with a long first line lacks columns",
        "Lines.sample",
        "stream.readline(self._longest)",
        "stream.read(_SAMPLE)",
        (f"{FORMATS}test_end_that_is_cut_off_close_to_the_beginning",),
    ),
    Mutant(
        "manifest of a bag has one blank in each line",
        "a checksum behind a tab counts as none: wrong bytes are stored in silence",
        "_entries",
        "_LINE.fullmatch(text)",
        "re.fullmatch(r'(\\S+) (.+)', text)",
        (f"{BAGS}test_wrong_bytes_are_found_however_the_manifest_is_written",),
    ),
    Mutant(
        "file that a manifest of a bag lacks has no checksum",
        "nobody verifies a file whose path is written otherwise in the manifest",
        "BagManifests.checksum",
        "not self._all",
        "True",
        (f"{BAGS}test_checksum_that_cannot_be_found_is_an_error_before_the_start",),
    ),
    Mutant(
        "files of a list are checked when they are read",
        "a run ends with 2, nothing was started, after thousands were stored",
        "UrlLister._check_files",
        "len(self._files) > 1 or file.form == 'bagit'",
        "False",
        (f"{FORMATS}test_every_file_is_checked_before_the_first_is_fetched",),
    ),
    Mutant(
        "list that is found wrong later was never started",
        "a run ends with 2 after thousands were stored, and does not fetch what was listed",
        "run",
        "not outbox.sent",
        "True",
        (f"{FORMATS}test_file_that_is_wrong_only_later_breaks_the_source_off",),
    ),
    Mutant(
        "quoted field takes rows that follow",
        "captions with single quotes join rows, and the run is complete without them",
        "_RowLines.__next__",
        "self._is_row(text)",
        "False",
        (f"{ROWS}test_a_row_that_cannot_be_read_is_a_fault", f"{ROWS}test_captions_with_single_quotes"),
    ),
    Mutant(
        "value that msgspec refuses ends the row",
        "a file is not fetched for half of a surrogate pair in its caption",
        "JsonlParser.table",
        "self._lenient(line)",
        "decode(line)",
        (f"{COLUMNS}test_values_of_json_that_no_format_has",),
    ),
    Mutant(
        "half of a surrogate pair goes on as it is",
        "the feeder ends with UnicodeEncodeError, and with it the run",
        "_lenient_dict",
        "_without_halves(_decode_lenient(line.decode('utf-8')))",
        "_decode_lenient(line.decode('utf-8'))",
        (f"{COLUMNS}test_columns_of_json_with_values_that_no_format_has",),
    ),
    Mutant(
        "list that is none breaks off",
        "a run ends with 4, stopped early, though nothing was started",
        "_never_started",
        "ConfigError(str(error))",
        "error",
        (f"{FORMATS}test_file_of_several_that_cannot_be_read",),
    ),
    Mutant(
        "beginning of a line is taken for a URL",
        "of a line of more than 64 KiB another URL than that of the list is requested",
        "TxtParser.table",
        "LONGEST_LINE",
        "1 << 40",
        (f"{RUNS}test_lines_that_are_too_long_or_have_what_nobody_sees",),
    ),
    Mutant(
        "invisible character is not named",
        "a list that was copied from a web page fails with 404, and nothing shows why",
        "told_of",
        "invisible_in(url)",
        "''",
        (f"{RUNS}test_lines_that_are_too_long_or_have_what_nobody_sees",),
    ),
)
