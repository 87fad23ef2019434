"""Bugs in reading lists, in what their rows say, and in mirrors."""

from __future__ import annotations

from known.mutant import Mutant

__all__ = ["KNOWN"]

ROWS = "tests/unit/test_list_rows.py::"
FORMATS = "tests/integration/test_list_formats.py::"
RUNS = "tests/integration/test_list_rows_run.py::"
BAGS = "tests/integration/test_bags.py::"

KNOWN = (
    Mutant(
        "names in a bag are made safe",
        "`data/100%.txt` is stored as `data/100%25.txt`: the bag is complete, and invalid",
        "ItemMaker._path_of",
        "self._literal",
        "False",
        (f"{BAGS}test_a_bag_is_completed_in_place_under_the_very_paths_that_it_states[1.0]",),
    ),
    Mutant(
        "%25 is decoded in bags of every version",
        "`100%.txt` and `100%25.txt` of a bag in 0.97 are one file",
        "tag_files",
        "version is None or int(version[1]) >= 1",
        "True",
        (f"{BAGS}test_a_bag_is_completed_in_place_under_the_very_paths_that_it_states[0.97]",),
    ),
    Mutant(
        "blanks at the end of a path in a bag do not count",
        "a bag with `data/x` and `data/x ` cannot be read",
        "_entries",
        r"(line.removeprefix('\ufeff') if number == 1 else line).lstrip(_BLANKS).rstrip('\n')",
        r"(line.removeprefix('\ufeff') if number == 1 else line).strip(_BLANKS)",
        (f"{BAGS}test_a_bag_is_completed_in_place_under_the_very_paths_that_it_states[1.0]",),
    ),
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
        "BagManifests.find",
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
)
