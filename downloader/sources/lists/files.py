"""Find the files of a list: one path, a glob pattern, or a directory; and the format of each.

The order of the files is that of their names below the directory or the fixed part of the pattern, by code
point, so it does not depend on where the files are.
"""

from __future__ import annotations

import codecs
import contextlib
import fnmatch
import glob
import os
import re
import shlex
import stat
from collections.abc import Collection
from typing import Final, NamedTuple

from downloader.core.naming import shown
from downloader.errors import ConfigError
from downloader.files.below import seen_from

__all__ = [
    "BINARY",
    "FORMATS",
    "OF_ARRAY",
    "WITH_COLUMNS",
    "ListFile",
    "find_files",
    "is_list",
    "is_pattern",
    "may_be_in",
]

FORMATS: Final = ("txt", "csv", "tsv", "jsonl", "aria2", "bagit")
"""The values of --list-format; the binary formats are recognized by their suffixes only."""
BINARY: Final = frozenset({"parquet", "arrow"})
WITH_COLUMNS: Final = frozenset({"csv", "tsv", "jsonl", "parquet", "arrow"})

OF_ARRAY: Final = (
    "python3 -c 'import json, sys; [print(json.dumps(row)) for row in json.load(sys.stdin.buffer)]'"
)
"""The command that makes one JSON object a line of an array."""

_SUFFIX = re.compile(
    r"\.(?:(txt|csv|tsv|jsonl|ndjson)(?:\.(?:gz|zst))?|(parquet|arrow|feather|ipc))\Z", re.IGNORECASE
)
# Suffixes of compressed files that are not read, and the commands that write their content.
_UNPACKED: Final = {
    ".xz": "xz -dc",
    ".bz2": "bzip2 -dc",
    ".lzma": "xz -dc",
    ".lz4": "lz4 -dc",
    ".br": "brotli -dc",
    ".zip": "unzip -p",
    ".7z": "7z e -so",
    ".z": "gzip -dc",
}
_BEGIN: Final = {b"PAR1": "parquet", b"ARROW1": "arrow"}  # how the binary formats begin
_LONGEST_MAGIC: Final = 6
_BLANKS: Final = 4096  # bytes in which a JSON text begins
_SAME = {"ndjson": "jsonl", "feather": "arrow", "ipc": "arrow"}
_SCHEME = re.compile(r"[a-z0-9+]+://", re.IGNORECASE)
# As a shell has `<(COMMAND)`.
_DESCRIPTOR = re.compile(r"/(?:dev|proc/(?:thread-)?self)/(?:fd/)?(stdin|[0-9]+)").fullmatch
_MOST_LINKS = 40  # as Linux follows
_MAGIC = re.compile(r"\*|\?|\[.+\]", re.DOTALL)


class ListFile(NamedTuple):
    """A file of a list. ``name`` is its path below the directory or pattern; "" for a single file."""

    path: str
    form: str
    name: str = ""


def is_list(source: str) -> bool:
    """Return whether ``source`` is the path, the pattern or the directory of a list."""
    if _SCHEME.match(source) or "\0" in source:
        return False
    return bool(_format(source)) or is_pattern(source) or os.path.isdir(source)


def is_pattern(source: str) -> bool:
    """Return whether ``source`` is a glob pattern, and not the path of a file with such a name."""
    return _MAGIC.search(source) is not None and not os.path.lexists(source)


def may_be_in(source: str, directory: str, *, below: bool) -> bool:
    """Return whether a file in ``directory`` may be one of those that ``source`` means.

    ``source`` is a pattern or a directory; ``below``: also a file in a directory below. Files and
    directories that are not there yet count, too.
    """
    directory = os.path.realpath(directory)
    parts: list[str] = []
    if is_pattern(source):
        before = source[: _MAGIC.search(source).start()]  # type: ignore[union-attr]
        parts = source[len(os.path.dirname(before)) :].strip("/").split("/")[:-1]
        source = os.path.dirname(before) or ("/" if before.startswith("/") else ".")
    searched = _directory_seen_from(directory, source)
    directory = _directory_seen_from(searched, directory)
    if searched.startswith(os.path.join(directory, "")):
        return below
    if not os.path.join(directory, "").startswith(os.path.join(searched, "")):
        return False
    names = [name for name in os.path.relpath(directory, searched).split("/") if name != "."]
    if "**" in parts:
        names, parts = names[: parts.index("**")], parts[: parts.index("**")]
    elif len(names) > len(parts) or (len(names) < len(parts) and not below):
        return False
    return all(fnmatch.fnmatchcase(name, part) for name, part in zip(names, parts, strict=False))


def _directory_seen_from(other: str, directory: str) -> str:
    return os.path.dirname(seen_from(other, os.path.join(directory, "file")))


def find_files(source: str, form: str, without: Collection[str] = ()) -> list[ListFile]:
    """Return the files of ``source`` in their order, all of them readable.

    ``form`` is the value of --list-format, "" if it is not given. ``without``: paths that a directory or
    pattern leaves out. Raises ConfigError.
    """
    several = is_pattern(source) or os.path.isdir(source)
    if not several:
        return [_checked(source, form, "")]
    excluded = {os.path.realpath(path) for path in without if path}
    if is_pattern(source):
        root = os.path.dirname(source[: _MAGIC.search(source).start()])  # type: ignore[union-attr]
        found = [path for path in glob.glob(source, recursive=True) if not os.path.isdir(path)]
    else:
        root, found = source, _in_directory(source, form)
    names = {os.path.relpath(path, root or "."): path for path in found}
    files = [
        _checked(names[name], form, name)
        for name in sorted(names)
        if os.path.realpath(names[name]) not in excluded
    ]
    if not files:
        what = "no file matches it" if is_pattern(source) else "there is no list in this directory"
        raise ConfigError(f"{shown(source)}: {what} (.txt, .csv, .tsv, .jsonl, .parquet, .arrow)")
    return files


def _in_directory(source: str, form: str) -> list[str]:
    """Return the paths in a directory whose suffixes are those of lists, or all if ``form`` is given."""
    try:
        names = os.listdir(source)
    except OSError as error:
        raise ConfigError(f"{shown(source)}: {error.strerror}") from None
    if form == "bagit" or (not form and {"bagit.txt", "fetch.txt"} <= set(names)):
        names = [name for name in names if name == "fetch.txt"]
    elif not form:
        names = [name for name in names if _format(name)]
    paths = [os.path.join(source, name) for name in names if not name.startswith((".", "_"))]
    return [path for path in paths if not os.path.isdir(path)]


def _format(path: str) -> str:
    match = _SUFFIX.search(path)
    if match is None:
        return ""
    word = (match[1] or match[2]).lower()
    return _SAME.get(word, word)


def _checked(path: str, form: str, name: str) -> ListFile:
    named = shown(path.encode("utf-8", "backslashreplace").decode())
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise ConfigError(f"{named}: {error.strerror}") from None
    descriptor = _descriptor(path)
    if descriptor or not stat.S_ISREG(mode):
        remedy = "give - in its place" if descriptor else f"use - < {named}"
        if descriptor not in ("", "stdin", "0"):
            remedy += ", and have the list on standard input: COMMAND | downloader -"
        # Of a descriptor that is a regular file, only this process knows which.
        what = "a file of its own" if stat.S_ISREG(mode) else "a regular file"
        raise ConfigError(f"{named} is not {what}, which is read again on resume; {remedy}")
    if not os.access(path, os.R_OK):
        raise ConfigError(f"{named}: Permission denied")
    own = _format(path)
    if not own or own in BINARY:
        own = _by_content(path) or own
    if own in BINARY and form:
        raise ConfigError(f"{named} is no text, so --list-format {form} cannot be right; leave it out")
    if not form and own == "txt" and _is_bag(path):
        form = "bagit"
    stem, suffix = os.path.splitext(named)
    if unpack := _UNPACKED.get(suffix.lower()):
        target = stem if _format(stem) else f"{stem}.{form or 'txt'}"
        raise ConfigError(
            f"{named}: lists in {suffix.lower()} are not read, only in .gz and .zst; unpack it with: "
            f"{unpack} {shlex.quote(named)} > {shlex.quote(target)}"
        )
    if not (form or own):
        if suffix.lower() == ".json":
            raise _json(path, named)
        raise ConfigError(f"{named}: its suffix names no format; add --list-format {'|'.join(FORMATS)}")
    return ListFile(path, form or own, name)


def _descriptor(path: str) -> str:
    """Return the descriptor that ``path`` is, also by links: "stdin", "0", …; "" if it is none."""
    path = os.path.abspath(path)
    for _ in range(_MOST_LINKS):
        if found := _DESCRIPTOR(path):
            return found[1]
        try:
            target = os.readlink(path)
        except OSError:
            return ""
        path = os.path.normpath(os.path.join(os.path.dirname(path), target))
    return ""


def _by_content(path: str) -> str:
    """Return the binary format of ``path``, by how it begins; "" if it is of none, or is not to be read."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        begins = file.read(_LONGEST_MAGIC)
        return next((form for magic, form in _BEGIN.items() if begins.startswith(magic)), "")
    return ""


def _json(path: str, named: str) -> ConfigError:
    """Return the error for a list in .json: an array, or perhaps one object a line."""
    begins = b""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        begins = file.read(_BLANKS).removeprefix(codecs.BOM_UTF8).lstrip()
    if not begins.startswith(b"["):
        return ConfigError(f"{named}: if it has one JSON object a line, add --list-format jsonl")
    return ConfigError(
        f"{named} is a JSON array, and a list has one JSON object a line; convert it with: "
        f"{OF_ARRAY} < {shlex.quote(named)} > {shlex.quote(named + 'l')}"
    )


def _is_bag(path: str) -> bool:
    """Return whether ``path`` is the fetch.txt of a bag (RFC 8493)."""
    return os.path.basename(path) == "fetch.txt" and os.path.exists(
        os.path.join(os.path.dirname(path), "bagit.txt")
    )
