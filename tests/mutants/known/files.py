"""Bugs in how the tool's own files are opened, and in what is believed of them."""

from __future__ import annotations

from known.mutant import Mutant

__all__ = ["KNOWN"]

OWN = "tests/unit/test_own_files.py::"
PLANTED = "tests/faults/test_planted_files.py::test_what_is_planted_is_refused"
CRAFTED = "tests/faults/test_crafted_files.py::test_crafted_journal"
PLANS = "tests/cluster/test_crafted_plans.py::"
RUNS = "tests/integration/test_list_rows_run.py::"

KNOWN = (
    Mutant(
        "links are followed in the home",
        "a link in place of the lock: the file that it leads to is emptied",
        "Entry._open",
        "flags & ~_MADE_BY_OPEN | _FILE",
        "flags & ~_MADE_BY_OPEN | _FILE & ~os.O_NOFOLLOW",
        (f"{OWN}test_only_regular_files_are_opened[both]",),
    ),
    Mutant(
        "a pipe in the home is waited for",
        "a named pipe in place of a ledger or part: run, verify and status wait for ever",
        "Entry._open",
        "flags & ~_MADE_BY_OPEN | _FILE",
        "flags & ~_MADE_BY_OPEN | _FILE & ~os.O_NONBLOCK",
        (f"{OWN}test_only_regular_files_are_opened[read]",),
        seconds=20,
    ),
    Mutant(
        "a hard link in the home is written to",
        "a second name of a file of the user's in place of the lock: the file is emptied",
        "Entry._check",
        "write and found.st_nlink > 1",
        "False",
        (f"{OWN}test_a_file_with_a_second_name_is_read_only",),
    ),
    Mutant(
        "what the file system refuses is a defect",
        'a file system that turns read-only: "a defect in the downloader", and no path',
        "_told",
        "type(error) is not OSError",
        "True",
        (f"{OWN}test_what_the_file_system_refuses_is_told_with_the_path",),
    ),
    Mutant(
        "a report is written through a link in DEST",
        "what somebody has put into a shared destination has a file outside of it overwritten",
        "name_below",
        "_as_written(each, root) or _in_fact(each, root) or _mounted(each, directory)",
        "''",
        (
            "tests/integration/test_report.py::test_what_others_have_put_into_the_destination_is_not_written_through",
            "tests/integration/test_report.py::"
            "test_what_is_put_into_the_destination_while_the_run_is_at_work_is_not_written_through",
        ),
    ),
    Mutant(
        "a file that is a descriptor is replaced",
        "--report /dev/stdout > out: the file that the shell has opened is gone",
        "publish",
        "descriptor is not None",
        "False",
        ("tests/integration/test_report.py::test_descriptor_that_is_a_file_is_written_where_it_is",),
    ),
    Mutant(
        "a named pipe without a reader is waited for",
        "a run whose --failures is such a pipe never ends",
        "_open_stream",
        "os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC",
        "os.O_WRONLY | os.O_CLOEXEC",
        ("tests/integration/test_report.py::test_named_pipe_without_a_reader_is_an_error",),
    ),
    Mutant(
        "a home that everybody can write is used",
        "a journal that somebody else has made is believed",
        "check_owner",
        "_is_everybodys(fd, found)",
        "False",
        (f"{OWN}test_a_home_that_everybody_can_write_is_refused[511]",),
    ),
    Mutant(
        "a home of another user is used",
        "a directory prepared by another user is used in silence",
        "check_owner",
        "made is None or made.st_uid != found.st_uid",
        "False",
        (f"{OWN}test_another_users_home_is_read_only",),
    ),
    Mutant(
        "names of shards in a plan are believed",
        "a plan with a shard named ../../../x: verify does not say so",
        "_check_names",
        "not IS_OURS(name)",
        "False",
        (f"{PLANS}test_names_in_a_plan_are_checked[shard-is not the name of a shard]",),
    ),
    Mutant(
        "names lead out of the home",
        "a name that was read from the disk leads to a file elsewhere",
        "Entry.__init__",
        "not is_inside(name)",
        "False",
        (f"{OWN}test_names_that_lead_elsewhere[../outside/kept]",),
    ),
    Mutant(
        "decompression without an end",
        "a journal of 6 MB takes 12 GB in verify",
        "inflate",
        "stream.decompress(data, most)",
        "stream.decompress(data)",
        (f"{OWN}test_inflating_is_bounded", f"{CRAFTED}[names_without_end]"),
    ),
    Mutant(
        "numbers in place of bytes",
        "a number where a journal has bytes: verify allocates as many",
        "Rows.select",
        "(*map(type, values), type(stated)) != types or row_sum(*values) != stated",
        "row_sum(*values) != stated",
        (f"{CRAFTED}[number_for_bytes]",),
    ),
    Mutant(
        "triggers in a journal are carried out",
        "what somebody has put into a journal acts when the journal is written",
        "_check_schema",
        "kind == 'table' and own == table and text.startswith('CREATE TABLE ')",
        "True",
        (f"{OWN}test_databases_have_our_tables_and_nothing_that_acts",),
    ),
    Mutant(
        "SQLite removes a file that a journal names",
        "a rollback journal that names a file: SQLite removes that, wherever it is",
        "_check_files",
        "file.read(len(_SUPER_JOURNAL)) == _SUPER_JOURNAL",
        "False",
        (f"{CRAFTED}[super_journal]",),
    ),
    Mutant(
        "terminal controls of a journal are written",
        "status writes what somebody has put into a journal to the terminal as it is",
        "say",
        "printable(text) if isinstance(text, str) else text",
        "text",
        (f"{CRAFTED}[terminal_controls]",),
    ),
    Mutant(
        "the scratch directory of anybody is used",
        "somebody else has made the directory for the journals of slices, and can change them",
        "scratch_of",
        "opened.enter_context(open_home(Path(base), create=True, option='--scratch'))",
        "None",
        (f"{PLANS}test_a_scratch_directory_of_somebody_else",),
    ),
    Mutant(
        "a size below 0 in a part",
        "the header of a member with a size of -512: status reads it for ever",
        "header_of",
        "size < 0",
        "False",
        ("tests/unit/test_ustar.py::test_a_size_below_zero_is_no_header",),
    ),
    Mutant(
        "a forked process opens the journal",
        "a run that inherits descriptors ends with 'locking protocol'",
        "run",
        "duplicates = open_duplicates(config)",
        "from downloader.storage.journal import Journal\n"
        "duplicates = open_duplicates(config)\n"
        "home = open_home(home_of(config.journal_root))\n"
        "Journal(home, read_only=True).close()",
        (f"{RUNS}test_descriptors_that_a_run_inherits[skip]",),
    ),
)
