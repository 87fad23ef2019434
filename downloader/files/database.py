"""Open an SQLite database of the tool's own, which may have been made by somebody else.

SQLite opens by path, also the files beside the database. So these are checked below the descriptor of their
directory before, and the path afterwards: it still has to lead to the same file. ``first_access`` keeps
what SQLite opens later to the same directory. What a database can do
beyond holding rows is turned off: it must have our tables as we make them, and neither views nor triggers,
which would be carried out when we read or write. A rollback journal that names a super-journal is refused:
SQLite would remove the file of that name, wherever it is.
"""

from __future__ import annotations

import contextlib
import functools
import os
import posix
import sqlite3
import sys
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote

from downloader.core.file_errors import advice
from downloader.errors import JournalError
from downloader.files.directory import Entry, UnsafeFile, open_directory, open_regular, unsafe
from downloader.files.first_access import begin_with_log, first_access

__all__ = [
    "BESIDE",
    "MOVE_AWAY",
    "connect",
    "damaged",
    "failure",
    "has_table",
    "remove",
    "replace",
    "translated",
]

BESIDE: Final = ("", "-wal", "-shm", "-journal")
"""The suffixes of the files of a database."""

_SUPER_JOURNAL: Final = bytes.fromhex("d9d505f920a163d7")  # the end of a journal that names one
_LONGEST_VALUE: Final = 256 << 20
_PIECE: Final = 1 << 20
_MOST_STEPS: Final = 1_000_000  # of SQLite's machine, for a statement on the schema; usual: thousands
_RESTART: Final = "--restart begins anew"
MOVE_AWAY: Final = "move it away, then run the same command again"
"""What to do about a damaged database that the job can do without."""
_SCHEMA: Final = "SELECT type, name, tbl_name, sql FROM sqlite_master"


def connect(
    database: Entry,
    schema: str,
    *,
    create: bool = False,
    passing: bool = False,
    options: str = "mode=rw",
    timeout: float = 10,
) -> sqlite3.Connection:
    """Return a connection to ``database``; ``create``: make the file if it is not there.

    No other database must be attached to it: SQLite reads that at once, before anything can be held.

    ``passing``: a new file that is made anew after a kill, without a journal or a log, for this connection
    alone; any other has a write-ahead log. ``schema``: the statements that make its tables, of which a new
    one has none yet. ``options``: those of the URI. On a file system that copies on write, nobody else can
    read a database that was opened to be written, and one with a write-ahead log must not be opened with
    "mode=ro" alone. Raises UnsafeFile, sqlite3.Error, OSError.
    """
    writes = "mode=ro" not in options
    _check_files(database, write=writes)
    if create:
        posix.close(database.open(os.O_RDWR | os.O_CREAT))
    if writes and not passing:
        begin_with_log(database)
    # Not as_uri(): since Python 3.14 that imports urllib.request, and so ssl, before any patching.
    path = os.path.abspath(database)
    uri = f"file:{quote(os.fsencode(path))}?{options}"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=timeout)
    try:
        _check_same(database, path)
        # Before the first access: then SQLite keeps the index of a write-ahead log in its own memory. A
        # page of the mapped -shm could be refused, which kills the process (SIGBUS).
        exclusive = writes and (passing or database.directory.copies_on_write())
        if exclusive:
            connection.execute("PRAGMA main.locking_mode = EXCLUSIVE")
        first = first_access(database, exclusive=exclusive) if writes else contextlib.nullcontext()
        with first, _bounded(connection):
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            if sys.version_info >= (3, 11):
                connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
            _check_schema(connection, schema)
        if passing:
            connection.execute("PRAGMA journal_mode = OFF")
    except BaseException:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def _bounded(connection: sqlite3.Connection) -> Iterator[None]:
    """End statements of the block that take long, as those on a schema that leads to itself.

    Pages that name the same ones again and again stand for more rows than anybody can read. SQLite notices
    that in our tables only.
    """
    connection.set_progress_handler(lambda: True, _MOST_STEPS)
    try:
        yield
    except sqlite3.OperationalError as error:
        if str(error) == "interrupted":
            raise sqlite3.DatabaseError("its schema does not end") from error
        raise
    finally:
        connection.set_progress_handler(None, 0)


def has_table(connection: sqlite3.Connection, name: str) -> bool:
    """Return whether the table ``name`` is in the database of ``connection``."""
    query = "SELECT count(*) FROM sqlite_master WHERE name = ?"
    return bool(connection.execute(query, (name,)).fetchone()[0])


def replace(database: Entry, new: Entry) -> None:
    """Put ``new`` in the place of ``database``, whose log is not that of the new; nobody has one open."""
    for suffix in BESIDE[1:]:
        _beside(database, suffix).unlink(missing_ok=True)
    new.rename(database.leaf)


def remove(database: Entry) -> None:
    """Remove ``database`` with the files beside it, those that are there."""
    for suffix in BESIDE:
        _beside(database, suffix).unlink(missing_ok=True)


@contextlib.contextmanager
def translated(database: os.PathLike[str] | str, remedy: str = _RESTART) -> Iterator[None]:
    """Raise JournalError for what goes wrong in the block, which uses ``database``; see ``damaged``."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise JournalError(f"{database}: {failure(error, database)}") from error
    except UnsafeFile:
        raise
    except OSError as error:
        raise JournalError(f"{database}: {advice(error)}") from error
    except (sqlite3.Error, TypeError, ValueError) as error:
        raise damaged(database, error, remedy) from error


def damaged(database: os.PathLike[str] | str, what: object, remedy: str = _RESTART) -> JournalError:
    """Return the error for a ``database`` that is not as it was written, or that the disk does not read.

    ``remedy``: what to do about the former.
    SQLite calls the latter malformed, too. This gives up the locks that SQLite has on the file: the run
    ends, and it has the lock of the home.
    """
    for suffix in ("", "-wal"):
        try:
            with open(open_regular(f"{os.fspath(database)}{suffix}"), "rb", buffering=0) as file:
                while file.read(_PIECE):
                    pass
        except FileNotFoundError:
            pass
        except OSError as error:
            return JournalError(f"{os.fspath(database)}{suffix}: {advice(error)}")
    return JournalError(f"{os.fspath(database)} is damaged ({what}); {remedy}")


def failure(error: sqlite3.Error, database: os.PathLike[str] | str) -> str:
    """Return what happened and what to do next. ``error``: raised by what uses ``database``.

    SQLite says "disk I/O error" where a file system turns read-only while it is used; what another file in
    the same directory is refused for says more.
    """
    try:
        with open_directory(os.path.dirname(os.path.abspath(database))) as directory:
            directory.check_room()
    except OSError as refused:
        return f"{error} ({advice(refused)})"
    return f"{error}; free space or mend the disk, then run the same command again"


def _beside(database: Entry, suffix: str) -> Entry:
    return database.beside(database.leaf + suffix)


def _check_files(database: Entry, *, write: bool) -> None:
    for suffix in BESIDE:
        # Not opened: to close any descriptor of a database releases the locks that SQLite has on it.
        _beside(database, suffix).check(write=write or suffix == "-shm")  # which a reader writes, too
    journal = _beside(database, "-journal")
    if journal.size() > 0:
        with journal.reader() as file:
            file.seek(max(os.fstat(file.fileno()).st_size - len(_SUPER_JOURNAL), 0))
            if file.read(len(_SUPER_JOURNAL)) == _SUPER_JOURNAL:
                raise unsafe(journal, "names another file, which SQLite would remove")


def _check_same(database: Entry, path: str) -> None:
    """Raise UnsafeFile if ``path`` is not ``database``: its directory was replaced in the meantime."""
    found = database.stat()
    if found is None or not os.path.samestat(found, os.stat(path, follow_symlinks=False)):
        raise unsafe(path, "was replaced while it was opened", "run the same command again")


def _check_schema(connection: sqlite3.Connection, schema: str) -> None:
    """Raise sqlite3.DatabaseError unless all tables of ours are as ``schema`` makes them.

    Tables of other names, which a later version may have added, are never used.
    """
    ours = _made_by(schema)
    for kind, own, table, sql in connection.execute(_SCHEMA):
        text = " ".join((sql or "").split())
        if own.lower() in ours:
            known = ours[own.lower()] == text
        elif kind == "index":
            known = sql is None  # that of a key
        else:
            known = kind == "table" and own == table and text.startswith("CREATE TABLE ")
        if not known:
            raise sqlite3.DatabaseError(f"the {kind[:20]} {own[:40]!r} in it is none of this program")


@functools.lru_cache
def _made_by(schema: str) -> dict[str, str]:
    """Return what ``schema`` makes, by name, as SQLite keeps it, with single spaces."""
    with contextlib.closing(sqlite3.connect(":memory:")) as memory:
        memory.executescript(schema)
        rows = memory.execute(_SCHEMA)
        return {own: " ".join(sql.split()) for _, own, _, sql in rows if sql}
