"""Refusals in a row on a connection: when it is left, and how often that is tried."""

from __future__ import annotations

from downloader.core.spent_connections import Patience, RefusalRun

AT = "127.0.0.1"


def refused(run: RefusalRun, times: int) -> RefusalRun:
    for each in range(times):
        run.refused(10.0 + each, 20)
    return run


def test_a_connection_is_spent_after_four_refusals_while_others_are_served() -> None:
    run = refused(RefusalRun(Patience(), AT), 4)
    assert run.is_spent(served_at=10.5)
    assert not run.is_spent(served_at=9.0)  # the host refuses everything since then
    assert not refused(RefusalRun(Patience(), AT), 3).is_spent(served_at=20.0)


def test_an_answer_ends_the_run() -> None:
    run = refused(RefusalRun(Patience(), AT), 4)
    run.ended()
    assert not run.is_spent(served_at=20.0)
    assert not run.is_doubtful(answered=5)
    assert not refused(run, 3).is_spent(served_at=20.0)


def test_new_connections_in_vain_are_opened_ever_more_rarely() -> None:
    patience = Patience()
    for _ in range(3):
        patience.replaced(served=False, granted=0, address=AT, again=True)
    assert patience.refusals == 32
    assert refused(RefusalRun(patience, AT), 8).is_doubtful(answered=28)
    assert not refused(RefusalRun(patience, AT), 7).is_doubtful(answered=27)
    for _ in range(20):
        patience.replaced(served=False, granted=0, address=AT, again=True)
    assert patience.refusals == 256


def test_connections_opened_before_an_address_was_tried_in_vain_do_not_count() -> None:
    """Twenty are opened at once, all to the machine that refuses, before the first of them is left."""
    patience = Patience()
    for address in (AT, "127.0.0.2"):
        for run in [refused(RefusalRun(patience, address), 1) for _ in range(20)]:
            run.left(served=False)
        assert patience.refusals == 4
    refused(RefusalRun(patience, AT), 1).left(served=False)
    assert patience.refusals == 8


def test_patience_returns_with_connections_that_serve() -> None:
    patience = Patience()
    patience.replaced(served=True, granted=20, address=AT, again=True)
    assert patience.refusals == 4
    patience.replaced(served=False, granted=0, address=AT, again=True)
    for _ in range(3):
        patience.began_well()
    assert patience.refusals == 4


def leave(patience: Patience, granted: int) -> None:
    run = RefusalRun(patience, AT)
    run.refused(10.0, granted)
    run.left(served=granted > 0)


def test_connections_that_have_had_as_many_requests_as_others_were_granted_are_left_too() -> None:
    patience = Patience()
    for granted, expected in ((20, False), (20, True), (20, True), (7, False), (20, False), (20, True)):
        leave(patience, granted)
        assert patience.expects_refusal(20) is expected
        assert RefusalRun(patience, AT).is_doubtful(answered=20) is expected
        assert not RefusalRun(patience, AT).is_doubtful(answered=19)
        assert not RefusalRun(patience, AT).is_doubtful(answered=21)  # it is granted more
    for _ in range(2):
        leave(patience, 0)
    assert not patience.expects_refusal(0)
