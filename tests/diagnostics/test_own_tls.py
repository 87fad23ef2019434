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


STANDARD = """\
import contextlib, http.client, urllib.request

def by_opener(context):
    with contextlib.suppress(OSError, TypeError, http.client.HTTPException):
        urllib.request.urlopen("https://localhost:9/", context=context)

def by_connection(context):
    with contextlib.suppress(OSError, TypeError, http.client.HTTPException):
        http.client.HTTPSConnection("localhost", 9, context=context).request("GET", "/")

"""


@pytest.mark.parametrize("fetch", ["by_opener", "by_connection"])
@pytest.mark.parametrize(
    "end", ["", "while True: gevent.sleep(0.1)\n", "late = early\n"], ids=["ends", "goes on", "settings"]
)
def test_client_of_the_standard_library_is_measured_where_a_loaded_one_is_unused(run, write, fetch, end):
    first = "get()\n" if end == "late = early\n" else ""
    spawns = f"gevent.joinall([gevent.spawn({fetch}, early) for _ in range(10)])\n"
    answer = check(run, write, TWICE + STANDARD + first + spawns + end)
    assert answer.code == 3, answer
    assert answer.cause == ("context-before-patching", "prog.py:2")


@pytest.mark.parametrize("fetch", ["by_opener", "by_connection"])
def test_healthy_client_of_the_standard_library_is_the_programs(run, write, fetch):
    spawns = f"gevent.joinall([gevent.spawn({fetch}, late) for _ in range(10)])\n"
    answer = check(run, write, PATCHED + STANDARD + spawns)
    assert (answer.code, answer.json["verdict"], answer.json["notes"]) == (0, "concurrent", []), answer


def test_client_that_is_used_besides_one_of_the_standard_library_is_measured(run, write):
    spawns = "[gevent.spawn(by_opener, late)] + [gevent.spawn(get) for _ in range(9)]"
    answer = check(run, write, PATCHED + STANDARD + f"gevent.joinall({spawns})\n")
    assert (answer.code, answer.json["verdict"]) == (0, "concurrent"), answer
    said = "measured was requests.get: what the program fetches at prog.py:26 was not; name --app for that"
    assert said in answer.json["notes"]


def test_client_that_a_program_has_and_may_use_later_is_measured_as_well(run, write):
    end = """\
from requests.adapters import HTTPAdapter
CLIENT = requests.Session()
CLIENT.mount("https://", HTTPAdapter(pool_maxsize=1, pool_block=True))
gevent.spawn(by_opener, late).join()
gevent.sleep(60)
"""
    answer = check(run, write, PATCHED + STANDARD + end)
    assert answer.code == 4, answer
    assert "with urllib, which its greenlets were seen (prog.py:26) to use, HTTPS is conc" in answer.line
    assert "with requests.sessions.Session, which it has as well, it is serialized" in answer.line
