"""Read the payload manifests of a bag (RFC 8493, section 2.1.3): a checksum and a path in each line.

They are read into a temporary database, which the system removes, so memory does not depend on their
length. What is not as the RFC has it is an error and not passed over: a checksum that is there and not
found would be a file that nobody verifies.
"""

from __future__ import annotations

import codecs
import os
import re
import sqlite3
from collections.abc import Iterator
from functools import partial
from itertools import chain, product
from typing import NamedTuple
from unicodedata import normalize

from downloader.core.content_check import ALGORITHMS
from downloader.core.naming import shown
from downloader.errors import ConfigError, SourceError
from downloader.process.long_work import give_way
from downloader.sources.lists.bag_files import STRENGTH, Manifest, find_manifests, open_beside

__all__ = ["BagManifests", "TagFiles", "Unlisted", "bag_path", "fields_of", "tag_files"]

# Blanks or tabs between the two; md5sum and its like mark a file that they read as binary.
_LINE = re.compile(r"(\S+)[ \t]+\*?(.+)", re.DOTALL)
_DIGEST = re.compile(r"[0-9a-f]+")
_ENCODED = {True: re.compile("%(0[AaDd]|25)"), False: re.compile("%(0[AaDd])")}
_VERSION = re.compile(rb"^\s*BagIt-Version[ \t]*:[ \t]*([0-9]+)\.", re.IGNORECASE)
_ENCODING = re.compile(
    rb"^Tag-File-Character-Encoding[ \t]*:[ \t]*([^\r\n]+)", re.MULTILINE | re.IGNORECASE
)
_BLANKS = " \t\r\n"
_LONGEST_BAGIT = 64 << 10
_LONGEST_LINE = 1 << 20  # characters; no path is as long, and a sparse file is one line without an end
_REST = 10_000  # lines after which heartbeats may continue


class Unlisted(ValueError):
    """A file of the bag has no checksum where it must have one; the message says in which manifest."""


class TagFiles(NamedTuple):
    """How the tag files of a bag are written. ``found``: it has a bagit.txt, which says so.

    ``strict``: it is of version 1.0 or later: a ``%`` in a path is encoded, and each manifest has all
    files.
    """

    encoding: str = "utf-8"
    strict: bool = True
    found: bool = False


def fields_of(line: bytes, encoding: str) -> list[str]:
    """Return URL, length and path of a line of fetch.txt; fewer fields, where there are not so many.

    Blanks at the end are of the path.
    """
    text = line.decode(encoding, "surrogateescape").rstrip("\r\n").lstrip(_BLANKS)
    return [field for field in re.split("[ \t]+", text, maxsplit=2) if field]


def bag_path(written: str, *, percent: bool = True) -> str:
    """Return a path below the base of the bag, from how it is written; "" if it leads elsewhere.

    CR, LF and, if ``percent``, ``%`` are encoded, and nothing else.
    """
    path = _ENCODED[percent].sub(lambda hit: chr(int(hit[1], 16)), written)
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return "" if path.startswith("/") or ".." in parts else "/".join(parts)


def tag_files(path: str) -> TagFiles:
    """Return how the tag files beside ``path`` are written, as bagit.txt says. Raises ConfigError."""
    bagit = os.path.join(os.path.dirname(path), "bagit.txt")
    if path == "-":
        return TagFiles()
    try:
        with open(open_beside(bagit), "rb") as file:
            text = file.read(_LONGEST_BAGIT).removeprefix(codecs.BOM_UTF8)
    except OSError:
        return TagFiles()
    match, version = _ENCODING.search(text), _VERSION.search(text)
    name = match[1].decode("ascii", "replace").strip() if match else "UTF-8"
    try:
        encoding = codecs.lookup(name).name
        if _keeps_ascii(encoding):
            strict = version is None or int(version[1]) >= 1
            return TagFiles(encoding, strict, found=True)
    except (LookupError, ValueError):
        pass
    raise ConfigError(
        f"{shown(bagit)}: tag files in {shown(name)} cannot be read; convert them to UTF-8, and say so"
    )


def _keeps_ascii(encoding: str) -> bool:
    """Return whether each byte of ASCII is itself in ``encoding``, also behind every other one.

    So it is in no encoding that has states or escapes. In those bytes of ASCII may be invalid, too, and
    ``surrogateescape`` carries only others. Raises LookupError, UnicodeError if it cannot be read at all.
    """
    pairs = bytes(chain.from_iterable(product(range(128), repeat=2)))
    others = bytes(range(128, 256))
    return (pairs + others).decode(encoding, "surrogateescape").startswith(pairs.decode("ascii"))


class BagManifests:
    """The payload manifests beside the list ``path`` (``-``: there are none); false if there is none.

    Raises ConfigError where one is not as the RFC has it, and where the checksums of none can be computed.
    """

    def __init__(self, path: str, tags: TagFiles) -> None:
        self._tags = tags
        self._all = [] if path == "-" else find_manifests(os.path.dirname(path))
        if self._all and not self._all[0].algorithm:
            names = " and ".join(shown(os.path.basename(each.file)) for each in self._all)
            raise ConfigError(
                f"{shown(os.path.dirname(path) or '.')}: the checksums in {names} cannot be computed, only "
                f"{', '.join(STRENGTH)}; --checksums off fetches without them"
            )
        self._database = sqlite3.connect("")  # on disk, as far as it is large, and without a name
        try:
            self._database.execute("PRAGMA journal_mode = OFF")
            self._database.execute(
                "CREATE TABLE sums (manifest INTEGER, path TEXT, digest TEXT NOT NULL, form TEXT, "
                "PRIMARY KEY (manifest, path)) WITHOUT ROWID"
            )
            self._database.execute("CREATE INDEX forms ON sums (manifest, form) WHERE form IS NOT NULL")
            for number in range(len(self._all)):
                self._read(number)
        except sqlite3.Error as error:
            self.close()
            raise SourceError(
                f"a temporary database for the manifests beside {shown(path)}: {error}"
            ) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def __bool__(self) -> bool:
        return bool(self._all)

    def find(self, written: str) -> tuple[str, str | None]:
        """Return path and checksum, ALGORITHM:HEX, of a file whose path is ``written`` so.

        The checksum is that of the strongest algorithm. It is None if there is no manifest; then the path
        may be "", see ``bag_path``. Blanks at the end count where the manifests have them, too. Raises
        Unlisted if any of the manifests lacks the file, as none may; before version 1.0, if all do.
        """
        path = bag_path(written, percent=self._tags.strict)
        if not self._all:
            return path, None
        if not path:
            raise Unlisted(f"the path {shown(written)} leads out of the bag")
        found = self._digests(path)
        if not (found or self._tags.strict) and (others := self._digests(decoded := bag_path(written))):
            # Some tools encode a "%" in fetch.txt even so, and not in the manifests.
            path, found = decoded, others
        lacking = [number for number in range(len(self._all)) if number not in found]
        if lacking and (self._tags.strict or not found):
            raise Unlisted(self._unlisted(path, lacking[0]))
        strongest = min(found)
        algorithm = self._all[strongest].algorithm
        if not algorithm:
            raise Unlisted(
                f"{shown(path)} has only a checksum that cannot be computed, in "
                f"{shown(os.path.basename(self._all[strongest].file))}; --checksums off fetches without"
            )
        exact = all(is_exact for _, is_exact in found.values())
        return path if exact else path.rstrip(_BLANKS), f"{algorithm}:{found[strongest][0]}"

    def _unlisted(self, path: str, number: int) -> str:
        """Return that manifest ``number``, or where one is enough all, lack ``path``."""
        if not self._tags.strict:
            return f"{shown(path)} is in no manifest of the bag; add it to one, or --checksums off"
        return (
            f"{shown(path)} is not in {shown(os.path.basename(self._all[number].file))}, and a manifest "
            "must have every file of the list (RFC 8493, 2.2.3); add it, or --checksums off"
        )

    def _digests(self, path: str) -> dict[int, tuple[str, bool]]:
        """Return the digest of ``path`` by the manifests that have it, and whether it is written so."""
        found = ((number, self._digest(number, path)) for number in range(len(self._all)))
        return {number: digest for number, digest in found if digest is not None}

    def _digest(self, number: int, path: str) -> tuple[str, bool] | None:
        """Return the digest of ``path`` in a manifest, and whether it is written so; None if it is not."""
        find = self._database.execute
        row = find(
            "SELECT digest FROM sums WHERE manifest = ? AND path = ?", (number, _stored(path))
        ).fetchone()
        if row is not None:
            return str(row[0]), True
        query = "SELECT digest FROM sums WHERE manifest = ? AND"
        rows = find(f"{query} form = ? UNION {query} path = ?", (number, _form(path)) * 2).fetchall()
        return (str(rows[0][0]), False) if len(rows) == 1 else None

    def _read(self, number: int) -> None:
        file = self._all[number].file
        insert = self._database.execute
        for line, digest, path in _entries(self._all[number], self._tags):
            stored, form = _stored(path), _form(path)
            row = (number, stored, digest, form if form != stored else None)
            if insert("INSERT OR IGNORE INTO sums VALUES (?, ?, ?, ?)", row).rowcount == 0:
                query = "SELECT digest FROM sums WHERE manifest = ? AND path = ?"
                if insert(query, row[:2]).fetchone()[0] != digest:
                    raise ConfigError(
                        f"{shown(file)}: line {line}: {shown(path)} has another checksum before"
                    )


def _entries(manifest: Manifest, tags: TagFiles) -> Iterator[tuple[int, str, str]]:
    """Yield line number, checksum and path of each entry. Raises ConfigError."""
    length = ALGORITHMS.get(manifest.algorithm)
    try:
        # Universal newlines: the RFC allows LF, CR and CRLF.
        fd = open_beside(manifest.file)
        with open(fd, encoding=tags.encoding, errors="surrogateescape") as file:
            for number, line in enumerate(iter(partial(file.readline, _LONGEST_LINE), ""), 1):
                if not number % _REST:
                    give_way()
                if len(line) == _LONGEST_LINE and not line.endswith("\n"):
                    raise ConfigError(f"{shown(manifest.file)}: line {number} is longer than 1 MiB")
                text = (line.removeprefix("\ufeff") if number == 1 else line).lstrip(_BLANKS).rstrip("\n")
                if not text or text.startswith("#"):
                    continue
                match = _LINE.fullmatch(text)
                digest, path = "", ""
                if match is not None:
                    digest, path = match[1].lower(), bag_path(match[2], percent=tags.strict)
                if length and not (len(digest) == length and _DIGEST.fullmatch(digest)):
                    raise ConfigError(
                        f"{shown(manifest.file)}: line {number} does not begin with {length} hexadecimal "
                        f"digits, a {manifest.algorithm}, and a path: {shown(text)}"
                    )
                if not path:
                    raise ConfigError(
                        f"{shown(manifest.file)}: line {number} has no path below the bag: {shown(text)}"
                    )
                yield number, digest, path
    except OSError as error:
        raise ConfigError(f"{shown(manifest.file)}: {error.strerror}") from error


def _form(path: str) -> str:
    """Return what is the same in all Unicode forms of ``path``, with or without blanks at its end."""
    return _stored(normalize("NFC", path.rstrip(_BLANKS)))


def _stored(path: str) -> str:
    """Return ``path`` as text that SQLite can store."""
    return path.encode("utf-8", "surrogateescape").decode("latin-1")
