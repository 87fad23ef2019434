"""Run the publisher's process: read jobs from standard input, publish them, answer on standard output."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from downloader.core.bucket_place import is_bucket
from downloader.core.file_errors import advice, advice_for_shard
from downloader.core.frames import Unpacker, pack
from downloader.errors import ConfigError, DestinationError
from downloader.files.directory import Directory as Home
from downloader.files.directory import UnsafeFile, open_home
from downloader.process.lifetime import die_with
from downloader.sinks.bucket_patience import START, Patience, say_on_stderr
from downloader.sinks.shards.files import INDEX, SIZES, STATS
from downloader.sinks.shards.jobs import NotPublished, PublishedShard, PublisherSettings, ShardJob, Waiting
from downloader.sinks.shards.publisher.bucket import Bucket, BucketError
from downloader.sinks.shards.publisher.bucket_staging import carry_out
from downloader.sinks.shards.publisher.part import PartError
from downloader.sinks.shards.publisher.publishing import Directory, Place, publish
from downloader.sinks.shards.staging_bucket import BucketAnswer, BucketTask
from downloader.sinks.taken_names import NameTaken

__all__ = ["serve", "serve_put", "serve_staging"]

_CHUNK = 1 << 20
_BEAT = 1.0
_LONGEST_REQUEST = 1800.0  # with what obstore repeats of it; one that sends for longer is seen to read


class _Hidden:
    """A finder of modules that hides what pyarrow imports where it is installed, and nothing here uses.

    ``pyarrow.array`` asks pandas whether a list is one of its objects; to import it takes as long as 2,000
    samples. numpy, which pyarrow can do without since version 18, takes as long as 5,000 samples.
    """

    def __init__(self) -> None:
        self._names = {"pandas"}
        with contextlib.suppress(PackageNotFoundError, ValueError):
            if int(version("pyarrow").partition(".")[0]) >= 18:
                self._names.add("numpy")

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raise ImportError for a module that is hidden."""
        if name in self._names:
            raise ImportError(f"{name} is not imported in a publisher")


def serve() -> int:
    """Publish what the worker asks for until it closes its end; the argument is the worker's process ID."""
    # Ctrl-C signals the whole process group; only the supervisor acts on it.
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    die_with(int(sys.argv[1]))
    os.set_blocking(0, True)  # gevent's sockets are not, and share that with their other end
    answers = os.dup(1)
    os.dup2(2, 1)  # what a library prints must not be taken for an answer
    sys.meta_path.insert(0, _Hidden())
    # Rows make no reference cycles, but many objects.
    gc.disable()
    gc.freeze()
    frames = _frames(0)
    if (first := next(frames, None)) is None:
        return 0
    settings = msgspec.msgpack.decode(first, type=PublisherSettings)
    decode = msgspec.msgpack.Decoder(ShardJob).decode
    encode = msgspec.msgpack.Encoder().encode
    turn = threading.Lock()

    def send(answer: PublishedShard | NotPublished | Waiting) -> None:
        with turn:
            _send(answers, pack(encode(answer)))

    patience = Patience(say=lambda text: send(Waiting(text)))
    if is_bucket(settings.root):
        threading.Thread(target=_show_life, args=(patience, send), daemon=True).start()
    place: Place | None = None
    home: Home | None = None
    for frame in frames:
        job = decode(frame)
        try:
            place = place or _open(settings, patience)
            home = home or open_home(Path(settings.home))
            answer = _answer(job, settings, place, home)
        except (ConfigError, DestinationError, OSError) as error:
            text = advice_for_shard(error) if isinstance(error, OSError) else str(error)
            answer = NotPublished(job.number, f"cannot publish shard {job.number:05d}: {text}")
        except BucketError as error:
            answer = NotPublished(
                job.number, f"cannot publish shard {job.number:05d} in {settings.root}: {error}"
            )
        send(answer)
        gc.collect()
    return 0


def serve_put() -> int:
    """Put files of the home, indexes and stats, into the bucket.

    Reads PublisherSettings and their names. Writes a sentence that says why it failed, nothing if it did
    not.
    """
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    first, second = _frames(0)
    settings = msgspec.msgpack.decode(first, type=PublisherSettings)
    names = msgspec.msgpack.decode(second, type=list[str])
    answers = os.dup(1)
    os.dup2(2, 1)
    try:
        bucket = Bucket(settings, Patience(say=say_on_stderr))
        for name in names:
            bucket.put(bucket.home / (name if name in (INDEX, SIZES) else f"{STATS}/{name}"), name, "")
    except OSError as error:
        _send(answers, advice(error).encode())
    except (BucketError, ConfigError) as error:
        _send(answers, str(error).encode())
    return 0


def serve_staging() -> int:
    """Do in the bucket what PublisherSettings and a BucketTask ask for; write a BucketAnswer."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    first, second = _frames(0)
    settings = msgspec.msgpack.decode(first, type=PublisherSettings)
    answers = os.dup(1)
    os.dup2(2, 1)
    try:
        task = msgspec.msgpack.decode(second, type=BucketTask)
        begins = task.do in ("check", "find")
        patience = Patience(START) if begins else Patience(say=say_on_stderr)
        answer = carry_out(task, Bucket(settings, patience), settings.root)
    except (OSError, BucketError, NameTaken) as error:
        failure = advice(error) if isinstance(error, OSError) else str(error)
        answer = BucketAnswer(failure=failure, lasting=getattr(error, "lasting", False))
    except ConfigError as error:
        answer = BucketAnswer(failure=str(error), lasting=True)
    _send(answers, msgspec.msgpack.encode(answer))
    return 0


def _open(settings: PublisherSettings, patience: Patience) -> Place:
    if not is_bucket(settings.root):
        return Directory(settings.root, settings.which)
    return Bucket(settings, patience)


def _show_life(patience: Patience, send: Callable[[Waiting], None]) -> None:
    """Send a sign of life while a request is under way, which may take as long as it likes."""
    while True:
        time.sleep(_BEAT)
        since = patience.since
        if since is not None and time.monotonic() - since < _LONGEST_REQUEST:
            send(Waiting())


def _frames(descriptor: int) -> Iterator[bytes]:
    unpacker = Unpacker()
    # A reset is an end, too: the other process has ended before it had read an answer.
    with contextlib.suppress(ConnectionResetError):
        while data := os.read(descriptor, _CHUNK):
            yield from unpacker.feed(data)


def _send(descriptor: int, frame: bytes) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # nobody waits for the answer
        while frame:
            frame = frame[os.write(descriptor, frame) :]


def _answer(
    job: ShardJob, settings: PublisherSettings, place: Place, home: Home
) -> PublishedShard | NotPublished:
    try:
        return publish(job, settings, place, home)
    except UnsafeFile as error:
        why = str(error)
    except OSError as error:
        why = advice(error)
    except NameTaken as taken:
        return NotPublished(job.number, str(taken))
    except PartError as error:
        return NotPublished(
            job.number,
            f"cannot publish shard {job.number:05d}: its part {job.part} is damaged: {error}; "
            "move it away, and run the same command again",
        )
    return NotPublished(job.number, f"cannot publish shard {job.number:05d} in {settings.root}: {why}")
