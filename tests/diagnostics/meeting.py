"""Measure whether a program is concurrent, without ``diagnostics``: run a server that counts waiting
requests.

The server responds to a request once as many as expected are waiting, or after a time without further ones.
So all requests of a concurrent program wait at once, however slow the machine is, and those of a serial
program never more than one.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import signal
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest
import trustme
from harness import environment

_ALONE = 3.0  # seconds after which no more requests come, on a busy machine too
_PATIENCE = 60.0
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"


class Answer(Protocol):
    """The result of ``run``, as far as it is used here; the fixture is in ``conftest``."""

    @property
    def code(self) -> int: ...

    @property
    def json(self) -> Any: ...


class Meeting:
    """A measurement: ``url`` and ``ca`` of the server; ``most``: the most requests that waited at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.ca = str(folder / "meeting.pem")
        self.most, self._expected = 0, 1  # it responds at once until a program is measured
        self.over = threading.Event()
        self._now = 0
        self._writers: list[asyncio.StreamWriter] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def open(self) -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.ca)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
        self._thread.start()
        serving = asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
        self._server = asyncio.run_coroutine_threadsafe(serving, self._loop).result(_PATIENCE)
        self.url = f"https://localhost:{self._server.sockets[0].getsockname()[1]}/"

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(_PATIENCE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        for writer in self._writers:
            # Python up to 3.11.2 raises it where the transport was closed twice.
            with contextlib.suppress(AttributeError):
                writer.transport.abort()
        serving = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*serving, return_exceptions=True)

    def of(self, requests: int, argv: Sequence[object], cwd: Path, port: int = 0, **env: str) -> int:
        """Run a program that makes ``requests``; return how many of them waited at once.

        A program that is a server makes them when as many visitors come to its ``port``.
        """
        self.most, self._now, self._expected = 0, 0, requests
        self.over.clear()
        told = {"URL": self.url, "REQUESTS": str(requests), **env}
        told |= dict.fromkeys(("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"), self.ca)
        with open(self._folder / "program.log", "wb") as log:
            process = subprocess.Popen(
                list(map(str, argv)),
                cwd=cwd,
                env=environment(**told),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        waiting = threading.Thread(target=self._wait_for, args=(process,))
        waiting.start()
        visitors = [
            threading.Thread(target=self._visit, args=(port,)) for _ in range(requests if port else 0)
        ]
        for visitor in visitors:
            visitor.start()
        try:
            assert self.over.wait(_PATIENCE), (self._folder / "program.log").read_text()[-2000:]
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            for thread in (waiting, *visitors):
                thread.join()
        return self.most

    def _wait_for(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        self.over.set()

    def _visit(self, port: int) -> None:
        while not self.over.wait(0.02):
            with (
                contextlib.suppress(OSError, http.client.HTTPException),  # not listening yet, or ended
                contextlib.closing(
                    http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE)
                ) as connection,
            ):
                connection.request("GET", "/")
                connection.getresponse().read()
                return

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                self._now += 1
                self.most = max(self.most, self._now)
                alone = self._loop.time() + _ALONE
                while self.most < self._expected and self._loop.time() < alone:
                    await asyncio.sleep(0.01)
                self.over.set()
                self._now -= 1
                writer.write(_ANSWER)
        writer.close()


@pytest.fixture
def meeting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Meeting]:
    """Run a server that counts waiting requests."""
    made = Meeting(tmp_path_factory.mktemp("meeting"))
    made.open()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def said(run: Callable[..., Answer], meeting: Meeting, tmp_path: Path) -> Callable[..., Answer]:
    """Measure a program that makes ``many`` requests, then diagnose it.

    ``most``: the requests that must have waited at once. Of three greenlets it is not said that all share
    what they wait for.
    """

    def ask(
        argv: Sequence[object],
        most: int | None,
        *options: object,
        port: int = 0,
        verdict: str = "",
        many: int = 3,
    ) -> Answer:
        if most is not None:
            assert meeting.of(many, argv, tmp_path, port, PORT=str(port)) == most
        env = {"URL": meeting.url, "REQUESTS": str(many), "PORT": str(port)}
        answer = run("--json", *options, "--", *argv, env=env)
        meant: dict[int | None, str] = {3: "concurrent", 1: "serialized", 0: "error"}
        verdict = verdict or meant[most]
        code = {"concurrent": 0, "serialized": 1, "error": 3}[verdict]
        assert (answer.code, answer.json["verdict"]) == (code, verdict), answer
        return answer

    return ask
