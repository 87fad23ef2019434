"""Names are looked up once, ahead of their use and not too far ahead."""

from __future__ import annotations

import socket
from collections import Counter

import gevent
import pytest

from downloader.http.dns import Resolver

AHEAD = 2_048
MANY = 12_000


class Names:
    """A way to look up names (``name_lookup.Lookup``) that counts; names in "no" do not exist."""

    most = 256

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def addresses(self, host: str) -> list[str]:
        self.asked[host] += 1
        gevent.sleep(0)
        if host.startswith("no"):
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return ["192.0.2.1"]


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


def test_retries_at_a_dead_host_do_not_ask_again_until_its_addresses_are_older() -> None:
    resolver, names = made()
    for _ in range(5):
        assert resolver.addresses("h.test") == ["192.0.2.1"]
        resolver.forget("h.test")
    assert names.asked["h.test"] == 1
    valid_until, found = resolver._known["h.test"]
    resolver._known["h.test"] = valid_until - 31.0, found  # as if it had been looked up so long ago
    resolver.forget("h.test")
    assert resolver.addresses("h.test") == ["192.0.2.1"]
    assert names.asked["h.test"] == 2
