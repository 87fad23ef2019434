"""Choose the columns of a list: from the options, and from the names of the columns that it has."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from difflib import get_close_matches
from itertools import islice
from shlex import quote
from typing import Final, NamedTuple

from downloader.core.column_types import MOST_COLUMNS
from downloader.core.content_check import ALGORITHMS
from downloader.core.naming import shown
from downloader.errors import ConfigError
from downloader.sources.lists.nested import NO_FIELDS, Fields, leaves, path_of
from downloader.sources.lists.requirements import require_crc32c

__all__ = [
    "ALL",
    "RECOGNIZED",
    "Columns",
    "TooManyColumns",
    "Wanted",
    "check_kept",
    "choose",
    "parse_checksum_column",
]

ALL: Final = "all"
RECOGNIZED: Final = ("sha256", "sha1", "md5", "crc32c")
"""The names of columns that are checksums by themselves; of those with a value the first one counts."""
_SHOWN: Final = 30
# A name that differs from that of a default column in case and in these only stands for it: "SHA-256".
_MARKS: Final = re.compile(r"[\W_]+")
_SEARCHED: Final = 1000  # names that one that is missing is compared with


class Wanted(NamedTuple):
    """The columns that the options name. ``checksum`` is (algorithm, column), ``keep`` a list or "all".

    "" stands for an option that is not given. ``members``: those of --member, which ``keep`` has as well.
    ``idle``: default columns that the job does not use, whatever is in them.
    """

    url: str = "url"
    name: str = "name"
    size: str = "size"
    checksum: tuple[str, str] | None = None
    header: str = ""
    keep: str = ""
    positions: bool = False
    members: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()


class Columns(NamedTuple):
    """The columns of one list; "" where there is none. ``mirrors`` is a column of lists of URLs.

    ``keep``: columns that travel with the item; None: all but ``url`` and ``header``, which differ from row
    to row. ``hidden``: what does not travel of the structs among them. ``whole_lines``: a row is a line
    that has a URL and nothing else. ``literal``: files must have the
    very names that the list gives them, ``below`` a directory.
    """

    url: str
    name: str = ""
    size: str = ""
    checksums: tuple[tuple[str, str], ...] = ()
    header: str = ""
    mirrors: str = ""
    keep: tuple[str, ...] | None = ()
    hidden: tuple[str, ...] = ()
    whole_lines: bool = False
    literal: bool = False
    below: str = ""

    @property
    def needed(self) -> list[str]:
        """Return the columns to read, each once."""
        names = [self.url, self.name, self.size, self.header, self.mirrors, *(self.keep or ())]
        return [name for name in dict.fromkeys([*names, *(c for _, c in self.checksums)]) if name]


def parse_checksum_column(text: str) -> tuple[str, str]:
    """Return algorithm and column of ``ALG=COLUMN``. Raises ValueError."""
    algorithm, equals, column = text.partition("=")
    if not (algorithm and equals and column):
        raise ValueError(f"{text[:40]!r} is not ALG=COLUMN, as in sha256=digest")
    if algorithm not in ALGORITHMS:
        near = get_close_matches(re.sub(r"[-_]", "", algorithm.lower()), ALGORITHMS, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"{algorithm[:40]!r} is not one of {', '.join(ALGORITHMS)}{hint}")
    return algorithm, column


def choose(
    wanted: Wanted,
    present: Sequence[str],
    where: str,
    *,
    varying: bool = False,
    fields: Fields = NO_FIELDS,
    elsewhere: Callable[[str, str], bool] = lambda name, near: False,
    cause: str = "",
) -> Columns:
    """Return the columns of a list that has the columns ``present``; ``where`` is its name in messages.

    ``varying``: rows may have others, too; ``elsewhere`` returns whether rows further on have one, of which
    these have only the similar ``near``, if any. ``fields``: what columns have in them. ``cause``: why one
    may be missing. Raises ConfigError, with the columns that there are, where one is missing that an option
    names, and where one seems to be a default column (``SHA-256``) and would not be used.
    """
    # Those of the fields of structs, too.
    every = list(islice(leaves(fields), _SEARCHED)) if fields else present
    counts = Counter(present)  # there may be a hundred thousand

    def find(option: str, name: str, *, optional: bool = False) -> str:
        path = path_of(name, fields)
        first = path[0] if path else name
        if (count := counts[first]) > 1:
            raise ConfigError(f"{where} has {count} columns {shown(first)!r}; rename all but one of them")
        if path or count or (varying and optional):
            return name
        if not optional:
            near = _nearest(name, every)
            # Rows may lack other columns; without a URL each of them fails.
            if not elsewhere(name, near if option == "--url-column" else ""):
                raise _missing(option, name, every, where, cause, near)
        return "" if optional else name

    url = "1" if wanted.positions and wanted.url == "url" else wanted.url
    checksums = _checksums(wanted, counts.keys(), where, varying=varying, find=find)
    header = find("--header-column", wanted.header) if wanted.header else ""
    url = find("--url-column", url)
    members = {name: find("--member", name) for name in wanted.members}
    keep: tuple[str, ...] | None = ()
    if wanted.keep == ALL:
        left_out = {url, header}
        rest = [name for name in present if name not in left_out]
        check_kept(rest, where)
        keep = None if varying else tuple(find("", name) for name in rest)
    elif wanted.keep:
        names = list(filter(None, dict.fromkeys(wanted.keep.split(","))))
        check_kept(names, where)
        keep = tuple(members.get(name) or find("--keep-columns", name) for name in names)
        if header in keep and header:
            raise ConfigError(f"--keep-columns: {header!r} has the header fields, which are kept nowhere")
    _check_unused(
        wanted, present, where, {url, header, *members, *(() if wanted.keep == ALL else keep or ())}
    )
    return Columns(
        url=url,
        name=find("--name-column", wanted.name, optional=wanted.name == "name"),
        size=find("--size-column", wanted.size, optional=wanted.size == "size"),
        checksums=tuple(checksums),
        header=header,
        keep=keep,
        hidden=tuple(name for name in (url, header) if "." in name) if wanted.keep == ALL else (),
    )


class TooManyColumns(ConfigError):
    """A list has more columns to keep than can be kept."""


def check_kept(names: Iterable[str], where: str) -> None:
    """Raise TooManyColumns if so many cannot be kept; ``where``: the name of the list in messages."""
    if (count := len(set(names))) > MOST_COLUMNS:
        raise TooManyColumns(
            f"{where} has {count:,} columns to keep, and {MOST_COLUMNS:,} is the limit; "
            "name fewer with --keep-columns A,B"
        )


def _checksums(
    wanted: Wanted, present: Set[str], where: str, *, varying: bool, find: Callable[[str, str], str]
) -> list[tuple[str, str]]:
    """Return algorithm and column of the checksums. Raises ConfigError."""
    checksums: list[tuple[str, str]] = []
    if wanted.checksum:
        algorithm, column = wanted.checksum
        checksums = [(algorithm, find(f"--checksum-column {algorithm}=", column))]
    elif not wanted.positions:
        names = [name for name in RECOGNIZED if name in present or varying]
        checksums = [(name, find("--checksum-column", name) if name in present else name) for name in names]
    recognized = [name for name in RECOGNIZED if name in present]
    if [name for name, _ in checksums] == ["crc32c"] or (not wanted.checksum and recognized == ["crc32c"]):
        require_crc32c(where)
    return checksums


def _check_unused(wanted: Wanted, present: Sequence[str], where: str, others: set[str]) -> None:
    """Raise ConfigError if one of ``present`` is a default column but for how its name is written.

    Its values would be ignored in silence: a checksum would not be verified. A name or a size may be
    something else, and is one of ``others``, columns that an option names; a checksum is one, also where it
    is kept.
    """
    folded = {_folded(name): name for name in reversed(present)}

    def check(default: str, option: str, way_out: str, but: set[str]) -> None:
        near = folded.get(default, default)
        if default in present or default in wanted.idle or near in but | {default}:
            return
        raise ConfigError(
            f"{where} has no column {default!r}, and its column {shown(near)!r} would not be used: "
            f"{option}{quote(shown(near))} uses it, {way_out}"
        )

    kept = "--keep-columns with its name says that it is something else"
    if wanted.name == "name":
        check("name", "--name-column ", kept, others)
    if wanted.size == "size":
        check("size", "--size-column ", kept, others)
    if not wanted.checksum:
        for name in RECOGNIZED:
            check(name, f"--checksum-column {name}=", "--checksums off verifies none", set())


def _folded(name: str) -> str:
    return _MARKS.sub("", name.casefold())


def _nearest(name: str, present: Sequence[str]) -> str:
    """Return the one of ``present`` that ``name`` may stand for: a field of that name, or one like it."""
    folded: dict[str, str] = {}
    for each in present:
        folded.setdefault(each.casefold(), each)
    last = name.casefold().rpartition(".")[2]
    inner = [each for each in present if each.casefold().rpartition(".")[2] == last]
    if name.casefold() not in folded and inner:
        return inner[0]
    near = get_close_matches(name.casefold(), islice(folded, _SEARCHED), 1, 0.5)
    return folded[near[0]] if near else ""


def _missing(
    option: str, name: str, present: Sequence[str], where: str, cause: str, near: str
) -> ConfigError:
    if cause and not present:
        return ConfigError(f"{where}: {cause.removeprefix('; ')}")
    written = {"--member": "--member EXT="}.get(option, option if option.endswith("=") else f"{option} ")
    hint = cause or (f"; did you mean {written}{quote(shown(near))}?" if near else "")
    names = ", ".join(map(shown, present[:_SHOWN])) + (", …" if len(present) > _SHOWN else "")
    return ConfigError(
        f"{where} has no column {shown(name)!r} ({option.partition(' ')[0]}), it has "
        f"{names or 'none'}{hint}"
    )
