"""Programs that open TLS connections with none of the clients that are loaded, alone or besides one."""

from __future__ import annotations

import sys

import pytest

BEGIN = """\
import gevent, socket, ssl, requests
from gevent.server import StreamServer

def fetch(context):
    try:
        plain = socket.create_connection(("127.0.0.1", server.server_port), 5)
        with plain, context.wrap_socket(plain, server_hostname="localhost") as connection:
            connection.recv(1)
    except (OSError, TypeError):
        pass

def get():
    try:
        requests.get("https://localhost:9/")
    except OSError:
        pass

late = ssl.create_default_context()
server = StreamServer(("127.0.0.1", 0), lambda connection, address: connection.close())
server.start()
"""
PATCHED = "from gevent import monkey; monkey.patch_all()\n" + BEGIN
TWICE = "import ssl\nearly = ssl.create_default_context()\n" + PATCHED
AT = "prog.py:8"


def check(run, write, text):
    write("prog", text)
    return run("--json", "--", sys.executable, "prog.py")


@pytest.mark.parametrize(
    "end",
    [
        "gevent.spawn(fetch, late).join()\ngevent.joinall([gevent.spawn(get) for _ in range(10)])\n",
        "gevent.joinall([gevent.spawn(fetch, late)] + [gevent.spawn(get) for _ in range(9)])\n",
        "fetch(late)\ngevent.joinall([gevent.spawn(get) for _ in range(10)])\n",
    ],
    ids=["before", "beside", "at the start"],
)
def test_client_that_is_used_as_well_is_measured(run, write, end):
    answer = check(run, write, PATCHED + end)
    assert (answer.code, answer.json["verdict"]) == (0, "concurrent"), answer
    said = f"measured was requests.get: what the program fetches at {AT} was not; name --app for that"
    assert said in answer.json["notes"]


@pytest.mark.parametrize(
    "end",
    [
        "gevent.joinall([gevent.spawn(fetch, late) for _ in range(5)])\n",
        "fetch(late)\n",
        "while True: gevent.spawn(fetch, late).join()\n",
    ],
    ids=["greenlets", "main", "going on"],
)
def test_program_that_uses_no_client_has_no_verdict(run, write, end):
    answer = check(run, write, PATCHED + end)
    assert answer.code == 4, answer
    assert f"no verdict: the program opens TLS connections itself at {AT}" in answer.line


@pytest.mark.parametrize("end", ["gevent.spawn(fetch, early).join()\n", "fetch(early)\n"])
def test_its_own_context_is_measured(run, write, end):
    answer = check(run, write, TWICE + end)
    assert answer.code == 3, answer
    assert answer.cause == ("context-before-patching", "prog.py:2")


def test_program_that_goes_on_may_have_fetched_its_settings(run, write):
    answer = check(run, write, PATCHED + "fetch(late)\ngevent.sleep(60)\n")
    assert (answer.code, answer.json["verdict"]) == (0, "concurrent"), answer
    said = f"measured was requests.get: what the program fetches at {AT} was not; name --app for that"
    assert said in answer.json["notes"]


LOOP = """\
import asyncio

async def stream():
    try:
        reading = asyncio.open_connection("127.0.0.1", listening.getsockname()[1], ssl=late)
        await asyncio.wait_for(reading, 0.3)
    except (OSError, asyncio.TimeoutError):
        pass

listening = socket.create_server(("127.0.0.1", 0))  # it accepts, and nobody answers
"""


def test_program_whose_connections_are_of_an_event_loop_has_no_verdict(run, write):
    answer = check(run, write, BEGIN + LOOP + "asyncio.run(stream())\n")
    assert answer.code == 4, answer
    assert "its TLS connections (prog.py:31) are those of an event loop" in answer.line


def test_note_tells_of_the_event_loop_where_an_idle_session_is_measured(run, write):
    answer = check(run, write, PATCHED + LOOP + "SESSION = requests.Session()\nasyncio.run(stream())\n")
    assert (answer.code, answer.json["verdict"]) == (0, "concurrent"), answer
    said = (
        "the program has tried no HTTPS connection but those of an event loop at prog.py:33: measured was"
    )
    assert any(said in note for note in answer.json["notes"]), answer


def test_client_that_is_used_beside_an_event_loop_is_measured(run, write):
    answer = check(run, write, PATCHED + LOOP + "asyncio.run(stream())\ngevent.spawn(get).join()\n")
    assert (answer.code, answer.json["verdict"]) == (0, "concurrent"), answer
    assert not any("event loop" in note for note in answer.json["notes"]), answer
