"""Load certificates and keys from memory into a TLS context, and check them before anything is started.

The supervisor imports this module and must not import ssl, so the caller passes the context.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shlex
import signal
from typing import TYPE_CHECKING

from downloader.config.config import Config
from downloader.config.options import HttpOptions
from downloader.config.system_authorities import SYSTEM, certificates_in
from downloader.errors import BootError, ConfigError
from downloader.files.memory_file import as_file
from downloader.process.tls_defaults import client_context
from downloader.process.watching import ENDS_WITHIN, LOOK_EVERY, Watch, reap

if TYPE_CHECKING:
    from ssl import SSLContext

__all__ = ["check_certificates", "load_authorities", "load_client_certificate"]


def check_certificates(config: Config) -> None:
    """Raise ConfigError if --cacert, --cert or --key cannot be used, or a password is missing or wrong.

    OpenSSL makes the check in a child process, since this process must not import ssl. Without any of them
    there is nothing to check, and no child is started. Raises BootError if no process can be started.
    """
    if not (config.cert or config.cacert):
        return
    if config.cert and config.key_is_encrypted and not config.key_password:
        option, path = _key_of(config)
        raise ConfigError(
            f"{option} {path} is encrypted, and no password was given at a terminal; decrypt it with "
            f"(umask 077; openssl pkey -in {shlex.quote(path)} -out plain.pem) and give --key plain.pem "
            "(a program gives Config.key_password)"
        )
    reader, writer = os.pipe()
    try:
        pid = os.fork()
    except OSError as error:
        os.close(reader)
        os.close(writer)
        raise BootError(f"cannot fork a process: {error.strerror}") from error
    if not pid:
        try:
            os.write(writer, _problem(config).encode("utf-8", "backslashreplace"))
        finally:
            os._exit(0)
    os.close(writer)
    problem = _answer(pid, reader, config.stall_timeout).decode()
    if problem != "-":
        raise ConfigError(problem) if problem else BootError("the check of --cacert and --cert ended early")


def _problem(config: Config) -> str:
    try:
        context = client_context()
        if config.cacert:
            load_authorities(context, config)
        if config.cert:
            load_client_certificate(context, config)
    except ConfigError as error:
        return str(error)
    return "-"


def load_client_certificate(context: SSLContext, config: Config) -> None:
    """Load --cert and --key, whose contents ``config.files`` has, into ``context``. Raises ConfigError."""
    files = config.files
    assert files is not None
    with contextlib.ExitStack() as stack:
        cert = stack.enter_context(as_file(files.cert))
        key = stack.enter_context(as_file(files.key)) if files.key else None
        try:
            # Always with a password: without one, OpenSSL itself would prompt at the terminal.
            context.load_cert_chain(cert, key, config.key_password)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            if config.key_is_encrypted and getattr(error, "reason", "") != "KEY_VALUES_MISMATCH":
                option, path = _key_of(config)
                raise ConfigError(
                    f"{option} {path} cannot be used with this password; it is wrong, or a file is damaged"
                ) from None
            raise ConfigError(f"--cert: {config.cert} cannot be used: {error}") from None


def load_authorities(context: SSLContext, config: HttpOptions) -> None:
    """Load --cacert, whose content ``config.files`` has, into ``context``. Raises ConfigError."""
    files = config.files
    assert files is not None
    try:
        _load(context, files.cacert)
    except OSError as error:
        # As OpenSSL itself: one that is damaged or of an unknown kind does not make the others useless.
        if config.cacert != SYSTEM or not _load_each(context, certificates_in(files.cacert)):
            raise ConfigError(
                f"--cacert: {config.cacert} is not a PEM file of certificates: {error}"
            ) from None


def _load(context: SSLContext, pem: bytes) -> None:
    with as_file(pem) as path:
        context.load_verify_locations(path)


def _load_each(context: SSLContext, blocks: list[bytes]) -> int:
    """Load those of ``blocks`` that can be; return how many."""
    count = 0
    for block in blocks:
        with contextlib.suppress(OSError):
            _load(context, block)
            count += 1
    return count


def _key_of(config: HttpOptions) -> tuple[str, str]:
    # Must not be followed by a colon in a message: the text after "-key:" would be redacted.
    return ("--key", config.key) if config.key else ("--cert", config.cert)


def _answer(pid: int, reader: int, limit: float) -> bytes:
    """Return what child ``pid`` writes, b"" if it makes no progress; it is gone then."""
    watch = Watch(pid, limit)
    found = b""
    try:
        with open(reader, "rb", buffering=0) as stream, selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while True:
                if selector.select(LOOK_EVERY):
                    if not (data := stream.read(1 << 16)):
                        return found
                    found += data
                elif watch.stalled():
                    os.kill(pid, signal.SIGKILL)
                    return b""
    finally:
        reap(pid, ENDS_WITHIN)
