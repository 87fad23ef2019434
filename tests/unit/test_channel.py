"""The link between supervisor and children, over a real socketpair."""

from __future__ import annotations

import socket

import gevent
import pytest

from downloader.messages import Credit, Log
from downloader.process.channel import ChildLink, Link

pytestmark = pytest.mark.timeout(30)


def test_what_is_sent_to_a_supervisor_that_has_exited_is_dropped() -> None:
    """Whatever greenlet sends: only what listens sees that it has exited, and ends the process."""
    ours, theirs = socket.socketpair()
    link = ChildLink(theirs.detach())
    link.send(Credit(1))
    large = Log("debug", "x" * (4 << 20))
    link.send(large)  # more than the socket takes: the writer has the rest
    ours.close()
    link.send(large)
    link.flush()
    link.send(Credit(1))
    assert link.receive() is None
    link.close()


def test_messages_arrive_in_order_though_the_socket_is_full() -> None:
    ours, theirs = socket.socketpair()
    link, peer = ChildLink(theirs.detach()), Link(ours)
    sent = [Log("debug", str(number) * (1 << 18)) for number in range(10)]
    for message in sent:
        link.send(message)
    arrived: list[object] = []
    while len(arrived) < len(sent):
        messages, is_open = peer.receive()
        assert is_open
        arrived += messages
        gevent.sleep(0.001)
    assert arrived == sent
    link.close()
    peer.close()
