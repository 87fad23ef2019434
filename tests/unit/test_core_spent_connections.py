"""Refusals in a row on a connection: when it is left, and how often that is tried."""

from __future__ import annotations

from downloader.core.spent_connections import Patience, RefusalRun

AT = "127.0.0.1"


def run_of(patience: Patience, opened: float = 9.0, address: str = AT) -> RefusalRun:
    return RefusalRun(patience, address, opened)


def in_vain(patience: Patience, times: int) -> None:
    """Leave ``times`` connections that were opened after one that had served nothing was left."""
    for opened in (9.0, *[21.0] * times):
        refused(run_of(patience, opened), 1).left(20.0, served=False)


def refused(run: RefusalRun, times: int) -> RefusalRun:
    for each in range(times):
        run.refused(10.0 + each, 20)
    return run


def test_a_connection_is_spent_after_four_refusals_while_others_are_served() -> None:
    run = refused(run_of(Patience()), 4)
    assert run.is_spent(served_at=10.5)
    assert not run.is_spent(served_at=9.0)  # the host refuses everything since then
    assert not refused(run_of(Patience()), 3).is_spent(served_at=20.0)


def test_an_answer_ends_the_run() -> None:
    run = refused(run_of(Patience()), 4)
    run.ended()
    assert not run.is_spent(served_at=20.0)
    assert not run.is_doubtful(answered=5)
    assert not refused(run, 3).is_spent(served_at=20.0)


def test_new_connections_in_vain_are_opened_ever_more_rarely() -> None:
    patience = Patience()
    in_vain(patience, 3)
    assert patience.refusals == 32
    assert refused(run_of(patience), 8).is_doubtful(answered=28)
    assert not refused(run_of(patience), 7).is_doubtful(answered=27)
    in_vain(patience, 20)
    assert patience.refusals == 256


def test_connections_opened_before_an_address_was_tried_in_vain_do_not_count() -> None:
    """Twenty are opened at once, all to the machine that refuses, before the first of them is left."""
    patience = Patience()
    for address in (AT, "127.0.0.2"):
        for _ in range(20):
            refused(run_of(patience, 9.0, address), 1).left(20.0, served=False)
        assert patience.refusals == 4
    refused(run_of(patience, 21.0), 1).left(22.0, served=False)
    assert patience.refusals == 8


def test_patience_returns_with_connections_that_serve() -> None:
    patience = Patience()
    refused(run_of(patience), 1).left(20.0, served=True)
    assert patience.refusals == 4
    in_vain(patience, 1)
    assert patience.refusals == 8
    for _ in range(3):
        run_of(patience).began_well()
    assert patience.refusals == 4


def leave(patience: Patience, granted: int) -> None:
    run = run_of(patience)
    run.refused(10.0, granted)
    run.left(20.0, served=granted > 0)


def test_connections_that_have_had_as_many_requests_as_others_were_granted_are_left_too() -> None:
    patience = Patience()
    for granted, expected in ((20, False), (20, True), (20, True), (7, False), (20, False), (20, True)):
        leave(patience, granted)
        assert patience.expects_refusal(20) is expected
        assert run_of(patience).is_doubtful(answered=20) is expected
        assert not run_of(patience).is_doubtful(answered=19)
        assert not run_of(patience).is_doubtful(answered=21)  # it is granted more
    for _ in range(2):
        leave(patience, 0)
    assert not patience.expects_refusal(0)
