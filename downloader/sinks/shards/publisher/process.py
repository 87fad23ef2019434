"""Run the publisher's process: read jobs from standard input, publish them, answer on standard output."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator

import msgspec

from downloader.core.frames import Unpacker, pack
from downloader.process.lifetime import die_with
from downloader.sinks.failing import advice
from downloader.sinks.shards.jobs import NotPublished, PublishedShard, PublisherSettings, ShardJob
from downloader.sinks.shards.publisher.part import PartError
from downloader.sinks.shards.publisher.publishing import Directory, Place, publish

__all__ = ["serve"]

_CHUNK = 1 << 20


def serve() -> int:
    """Publish what the worker asks for until it closes its end; the argument is the worker's process ID."""
    # Ctrl-C signals the whole process group; only the supervisor acts on it.
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    die_with(int(sys.argv[1]))
    os.set_blocking(0, True)  # gevent's sockets are not, and share that with their other end
    answers = os.dup(1)
    os.dup2(2, 1)  # what a library prints must not be taken for an answer
    # Rows make no reference cycles, but many objects.
    gc.disable()
    gc.freeze()
    frames = _frames(0)
    settings = msgspec.msgpack.decode(next(frames), type=PublisherSettings)
    decode = msgspec.msgpack.Decoder(ShardJob).decode
    encode = msgspec.msgpack.Encoder().encode
    place = Directory(settings.root)
    for frame in frames:
        answer = _answer(decode(frame), settings, place)
        _send(answers, pack(encode(answer)))
        gc.collect()
    return 0


def _frames(descriptor: int) -> Iterator[bytes]:
    unpacker = Unpacker()
    while data := os.read(descriptor, _CHUNK):
        yield from unpacker.feed(data)


def _send(descriptor: int, frame: bytes) -> None:
    while frame:
        frame = frame[os.write(descriptor, frame) :]


def _answer(job: ShardJob, settings: PublisherSettings, place: Place) -> PublishedShard | NotPublished:
    try:
        return publish(job, settings, place)
    except OSError as error:
        why = advice(error)
    except PartError as error:
        return NotPublished(
            job.number,
            f"cannot publish shard {job.number:05d}: its part {job.part} is damaged: {error}; "
            "move it away, and run the same command again",
        )
    return NotPublished(job.number, f"cannot publish shard {job.number:05d} in {settings.root}: {why}")
