"""Decode compressed bodies in chunks of bounded size, and check that they are complete.

gzip and deflate are always known; br and zstd where their packages are installed, as in urllib3.
"""

from __future__ import annotations

from downloader.process import patching

patching.require()

import functools
import importlib
import sys
import zlib
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from downloader.core.content_codings import Codings, read_codings
from downloader.errors import FetchError
from downloader.process.long_work import Pauses

__all__ = ["CHUNK", "accepted", "chunks", "codings_of"]

CHUNK = 256 << 10
"""The size of a chunk, in bytes."""
_ZLIB_OR_GZIP, _RAW_DEFLATE = 47, -15  # zlib's window bits: with zlib's or gzip's header; with neither
_MOST_CODINGS = 5  # of one body, as in urllib3: each costs work for every byte
_WINDOW_LOG = 23  # of zstd: 8 MiB, the most that a server may use (RFC 9659 §3)


def accepted() -> tuple[str, ...]:
    """Return the content codings that can be decoded in this environment."""
    found = ["gzip", "deflate"]
    if _brotli() is not None:
        found.append("br")
    if _zstd() is not None:
        found.append("zstd")
    return tuple(found)


@functools.cache
def _brotli() -> Any:
    for name in ("brotlicffi", "brotli"):  # in the order of urllib3
        module = _imported(name)
        if module is not None:
            try:
                module.Decompressor().process(b"", output_buffer_limit=1)
            except TypeError:
                return None  # before 1.2 there is no limit of what a few bytes decompress to
            return module
    return None


@functools.cache
def _zstd() -> Any:
    return _imported("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def codings_of(response: Any) -> Codings:
    """Return the content codings of ``response``."""
    return read_codings(response.headers.get("Content-Encoding", ""))


def chunks(response: Any, decode: bool, *, as_it_comes: bool = False) -> Iterator[bytes]:
    """Yield the body of ``response`` in chunks.

    If ``decode``, decompress it, and check that the compressed body is complete. Words in its
    Content-Encoding that are no coding change nothing. ``as_it_comes``: yield
    what has arrived, without waiting for a full chunk.

    Raises FetchError ``truncated``, ``protocol``.
    """
    read = response.read1 if as_it_comes else response.read
    raw = iter(lambda: read(CHUNK, decode_content=False), b"")
    codings = codings_of(response).known if decode else ()
    if not codings:
        yield from raw
        return
    decoders = [_decoder(coding) for coding in codings]
    if len(decoders) > _MOST_CODINGS or None in decoders:
        missing = {coding for coding, decoder in zip(codings, decoders, strict=True) if decoder is None}
        known = missing and missing <= {"br", "zstd"}
        advice = "; to decode it: pip install 'mass-downloader[compressed]'" if known else ""
        shown = ", ".join(codings)[:40]
        raise FetchError("protocol", f"Content-Encoding {shown!r} was not requested{advice}")
    head = _head_of(raw)
    # A compressed body of zero bytes is an empty file: servers compress only a body that is not empty. A
    # body without length and chunks is known to be empty only if the compressed data has its end.
    if not head and (response.chunked or "Content-Length" in response.headers):
        return
    body: Iterator[bytes] = chain([head], raw)
    for number, decoder in enumerate(reversed(decoders)):  # the last was applied last (RFC 9110 §8.4)
        assert decoder is not None
        body = decoder(_with_pauses(body) if number else body)
    yield from body


def _with_pauses(body: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the pieces of ``body``, which another layer of coding may decode to nothing for a long time."""
    pause = Pauses()
    for piece in body:
        pause()
        yield piece


def _decoder(coding: str) -> Callable[[Iterator[bytes]], Iterator[bytes]] | None:
    """Return the function that decodes ``coding``, None if there is none in this environment."""
    if coding in ("gzip", "x-gzip", "deflate"):
        return functools.partial(_inflated, encoding=coding)
    if coding == "br" and _brotli() is not None:
        return _unbrotlied
    if coding == "zstd" and _zstd() is not None:
        return _unzstded
    return None


def _head_of(raw: Iterator[bytes]) -> bytes:
    """Return the first blocks of ``raw``, of two bytes or more if it has so many."""
    head = b""
    for block in raw:
        head += block
        if len(head) > 1:
            break
    return head


def _inflated(raw: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    """Yield ``raw`` decompressed, in chunks of bounded size, whatever the ratio is.

    gzip may have several members, and zeros behind the last, as on a tape; gzip(1) takes both.
    """
    head = _head_of(raw)
    wbits = _RAW_DEFLATE if encoding == "deflate" and _is_raw_deflate(head) else _ZLIB_OR_GZIP
    inflate = zlib.decompressobj(wbits)
    try:
        for block in chain([head], raw):
            left = block
            while left:
                if inflate.eof:
                    left = left.lstrip(b"\0")
                    if not left:
                        break
                    inflate = zlib.decompressobj(wbits)
                piece = inflate.decompress(left, CHUNK)
                if piece:
                    yield piece
                left = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
        if tail := inflate.flush():
            yield tail
    except zlib.error as error:
        raise _damaged(error) from None
    if not inflate.eof:
        raise _cut()


def _is_raw_deflate(head: bytes) -> bool:
    """Return whether a body of coding "deflate" lacks zlib's header and checksum.

    It should have them (RFC 9110 §8.4.1.2), but some servers leave them out. The two cannot be confused:
    read as raw deflate, zlib's header is a stored block whose padding is not 0, and gzip's is of a type
    that does not exist.
    """
    zlib_header = head[:1] and head[0] & 15 == 8 and int.from_bytes(head[:2], "big") % 31 == 0
    return not zlib_header and head[:1] != b"\x1f"


def _unbrotlied(raw: Iterator[bytes]) -> Iterator[bytes]:
    """Yield ``raw`` decompressed (RFC 7932), in chunks of bounded size."""
    brotli = _brotli()
    decoder = brotli.Decompressor()
    try:
        for block in raw:
            # Only that nothing comes says that nothing is left: it takes all input at once. A piece may be
            # twice as long as the limit.
            piece = decoder.process(block, output_buffer_limit=CHUNK)
            while piece:
                yield piece
                piece = b"" if decoder.is_finished() else decoder.process(b"", output_buffer_limit=CHUNK)
    except brotli.error as error:
        raise _damaged(error) from None
    if not decoder.is_finished():
        raise _cut()


def _unzstded(raw: Iterator[bytes]) -> Iterator[bytes]:
    """Yield ``raw`` decompressed (RFC 8878), in chunks of bounded size.

    A body may have several frames.
    """
    zstd = _zstd()
    options = {zstd.DecompressionParameter.window_log_max: _WINDOW_LOG}
    decoder = zstd.ZstdDecompressor(options=options)
    try:
        for block in raw:
            left = block
            while left or not decoder.needs_input:
                if decoder.eof:
                    left = decoder.unused_data + left
                    if not left:
                        break
                    decoder = zstd.ZstdDecompressor(options=options)
                piece = decoder.decompress(left, CHUNK)
                left = b""
                if piece:
                    yield piece
                if decoder.eof and not decoder.unused_data:
                    break
    except zstd.ZstdError as error:
        raise _damaged(error) from None
    if not decoder.eof:
        raise _cut()


def _damaged(error: Exception) -> FetchError:
    return FetchError("protocol", f"the compressed body is damaged: {error}")


def _cut() -> FetchError:
    return FetchError("truncated", "the compressed body ends early")
