"""Compare what a job over many machines has stored with its plan, and have what differs fetched again."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import msgspec

from downloader.cluster.driver.plan_home import plan_home_at
from downloader.cluster.driver.retry import DAMAGED, RetryItems, failed_items, keys_of, plan_again
from downloader.cluster.driver.stored_there import check_bucket, has_all
from downloader.cluster.plan.plan import Plan, PlanDirectory, Slice, SliceRecord
from downloader.cluster.plan.stored import read_stored, read_sums
from downloader.core.bucket_access import NO_OPTIONS, BucketAccess
from downloader.core.bucket_place import is_bucket, is_same_place
from downloader.core.item_states import OWNED, UNOWNED, Claim, ItemState
from downloader.core.units import show_count
from downloader.errors import UNDECODABLE, ConfigError, DestinationError, JournalError
from downloader.files.directory import open_home
from downloader.messages import Item
from downloader.sinks.registry import sink_kind
from downloader.sinks.shards.comparing import ShardComparison
from downloader.sinks.shards.indexes import Indexed
from downloader.sinks.shards.options import SHARD_OPTIONS, ShardOptions
from downloader.sinks.shards.places import open_published
from downloader.sinks.shards.records import ShardRecord
from downloader.sinks.shards.staging import StagingDirectory
from downloader.sinks.shards.stats import FileStats
from downloader.sinks.sink import Written
from downloader.sinks.stored import is_inside, place
from downloader.sinks.taken_names import NameTaken
from downloader.storage.homes import home_of
from downloader.storage.name_key import key_digest
from downloader.storage.name_owners import CHUNK, damaged_at, is_left
from downloader.storage.places import check_mounted
from downloader.storage.verify import HeldRoot, Verified

__all__ = ["Damage", "verify_cluster", "write_down"]

_NAMED = 1000


class Damage(NamedTuple):
    """What is wrong with a stored file, and which file has its name now (``core.item_states``).

    ``foreign``: it was not stored, but kept.
    """

    name: str
    problem: str
    file: int = 0
    foreign: bool = False


_Problem = Callable[[Item, str, int, ItemState], str]
"""Returns what is wrong with an item; it has a key and a shard, if there are shards."""


def verify_cluster(
    output: str, quiet: bool = False, root: str = "", access: BucketAccess = NO_OPTIONS
) -> Verified | None:
    """Compare every stored file of a job with its plan; return the result, None if there is no plan.

    See ``storage.verify.verify``. ``root`` may be s3://BUCKET/PREFIX, with ``access`` to the bucket. Raises
    ConfigError, InUse, DestinationError, JournalError, SourceError.
    """
    root = root or output
    directory = PlanDirectory(root, access)
    if (plan := directory.read()) is None:
        return None
    if plan.store == "local":
        raise ConfigError(f"{plan.output} is on the disks of nodes, which verify cannot read from here")
    there = output if is_bucket(plan.output) else os.path.realpath(output)
    if not is_same_place(plan.output if is_bucket(plan.output) else os.path.realpath(plan.output), there):
        raise ConfigError(f"{root} has the plan of {plan.output}, not of {output}; give that")
    if not sink_kind(plan.store).keeps:
        raise ConfigError(f"{output} was stored with --store {plan.store}; there are no files to verify")
    if not is_bucket(root) and not os.access(home_of(root), os.W_OK):
        return _Verifying(directory, plan, output, root, access, read_only=True).run(quiet)
    with plan_home_at(root, access, _say) as home:
        home.directory.check_key(plan, key_digest(home.name_key))
        found = _Verifying(home.directory, plan, output, root, access, read_only=False)
        return found.run(quiet)


def _say(text: str) -> None:
    print(f"downloader: {text}", file=sys.stderr)  # noqa: T201


class _Verifying:
    """A comparison of a whole plan."""

    def __init__(
        self,
        directory: PlanDirectory,
        plan: Plan,
        output: str,
        root: str,
        access: BucketAccess,
        *,
        read_only: bool,
    ) -> None:
        self._directory = directory
        self._plan = plan
        self._output = output
        self._root = root
        self._read_only = read_only
        self._kind = sink_kind(plan.store)
        self._slices = {slice_.name: slice_ for slice_ in directory.slices()}
        self._retried = {name for slice_ in self._slices.values() for name in slice_.retries}
        self._options: ShardOptions | None = None
        self._shards: ShardComparison | None = None
        self._records: dict[int, ShardRecord] = {}  # of the slice that is compared
        self._found: list[
            tuple[Slice, SliceRecord, dict[int, Damage]]
        ] = []  # damaged, and not recorded yet
        if self._kind.options is SHARD_OPTIONS:
            self._options = options = self._decoded_options()
            if is_bucket(output):
                check_bucket(directory, output, access)
            files = open_published(output, None, access)
            self._shards = shards = ShardComparison(files, plan.store, options, self._records.get)
            self._problem: _Problem = lambda item, key, shard, state: shards.problem(
                key, (shard,), (state.size, state.crc)
            )
        else:
            inspect = self._kind.inspector(Path(output), plan.identity)
            self._problem = lambda item, key, shard, state: inspect(
                Written(0, state.index, item.name, state.size, state.crc)
            )

    def _decoded_options(self) -> ShardOptions:
        try:
            return msgspec.json.decode(self._plan.identity, type=ShardOptions)
        except UNDECODABLE as error:
            raise JournalError(f"{self._directory.root} is damaged ({error}); --restart") from error

    def run(self, quiet: bool) -> Verified:
        """Compare everything; write down what differs."""
        with contextlib.closing(HeldRoot(self._output)) as self._held:
            if self._plan.began_ns and (stored := self._directory.count_stored()):
                has = functools.partial(has_all, self._directory, self._output)
                check_mounted(self._output, self._plan.began_ns, stored, has)
            return self._run(quiet)

    def _run(self, quiet: bool) -> Verified:
        records = list(self._directory.records())
        # In a bucket a driver gives shards their names.
        staged = [] if self._read_only or is_bucket(self._output) else self._move(records)
        waiting = self._waiting({done.name for done in records})
        checked = wrong = recorded = 0
        names: list[str] = []
        for name in self._recorded(records):
            recorded += 1
            names += [name] if recorded <= _NAMED else []
        published: list[tuple[str, str]] = []
        files: dict[int, list[FileStats]] = {}
        shown = monotonic()
        for done in records:
            slice_ = self._slices.get(done.name)
            if slice_ is None:
                raise JournalError(f"{self._directory.root} is damaged: no slice {done.name}; --restart")
            self._know(slice_, done)
            damaged: dict[int, Damage] = {}
            for number, item, key, shard, state in self._stored(slice_, done):
                if (key or item.name) in waiting:
                    continue
                checked += 1
                if problem := self._problem(item, key, shard, state):
                    file = self._file_of(item.name)
                    damaged[number] = Damage(item.name, problem, file, state.foreign)
                    names += [item.name] if len(names) < _NAMED else []
                if not quiet and monotonic() - shown > 2:
                    shown = monotonic()
                    _say(f"{show_count(checked)} files verified")
            if self._shards is not None:
                published += [each for shard in self._records for each in self._shards.left(shard)]
                files |= self._indexed(done, self._shards)
            wrong += len(damaged)
            self._note(slice_, done, damaged)
        self._write_down()
        if staged:
            StagingDirectory(self._output).remove(staged)
        if self._shards is not None and self._are_indexed(records, len(files)):
            published += self._shards.indexes([file for number in sorted(files) for file in files[number]])
        unrecorded = self._shards.unrecorded if self._shards is not None else 0
        kept = dict(published[:_NAMED])
        doubtful = sum(done.report.doubtful for done in records)
        return Verified(
            *(checked, checked - wrong, wrong + recorded, names, not self._read_only, kept, unrecorded),
            *(doubtful, recorded),
        )

    def _indexed(self, done: SliceRecord, shards: ShardComparison) -> dict[int, list[FileStats]]:
        """Return the files of each shard of a slice that a driver has in the indexes, if they are whole.

        It looks at a directory, and leaves out what is gone; in a bucket it does not look.
        """
        if is_bucket(self._output):
            return {shard.number: shard.files for shard in done.shards}
        return {shard.number: shards.files_of(shard.number) or [] for shard in done.shards}

    def _recorded(self, records: list[SliceRecord]) -> Iterator[str]:
        """Yield the names of what is recorded as damaged and was not fetched again."""
        done_names = {done.name for done in records}
        for slice_ in self._slices.values():
            if slice_.retries and slice_.name not in done_names:
                for items in self._directory.items(slice_):
                    yield from (item.name for item in items if item.earlier and item.earlier.owned)
        for done in records:
            if done.name not in self._retried and DAMAGED in done.report.failed_by_error:
                yield from (each.name for each in self._directory.failed(done) if each.code == DAMAGED)
        for done in records if self._shards is None else ():
            of_slice = self._slices.get(done.name)
            if of_slice is not None and done.name not in self._retried and done.report.failed:
                yield from self._left(of_slice, done)

    def _left(self, slice_: Slice, done: SliceRecord) -> Iterator[str]:
        """Yield the names of items that are damaged, also after they were requested again.

        Where another item has the name, what this one had is gone.
        """
        codes = {each.item: each.code for each in self._directory.failed(done)} if slice_.retries else {}
        for number, item in enumerate(chain.from_iterable(self._directory.items(slice_))) if codes else ():
            earlier = item.earlier
            if earlier is None or not earlier.owned or earlier.foreign:
                continue
            if codes.get(number, DAMAGED) not in (DAMAGED, "name-taken"):
                where = place(item.name, self._plan.identity) if self._kind.name == "files" else ""
                if not where or (is_inside(where) and is_left(Path(self._output), where, earlier.file)):
                    yield item.name

    def _are_indexed(self, records: list[SliceRecord], shards: int) -> bool:
        """Return whether a driver has written the indexes since the last shard was published, or has to."""
        of_source = [slice_ for slice_ in self._slices.values() if not slice_.retries]
        left = {slice_.name for slice_ in of_source if slice_.count} - {done.name for done in records}
        if not left and any(slice_.ended or slice_.limited for slice_ in of_source):
            return True
        if is_bucket(self._root) or is_bucket(self._output):
            return False
        with open_home(home_of(self._root), write=False) as home:
            return Indexed(home, Path(self._output)).counts(shards)

    def _know(self, slice_: Slice, done: SliceRecord) -> None:
        """Make the records of the shards of a slice those that are known."""
        self._records.clear()
        sums: list[bytes] = []
        if done.shards and done.stored:
            name = f"stored/{done.stored}"
            with self._directory.files.open(name) as file:
                sums = read_sums(file, f"{self._directory.root}/{name}")
        for shard in done.shards:
            at = shard.number - slice_.first
            of_shard = sums[at] if 0 <= at < len(sums) else b""
            self._records[shard.number] = ShardRecord(shard.files, shard.others, of_shard)

    def _move(self, records: list[SliceRecord]) -> list[str]:
        """Give shards their names that a driver has not given them; return where those were published.

        Raises NameTaken if a file of somebody else has one: it is for the next run to replace it.
        """
        staging = StagingDirectory(self._output, existing="keep")
        left = set(staging.names())
        here = [done for done in records if done.staging in left]
        for done in here:
            for shard in done.shards:
                try:
                    staging.move(done.staging, [shard], last=False)
                except NameTaken:
                    raise
                except DestinationError:
                    continue  # its samples are found missing
        return [done.staging for done in here]

    def _waiting(self, done: set[str]) -> set[str]:
        """Return the names, or keys if there are shards, of items that are to be fetched again."""
        found: set[str] = set()
        for slice_ in self._slices.values():
            if slice_.retries and slice_.name not in done:
                for items in self._directory.items(slice_):
                    found.update(item.earlier.key or item.name for item in items if item.earlier)
        return found

    def _stored(self, slice_: Slice, done: SliceRecord) -> Iterator[tuple[int, Item, str, int, ItemState]]:
        """Yield the items of a slice that it has stored: number, item, key, shard and state."""
        if not done.stored:
            return  # by an earlier version
        name = f"stored/{done.stored}"
        failed = failed_items(self._directory, slice_, done).items
        with self._directory.files.open(name) as file:
            states = read_stored(file, f"{self._directory.root}/{name}", slice_.count)
            number, state = next(states, (-1, None))
            before = 0
            for shard, items in enumerate(self._directory.items(slice_), slice_.first):
                keys = keys_of(items, shard, self._options) if self._options else [""] * len(items)
                while state is not None and number < before + len(items):
                    index = number - before
                    if number not in failed:
                        yield number, items[index], keys[index], shard, state
                    number, state = next(states, (-1, None))
                before += len(items)

    def _file_of(self, name: str) -> int:
        """Return which file has ``name``; 0 if none has, or if items are no files."""
        where = place(name, self._plan.identity) if self._kind.name == "files" else ""
        return damaged_at(Path(self._output), where) if is_inside(where) else 0

    def _note(self, slice_: Slice, done: SliceRecord, damaged: dict[int, Damage]) -> None:
        """Note what is damaged of a slice; record it, if that is much, unless nothing can be written."""
        if damaged and not self._read_only:
            self._found.append((slice_, done, damaged))
            if sum(len(each) for *_, each in self._found) >= CHUNK:
                self._write_down()

    def _write_down(self) -> None:
        """Record what was found damaged since the last time."""
        if self._found:
            self._held.check()
        owned = self._owned()
        for slice_, done, damaged in self._found:
            known = {
                number: each._replace(file=0) if each.name in owned else each
                for number, each in damaged.items()
            }
            retried, most = slice_.name in self._retried, self._plan.slice_files
            write_down(self._directory, self._slices, done, known, self._options, most, retried=retried)
        self._found.clear()

    def _owned(self) -> set[str]:
        """Return the names of damaged files that another item has stored, in any slice."""
        pending = {done.name: damaged for _, done, damaged in self._found}
        wanted = {each.name for damaged in pending.values() for each in damaged.values() if each.file}
        owned: set[str] = set()
        for done in self._directory.records() if wanted else ():
            damaged = pending.get(done.name, {})
            for number, item, *_, state in self._stored(self._slices[done.name], done):
                if item.name in wanted and number not in damaged and not state.foreign:
                    owned.add(item.name)
        return owned


def write_down(
    directory: PlanDirectory,
    slices: dict[str, Slice],
    done: SliceRecord,
    damaged: Mapping[int, Damage],
    options: ShardOptions | None,
    most: int,
    *,
    retried: bool,
) -> None:
    """Record items of a slice as failed, so that the next run fetches them again.

    ``damaged``: by their numbers. ``retried``: slices of what has failed here are
    made already; then another one is made now, and added to ``slices``. See ``plan_again`` for the rest.
    """
    if retried:
        claims = {
            number: Claim(UNOWNED if each.foreign else OWNED, each.file) for number, each in damaged.items()
        }
        again = RetryItems(slices[done.name], claims)
        slices |= {each.name: each for each in plan_again(directory, [again], slices, options, most)}
    lines = [line.rstrip(b"\n") for line in directory.failed_lines(done)]
    for number, each in damaged.items():
        failure = {"item": number, "name": each.name, "url": "", "code": DAMAGED}
        failure |= {"detail": each.problem, "attempts": 0, "file": each.file, "foreign": each.foreign}
        lines.append(msgspec.json.encode(failure))
    report, count = done.report, len(damaged)
    stored = min(count, report.stored)
    codes = report.failed_by_error
    report = msgspec.structs.replace(
        report,
        stored=report.stored - stored,
        skipped=report.skipped - (count - stored),
        failed=report.failed + count,
        failed_by_error={**codes, DAMAGED: codes.get(DAMAGED, 0) + count},
    )
    content = b"".join(line + b"\n" for line in lines)
    directory.amend(msgspec.structs.replace(done, report=report), content)
