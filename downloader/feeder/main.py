"""Run the feeder: a forked child that turns the source into batches, never more than it has credit for.

That of files is a plain child (see ``process.spawn`` and ``Config.reads_files``) and imports no gevent.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path

import msgspec

from downloader.config.config import Config
from downloader.config.options import OutputOptions
from downloader.core.frames import MAX_FRAME
from downloader.core.item_digests import Digest, decode_digests, item_digests
from downloader.core.item_states import OWNED, UNOWNED, Claim, claimed
from downloader.core.listing import NO_SERVER, ONE_FILE
from downloader.core.name_list import encode_names
from downloader.core.ownership import Rules
from downloader.errors import ConfigError, FetchError, SourceError, failure_kind
from downloader.feeder.duplicates import Duplicates, open_duplicates
from downloader.files.directory import open_home
from downloader.messages import (
    BATCH_ITEMS,
    Batch,
    Continue,
    Credit,
    Ended,
    Finish,
    Heartbeat,
    Item,
    Log,
    Page,
    Ready,
    Recall,
    Tally,
    ToChild,
    Types,
)
from downloader.process.channel import PlainChildLink
from downloader.process.long_work import Pauses, give_way, work_alone
from downloader.sources.registry import source_kind
from downloader.sources.slice_file import SliceLister
from downloader.sources.source import ChecksFiles, Closes, DeclaresColumns, Fetch, Lister
from downloader.storage.former_files import FormerFiles
from downloader.storage.homes import home_of
from downloader.storage.known_names import Known
from downloader.storage.known_names import exists as is_read_again

__all__ = ["check", "run"]

_BEAT_EVERY = 1.0  # seconds
_FIRST_BATCH = 32
_NO_RULES = Rules()
# Room in a frame for what is said of each item when it fails: its key, code and detail.
_FAILURE_BYTES = 300
_encode = msgspec.msgpack.Encoder().encode


def run(
    config: Config,
    name_key: bytes,
    link: PlainChildLink,
    ready: Callable[[bool], Ready],
    rules: Rules = _NO_RULES,
) -> None:
    """Recall the batches that the journal has open, then read on from its cursor.

    ``name_key``: see ``core.naming.url_name``. ``rules``: see ``core.ownership``. Raises
    SourceError when the source breaks off, ConfigError if it is found wrong before any batch is sent.
    """
    # First: this imports requests where the source is listed with it, and `ready` must check that.
    lister: Lister
    if config.slice:
        lister = SliceLister(config.slice.path)
    else:
        lister = source_kind(config).lister(config, lambda: _listing_fetch(config, link), name_key)
    with contextlib.ExitStack() as opened:
        if isinstance(lister, Closes):
            opened.callback(lister.close)
        duplicates = open_duplicates(config)
        if duplicates:
            opened.callback(duplicates.close)
        link.send(ready(config.preflight != "off"))
        if config.reads_files:
            work_alone(_Beats(link))
        else:
            import gevent

            # Also while the source answers slowly. It ends with the process.
            gevent.spawn(_beat, link)
        outbox = _Outbox(link, config)
        try:
            look = _LookAhead(config, name_key, link, rules)
            _obey(config, link, outbox, lister, duplicates, look)
        except ConfigError as error:
            if not outbox.sent:
                raise
            # Files are being fetched: the source has broken off, and what it has listed is stored.
            raise SourceError(str(error)) from error


def check(config: Config, *, begun: bool) -> None:
    """Read the list of ``config`` up to its first batch, which goes nowhere; ``begun``: only its beginning.

    Raises ConfigError where ``run`` would raise it before it has sent a batch.
    """
    lister = source_kind(config).lister(config, _fetch_nothing, b"")
    with contextlib.ExitStack() as opened:
        if isinstance(lister, Closes):
            opened.callback(lister.close)
        if isinstance(lister, ChecksFiles):
            lister.check(begun=begun)
        if begun:
            return
        most = next(_sizes(config.sink_kind.shard_items(config)))
        page = next(lister.pages(b"", lambda: min(most, config.limit or most)), None)
        if page is not None:
            _check_size(_batch(0, page), config)


def _fetch_nothing() -> Fetch:
    raise SourceError("a list fetches nothing")


class _Outbox:
    """What goes to the supervisor. ``sent``: how many batches have."""

    def __init__(self, link: PlainChildLink, config: Config) -> None:
        self.link = link
        self.sent = 0
        self._config = config

    def send(self, batch: Batch) -> None:
        """Send ``batch``. Raises ConfigError if it is too large."""
        _check_size(batch, self._config)
        self.link.send(batch)
        self.sent += 1


def _obey(
    config: Config,
    link: PlainChildLink,
    outbox: _Outbox,
    lister: Lister,
    duplicates: Duplicates | None,
    look: _LookAhead,
) -> None:
    """Carry out commands until the last one."""
    inbox = _Inbox(link)
    told = config.column_types
    digests = _keeps_digests(config)
    for command in iter(inbox.command, None):
        if isinstance(lister, DeclaresColumns) and isinstance(command, (Recall, Continue)):
            begun = isinstance(command, Recall) or bool(command.cursor)
            if (types := lister.column_types(told, begun=begun)) != told:
                told = types
                link.send(Types(told))
        if isinstance(command, Recall):
            page = lister.recall(command)
            if duplicates:
                page = duplicates.recall(command.seq, page)
            # Those in the journal stay, unless the batch was corrected.
            outbox.send(_batch(command.seq, page, recalled=True, digests=digests and bool(page.cursor)))
        elif isinstance(command, Continue):
            with contextlib.ExitStack() as opened:
                known = _known(config, command.seq, look, unique=duplicates is not None)
                if known:
                    opened.callback(known.close)
                if duplicates:
                    duplicates.go_on(command.seq)
                _read_on(config, outbox, inbox, lister.pages, command, known, duplicates, look)
        elif isinstance(command, Finish):
            return


class _LookAhead:
    """Reads the list behind a page a second time, for ``Known``.

    ``cursor``: that behind the page. ``left``: how many items --limit leaves behind it, -1 for all.
    """

    def __init__(self, config: Config, name_key: bytes, link: PlainChildLink, rules: Rules) -> None:
        self._config = config
        self._name_key = name_key
        self._link = link
        self.files = FormerFiles(Path(config.local_output), config.layout, rules, Pauses())
        self.cursor = b""
        self.left = -1

    def items(self) -> Iterator[tuple[list[str], list[Digest]]]:
        """Yield names and digests of the items behind the page, see ``Known``."""
        if self._config.reads_stdin:
            raise SourceError("standard input can be read once")
        lister = source_kind(self._config).lister(self._config, _fetch_nothing, self._name_key)
        with contextlib.ExitStack() as opened:
            if isinstance(lister, Closes):
                opened.callback(lister.close)
            left = self.left
            for page in lister.pages(self.cursor, lambda: BATCH_ITEMS) if left else ():
                items = page.items if left < 0 else page.items[:left]
                packed = item_digests(items) if items else b""
                yield [item.name for item in items], decode_digests(packed, len(items))
                left -= len(items)
                if not left:
                    return
                give_way()


def _known(config: OutputOptions, seq: int, look: _LookAhead, *, unique: bool) -> Known | None:
    """Return the table of known names, None if the source is not read again.

    ``unique``: no two items have one name.
    """
    try:
        home = open_home(home_of(config.journal_root))
    except (FileNotFoundError, NotADirectoryError):
        return None  # there is no destination, as in a dry run
    with home:
        if not is_read_again(home):
            return None
        return Known(home, seq, look.files, None if unique else look.items)


class _Inbox:
    """What the supervisor has sent: commands and credit. Sends a sign of life while it waits for either."""

    def __init__(self, link: PlainChildLink) -> None:
        self._link = link
        self._commands: deque[ToChild] = deque()
        self._credit = 0  # how many batches the supervisor has room for

    def command(self) -> ToChild | None:
        """Wait for a command and return it; return None when the supervisor has exited."""
        while not self._commands:
            if not self._receive():
                return None
        return self._commands.popleft()

    def spend(self) -> None:
        """Wait for credit and use it. Raises OSError when the supervisor has exited."""
        while not self._credit:
            if not self._receive():
                raise BrokenPipeError
        self._credit -= 1

    def _receive(self) -> bool:
        messages = self._link.receive(_BEAT_EVERY)
        if messages == []:
            self._link.send(Heartbeat(Tally(), 0))
        for message in messages or ():
            if isinstance(message, Credit):
                self._credit += message.batches
            else:
                self._commands.append(message)
        return messages is not None


class _Beats:
    """A function to call often, which sends a heartbeat now and then."""

    def __init__(self, link: PlainChildLink) -> None:
        self._link = link
        self._next = time.monotonic() + _BEAT_EVERY

    def __call__(self) -> None:
        if (now := time.monotonic()) > self._next:
            self._next = now + _BEAT_EVERY
            self._link.send(Heartbeat(Tally(), 0))


def _beat(link: PlainChildLink) -> None:
    while True:
        time.sleep(_BEAT_EVERY)
        link.send(Heartbeat(Tally(), 0))


def _keeps_digests(config: Config) -> bool:
    """Return whether the journal is to tell items of one name apart, when the source is read again."""
    return not (config.slice or config.dry_run or config.sink_kind.shard_items(config))


def _batch(
    seq: int, page: Page, *, recalled: bool = False, known: Known | None = None, digests: bool = False
) -> Batch:
    if page.names is not None:
        names = page.names
        items = _encode(list(zip(names)))  # like Items whose other fields are omitted
    else:
        names = [item.name for item in page.items]
        items = _encode(page.items)
    packed = item_digests(page.items) if digests and page.items else b""
    marks = b""
    if known and packed:
        marks = known.marks_of_items(seq, page.items, decode_digests(packed, len(names)))
    elif known:
        marks = known.marks_of_names(seq, names)
    return Batch(
        seq=seq,
        count=len(names),
        cursor=page.cursor,
        names=encode_names(names),
        recall_data=page.recall_data,
        items=items,
        recalled=recalled,
        position=page.position,
        marks=marks,
        digests=packed,
    )


def _check_size(batch: Batch, config: Config) -> None:
    """Raise ConfigError if ``batch`` is too large to be sent, with room to say what failed."""
    size = len(batch.items) + len(batch.names) + len(batch.digests) + _FAILURE_BYTES * batch.count
    if size <= MAX_FRAME:
        return
    shard_items = config.sink_kind.shard_items(config)
    fewer = batch.count * MAX_FRAME // size * 9 // 10 if shard_items else 0
    raise ConfigError(
        f"{config.shown_source}: names, URLs and kept columns of {batch.count:,} rows take {size:,} bytes, "
        f"and those of a {'shard' if shard_items else 'batch'} may take {MAX_FRAME:,}; keep fewer columns"
        + (f", or store the list with --shard-files {fewer} and another -o" if fewer else "")
    )


def _owned(items: list[Item]) -> bytes:
    """Return the states of items some of which are OWNED or UNOWNED, b"" if none is."""
    owned = {
        index: Claim(UNOWNED if item.earlier.foreign else OWNED, item.earlier.file)
        for index, item in enumerate(items)
        if item.earlier and item.earlier.owned
    }
    return claimed(b"", len(items), owned) if owned else b""


def _sizes(shard_items: int) -> Iterator[int]:
    """Yield small sizes first, so that every worker has work at once, then that of a full batch.

    With shards, a batch is always a whole one.
    """
    if shard_items:
        yield from repeat(shard_items)
    size = _FIRST_BATCH
    while size < BATCH_ITEMS:
        yield size
        size *= 2
    while True:
        yield BATCH_ITEMS


def _read_on(
    config: Config,
    outbox: _Outbox,
    inbox: _Inbox,
    pages: Callable[[bytes, Callable[[], int]], Iterator[Page]],
    start: Continue,
    known: Known | None,
    duplicates: Duplicates | None,
    look: _LookAhead,
) -> None:
    link = outbox.link
    seq, listed = start.seq, start.listed
    shard_items = config.sink_kind.shard_items(config)
    sizes = _sizes(shard_items)
    digests = _keeps_digests(config)

    def size() -> int:
        maximum = next(sizes)
        if start.multiple:
            maximum = min(maximum, start.multiple - listed % start.multiple)
        return min(maximum, config.limit - listed) if config.limit else maximum

    if config.limit and listed >= config.limit:
        link.send(Ended(limited=True))
        return
    for read in pages(start.cursor, size):
        if shard_items and not read.items and not read.names:
            continue  # a batch without items would be a shard without samples
        inbox.spend()
        if read.note:
            link.send(Log("warning", read.note))
        page = duplicates.settle(seq, read) if duplicates else read
        look.cursor = read.cursor
        look.left = config.limit - listed - len(read.items) if config.limit else -1
        batch = _batch(seq, page, known=known, digests=digests)
        if config.slice.again:
            batch = msgspec.structs.replace(batch, marks=_owned(page.items))
        outbox.send(batch)
        seq += 1
        listed += batch.count
        if config.limit and listed >= config.limit:
            link.send(Ended(limited=True))
            return
    link.send(Ended())


def _listing_fetch(config: Config, link: PlainChildLink) -> Fetch:
    """Return a GET for listings, with the run's retry policy; it raises SourceError with what failed."""
    from random import random

    from downloader.core.redact import redact_url
    from downloader.http.listing_client import ListingClient
    from downloader.http.session import HttpSession

    read = ListingClient(config, HttpSession(config)).read
    policy, cut = config.retry_policy, config.echoes.cut_all

    def fetch(url: str) -> bytes | bytearray:
        attempt = 1
        while True:
            try:
                return read(url)
            except FetchError as error:
                kind = failure_kind(error.code)
                # Its marker, a redirect, a reason: the server may have what it was sent in any of them.
                detail = cut(error.detail, url) or kind.meaning
                what = f"{redact_url(cut(url))}: {detail} ({error.code})"
                if not policy.allows(attempt, error.transient):
                    raise SourceError(f"the listing failed: {what}{_advice(error.code, config)}") from None
                pause = policy.delay(attempt, random(), error.retry_after)
                link.send(Log("warning", f"{what}; again in {pause:.1f} s"))
            time.sleep(pause)
            attempt += 1

    return fetch


def _advice(code: str, config: Config) -> str:
    login = "; give credentials with --auth-file, --netrc or -H"
    if config.auth or config.netrc or config.headers or "@" in config.source:
        login = "; are the credentials right, and those for this host?"
    return {
        "dns": "; check the host's name",
        "connect": "; is the server running, and is the port right?",
        **dict.fromkeys(("http-400", "http-404", "http-405", "http-410"), f"; {NO_SERVER}"),
        "http-401": login,
        "http-403": f"{login} ({ONE_FILE})",
    }.get(code, "")
