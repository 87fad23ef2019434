"""Names are looked up once, ahead of their use and not too far ahead."""

from __future__ import annotations

import _socket
import socket
from collections import Counter

import gevent
import pytest

from downloader.http.dns import Resolver
from downloader.http.name_lookup import numeric, tries_within

AHEAD = 2_048
MANY = 12_000


class Names:
    """A way to look up names (``name_lookup.Lookup``) that counts; names in "no" do not exist.

    ``found``: the addresses of the others; with none, no name server answers.
    """

    most = 256

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.found = ["192.0.2.1"]

    def addresses(self, host: str) -> list[str]:
        self.asked[host] += 1
        gevent.sleep(0)
        if host.startswith("no"):
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        if not self.found:
            raise socket.gaierror(socket.EAI_AGAIN, "no answer")
        return self.found


def finish() -> None:
    """Let all look-ups that have begun end."""
    gevent.get_hub().join(timeout=10)


def made() -> tuple[Resolver, Names]:
    names = Names()
    return Resolver(lambda: names, 5.0), names


def test_names_are_looked_up_ahead_as_far_as_their_addresses_stay_valid() -> None:
    resolver, names = made()
    hosts = [f"h{number}.test" for number in range(AHEAD + 3)]
    for host in hosts:
        resolver.look_up_ahead(host)
    finish()
    assert list(names.asked) == hosts[:AHEAD]
    assert resolver.addresses(hosts[0]) == resolver.addresses(hosts[0])
    finish()
    assert list(names.asked) == hosts[: AHEAD + 1]


def test_name_is_looked_up_once_however_many_there_are() -> None:
    resolver, names = made()
    hosts = [f"h{number}.test" for number in range(MANY)]
    for first in range(0, MANY, 1000):
        for host in hosts[first : first + 1000]:
            resolver.look_up_ahead(host)
        for host in reversed(hosts[first : first + 1000]):  # not in the order of the list
            assert resolver.addresses(host) == ["192.0.2.1"]
            resolver.addresses(hosts[first])  # one that is used all the time
    finish()
    assert set(names.asked.values()) == {1}
    assert len(names.asked) == MANY
    assert len(resolver._known) <= 8_000


def test_names_that_do_not_exist_take_no_room_ahead() -> None:
    resolver, names = made()
    hosts = [f"no{number}.test" for number in range(AHEAD)] + ["h.test"]
    for host in hosts:
        resolver.look_up_ahead(host)
    finish()
    assert names.asked["h.test"] == 1
    with pytest.raises(socket.gaierror) as failed:
        resolver.addresses(hosts[0])
    assert failed.value.errno == socket.EAI_NONAME
    assert names.asked[hosts[0]] == 1


def test_retries_at_a_dead_host_ask_again_ever_more_rarely() -> None:
    resolver, names = made()
    for _ in range(5):
        assert resolver.addresses("h.test") == ["192.0.2.1"]
        resolver.forget("h.test")
    assert names.asked["h.test"] == 1
    waits = []
    for number in range(2, 9):
        known = resolver._known["h.test"]
        waits.append(known.patience)
        known.since -= known.patience  # as if it had been looked up so long ago
        for _ in range(3):
            assert not resolver.has_others("h.test", ["192.0.2.1"])
        assert names.asked["h.test"] == number
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_addresses_that_failed_stay_behind_new_ones() -> None:
    resolver, names = made()
    names.found = ["192.0.2.1", "192.0.2.2"]
    resolver.addresses("h.test")
    resolver._known["h.test"].since -= 1.0
    resolver.try_others("h.test", "192.0.2.1")
    assert resolver.addresses("h.test") == ["192.0.2.2", "192.0.2.1"]
    names.found = ["192.0.2.1", "192.0.2.2", "192.0.2.3"]
    resolver._known["h.test"].since -= 2.0
    assert resolver.has_others("h.test", ["192.0.2.1", "192.0.2.2"])
    assert resolver.addresses("h.test") == ["192.0.2.3", "192.0.2.2", "192.0.2.1"]
    assert resolver._known["h.test"].patience == 1.0


def test_addresses_stay_while_the_name_server_is_down_too() -> None:
    resolver, names = made()
    resolver.addresses("h.test")
    resolver._known["h.test"].since -= 1.0
    resolver.forget("h.test")
    names.found = []
    assert resolver.addresses("h.test") == ["192.0.2.1"]
    assert names.asked["h.test"] == 2


@pytest.mark.parametrize(
    "host",
    [
        *(
            "1.2.3.4",
            "127.1",
            "2130706433",
            "0x7f.1",
            "017700000001",
            "::1",
            "::ffff:1.2.3.4",
            "fe80::1%lo",
        ),
        *("fe80::1%1", "1.2.3.4.", "1.2.3", "1.2.3.4.5", "0x", "a.1", "1a", "a:b", "1.2.3.4 ", "a.b:c"),
        *("example.com", "1.example", "localhost", "", ".", "xn--bcher-kva.example", "bücher.example", "٣"),
        *("a" * 70, "a" * 70 + ".1", "1\n", "cafe", "0xg"),
    ],
)
def test_what_is_an_address_is_what_the_system_takes_for_one(host: str) -> None:
    try:
        found = _socket.getaddrinfo(host, None, 0, socket.SOCK_STREAM, 0, socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        assert numeric(host) is None
    else:
        assert numeric(host) == [str(address[0]) for *_, address in found]


@pytest.mark.parametrize("seconds", [1.0, 2.0, 5.0, 10.0, 20.0, 60.0])
@pytest.mark.parametrize("part", [7, 2, 1])
def test_all_packets_of_a_look_up_are_waited_for_until_its_end(seconds: float, part: int) -> None:
    """c-ares waits twice as long after each packet, up to 5 s; then it hears no answer to any of them."""
    first = seconds / part
    tries = tries_within(first, seconds)
    assert sum(min(first * 2**each, 5.0) for each in range(tries)) >= seconds
    assert sum(min(first * 2**each, 5.0) for each in range(tries - 1)) < seconds


def test_an_address_that_failed_is_tried_last_wherever_it_was() -> None:
    resolver, names = made()
    names.found = ["192.0.2.1", "192.0.2.2", "192.0.2.3"]
    resolver.addresses("h.test")
    resolver.try_others("h.test", "192.0.2.2")
    resolver.try_others("h.test", "192.0.2.2")
    assert resolver.addresses("h.test") == ["192.0.2.1", "192.0.2.3", "192.0.2.2"]
    resolver.try_others("h.test", "192.0.2.9")
    assert resolver.addresses("h.test") == ["192.0.2.1", "192.0.2.3", "192.0.2.2"]
