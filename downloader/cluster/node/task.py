"""Run a slice on a node: what a task of the cluster does.

The slice runs in a fresh process, since gevent and Ray's threads exclude each other. That process has a
session of its own and is killed when this one dies. How it ended is told by the file that it leaves.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
from pathlib import Path
from typing import Any

import msgspec

from downloader.cluster.node.attempt_shards import NodeShards
from downloader.cluster.node.limits_actor import Directives, SliceHeartbeat
from downloader.cluster.node.local_disk import mark_disk, on_this_node
from downloader.cluster.node.scratch import Scratch, scratch_of
from downloader.cluster.node.slice_process import SliceJob, SliceProgress, SliceResult, encode_order
from downloader.cluster.plan.configs import changed, in_slice
from downloader.cluster.plan.plan import PlanDirectory, SliceRecord
from downloader.cluster.plan.plan_files import LARGEST_FILE
from downloader.config.config import Config
from downloader.core.bucket_access import NO_OPTIONS, BucketAccess
from downloader.core.frames import Unpacker, pack
from downloader.core.slices import End
from downloader.errors import UNDECODABLE
from downloader.messages import Drain, HostPause, Rate, Tally
from downloader.process.isolation import child
from downloader.process.watching import Watch, end, stalled_text

__all__ = ["AttemptResult", "PlanAt", "SliceTask", "run_slice"]

_TICK = 1.0  # seconds
_PAUSES_EVERY = 0.2  # seconds; pauses of hosts do not wait for the next tick
_ANSWER_WITHIN = 0.2  # seconds; a later answer is taken up at the next tick
_FIRST_ANSWER_WITHIN = 2.0  # seconds
_GRACE = 30.0  # seconds that a slice which was told to end may take
_LAST_WORDS = 2000  # bytes of standard error that are kept
_decode_progress = msgspec.msgpack.Decoder(SliceProgress).decode


class PlanAt(msgspec.Struct, frozen=True):
    """Where a plan is; see ``PlanDirectory``. A node has credentials from its own environment."""

    journal_root: str
    access: BucketAccess = NO_OPTIONS


class SliceTask(msgspec.Struct, frozen=True):
    """A slice to run: ``plan`` is ``Plan.id``, ``rate`` is its share at the start.

    ``scratch`` may have variables of the environment, which the node replaces. ``items``: see ``Slice``.
    ``local``: DEST is on the node's own disk, and may have variables, too. ``types``: see ``Slice``.
    """

    name: str
    plan: str
    at: PlanAt
    scratch: str
    rate: float
    items: str
    local: bool = False
    types: str = ""


class AttemptResult(msgspec.Struct, frozen=True):
    """How an attempt ended. ``reason`` is for a person.

    ``replaced``: how many files of somebody else it has replaced, except those that its record counts.
    """

    name: str
    how: End
    reason: str = ""
    attempt: str = ""
    node: str = ""
    replaced: int = 0


def run_slice(
    task: SliceTask, config: bytes, limits_actor: Any, node: str, node_id: str = ""
) -> AttemptResult:
    """Run ``task`` to its end and publish its record.

    ``limits_actor`` is the handle of a LimitsActor, or None: the slice then keeps its share of the rate.
    ``node_id``: Ray's name of ``node``.
    """
    attempt = f"{os.getpid():x}-{os.urandom(6).hex()}"
    exchange = _Exchange(limits_actor, task.name, attempt, node, node_id)
    exchange.tell_slow()
    directory = PlanDirectory(task.at.journal_root, task.at.access)
    settings, disk = _settings(task, Config.decode(config))
    shards = NodeShards(settings, directory, task.name)
    base = os.path.expandvars(task.scratch) if task.scratch else ""
    if shards.is_done():
        return AttemptResult(task.name, "done", "", attempt, node, shards.replaced)
    with scratch_of(base, task.plan, task.name, attempt) as scratch:
        if shards.is_done():
            scratch.remove()  # by the attempt that had it before
            return AttemptResult(task.name, "done", "", attempt, node, shards.replaced)
        staged = shards.stage(scratch)
        items = directory.files.local(task.items, scratch.path)
        result, last_words = _attempt(task, staged, exchange, scratch, attempt, items)
        exchange.tell_slow()
        outcome = _outcome(
            task, directory, scratch, result, last_words, attempt, node, shards.staging, disk
        )
        if outcome.how == "done":
            scratch.remove()
    shards.ended(scratch)
    return msgspec.structs.replace(outcome, replaced=outcome.replaced + shards.replaced)


def _settings(task: SliceTask, config: Config) -> tuple[Config, str]:
    """Return the Config of the slice on this node, and the mark of its disk."""
    if not task.local:
        return config, ""
    output = on_this_node(config.output)
    disk = mark_disk(output, task.plan)
    return in_slice(changed(config, output=output), shared_since_ns=disk.since_ns), disk.id


def _outcome(
    task: SliceTask,
    directory: PlanDirectory,
    scratch: Scratch,
    result: SliceResult | None,
    last_words: str,
    attempt: str,
    node: str,
    staging: str,
    disk: str,
) -> AttemptResult:
    if result is None:
        return AttemptResult(
            task.name, "failed", f"its process on {node} died: {last_words}", attempt, node
        )
    report = result.report
    if report is None:
        return AttemptResult(task.name, "failed", f"on {node}: {result.error}", attempt, node)
    if report.exit_code == 130:
        return AttemptResult(task.name, "drained", "", attempt, node, report.replaced)
    if not report.complete:
        reason = f"on {node}: {report.stopped_by}"
        return AttemptResult(task.name, "failed", reason, attempt, node, report.replaced)

    def keep(kind: str, path: str) -> str:
        # Beside the result, whatever that says.
        return directory.keep(kind, task.name, attempt, scratch.file(Path(path).name)) if path else ""

    record = SliceRecord(
        *(task.name, attempt, node, report, result.latency),
        failures=keep("failures", result.failures),
        staging=staging,
        shards=result.shards,
        manifest=keep("manifest", result.manifest),
        rows=result.rows,
        stored=keep("stored", result.stored),
        disk=disk,
    )
    if directory.publish(record):
        return AttemptResult(task.name, "done", "", attempt, node)
    directory.discard(record)
    return AttemptResult(task.name, "done", "", attempt, node, report.replaced)


def _attempt(
    task: SliceTask, config: Config, exchange: _Exchange, scratch: Scratch, attempt: str, items: str
) -> tuple[SliceResult | None, str]:
    """Run the process; return the result that it left, None if it left none, and its last words."""
    journal = scratch.path
    result = scratch.file(f"result-{attempt}.json")
    job = SliceJob(
        config=changed(
            in_slice(config, path=items),
            journal=os.fspath(journal),
            rate=task.rate,
            column_types=task.types,
        ).encode(),
        result=os.fspath(result),
        parent=os.getpid(),
    )
    pauses = exchange.pauses()
    argv, env = child("downloader.cluster.node.slice_process:main")
    process = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # Not a file: the disk may be full.
        stderr=subprocess.PIPE,
        env=env,
        start_new_session=True,
        cwd=journal,
        # The slice can outlive this process by a moment, should this one be killed.
        pass_fds=(scratch.lock_fd,),
    )
    errors = bytearray()
    stalled = False
    try:
        _feed(process, pack(msgspec.msgpack.encode(job)) + pauses)
        # It watches its own processes, with half of the time.
        watch = Watch(process.pid, 2 * config.stall_timeout, patient=config.is_bucket, speaks=True)
        stalled = _watch(process, exchange, watch, errors)
    finally:
        _end(process, errors, kill=stalled)
    try:
        left = msgspec.json.decode(result.read(LARGEST_FILE), type=SliceResult)
        result.unlink()
    except (FileNotFoundError, *UNDECODABLE):
        left = None
    return left, stalled_text(watch.limit) if stalled else _last_words(errors, process.returncode)


def _feed(process: subprocess.Popen[bytes], frame: bytes) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(frame)
        process.stdin.flush()


def _watch(process: subprocess.Popen[bytes], exchange: _Exchange, watch: Watch, errors: bytearray) -> bool:
    """Pass progress and orders on until the process closes its output, which it does at its end.

    ``errors`` gets the end of what it writes to standard error. Returns True if it makes no progress.
    """
    assert process.stdout is not None
    assert process.stderr is not None
    unpacker = Unpacker()
    progress = SliceProgress(Tally())
    with selectors.DefaultSelector() as selector:
        for pipe in (process.stdout, process.stderr):
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select(_PAUSES_EVERY if progress.pauses else _TICK):
                if key.fileobj is process.stderr:
                    if not _read_errors(process, errors):
                        selector.unregister(process.stderr)
                    continue
                data = os.read(key.fd, 1 << 16)
                if not data:
                    return False
                watch.heard()
                for frame in unpacker.feed(data):
                    new = _decode_progress(frame)
                    progress = SliceProgress(new.tally, [*progress.pauses, *new.pauses])
            if process.poll() is not None:
                return False
            if watch.stalled():
                return True
            if exchange.send(progress):
                progress = SliceProgress(progress.tally)
            for order in exchange.received():
                _feed(process, order)


def _read_errors(process: subprocess.Popen[bytes], errors: bytearray) -> bool:
    """Read what there is of standard error, keep its end; return whether more may come."""
    assert process.stderr is not None
    with contextlib.suppress(BlockingIOError):
        while data := os.read(process.stderr.fileno(), 1 << 16):
            errors += data
            del errors[:-_LAST_WORDS]
        return False
    return True


def _end(process: subprocess.Popen[bytes], errors: bytearray, *, kill: bool) -> None:
    """Reap the process; kill its group at once, or if it does not end although nobody listens to it."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
    try:
        if kill:
            raise subprocess.TimeoutExpired(process.args, 0)
        process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        end(process)
    if process.stderr is not None:
        os.set_blocking(process.stderr.fileno(), False)
        _read_errors(process, errors)
        process.stderr.close()


class _Exchange:
    """The exchange with the actor for limits: one call at a time, none waited for long."""

    def __init__(self, limits_actor: Any, name: str, attempt: str, node: str, node_id: str) -> None:
        self._limits_actor = limits_actor
        self._attempt = attempt
        self._heartbeat = SliceHeartbeat(name, node, (), os.getpid(), node_id)
        self._seen = 0
        self._rate = 0.0
        self._drained = False
        self._pending: Any = None
        self._sent = 0.0

    def pauses(self) -> bytes:
        """Return the pauses of hosts so far, as orders: a slice that starts must not request from those."""
        # Nothing else: its share of the rate is newer than what the actor has.
        self.send(SliceProgress(Tally()))
        directives = self._answer(_FIRST_ANSWER_WITHIN)
        return b"" if directives is None else b"".join(_pause_frames(directives))

    def send(self, progress: SliceProgress) -> bool:
        """Send ``progress`` and return True; return False while a call is under way, or right after one."""
        from time import monotonic

        wait = _PAUSES_EVERY if progress.pauses else _TICK
        if self._limits_actor is None or self._pending is not None or monotonic() - self._sent < wait:
            return False
        self._sent = monotonic()
        heartbeat = self._heartbeat = self._heartbeat._replace(
            tally=tuple(msgspec.structs.astuple(progress.tally))
        )
        pauses = [(pause.host, pause.seconds) for pause in progress.pauses]
        self._pending = self._limits_actor.exchange.remote(self._attempt, heartbeat, pauses, self._seen)
        return True

    def tell_slow(self) -> None:
        """Say that this process is about to copy files, and sends no heartbeats meanwhile."""
        if self._limits_actor is not None:
            heartbeat = self._heartbeat._replace(slow=True)
            self._limits_actor.exchange.remote(self._attempt, heartbeat, [], self._seen)

    def received(self) -> list[bytes]:
        """Return what the actor has answered, as orders to the process."""
        directives = self._answer(_ANSWER_WITHIN)
        if directives is None:
            return []
        frames = _pause_frames(directives)
        if directives.rate and directives.rate != self._rate:
            self._rate = directives.rate
            frames.append(encode_order(Rate(directives.rate)))
        if directives.drain and not self._drained:
            self._drained = True
            frames.append(encode_order(Drain(0.0)))
        return frames

    def _answer(self, within: float) -> Directives | None:
        if self._pending is None:
            return None
        import ray

        if not ray.wait([self._pending], timeout=within)[0]:
            return None
        pending, self._pending = self._pending, None
        try:
            directives: Directives = ray.get(pending)
        except ray.exceptions.RayError:
            return None  # gone, or being started again: the share holds
        self._seen = directives.seen
        return directives


def _pause_frames(directives: Directives) -> list[bytes]:
    return [encode_order(HostPause(host, seconds)) for host, seconds in directives.pauses]


def _last_words(errors: bytearray, status: int | None) -> str:
    lines = errors.decode("utf-8", "replace").strip().splitlines()
    if status is None:
        return "it waits for a disk that does not answer"
    how = signal.Signals(-status).name if status < 0 else f"exit code {status}"
    return f"{how}{': ' + lines[-1] if lines else ''}"
