"""Refusals in a row on a connection: when it is left, and how often that is tried."""

from __future__ import annotations

from downloader.core.spent_connections import Patience, RefusalRun


def refused(run: RefusalRun, times: int) -> RefusalRun:
    for each in range(times):
        run.refused(10.0 + each)
    return run


def test_a_connection_is_spent_after_four_refusals_while_others_are_served() -> None:
    run = refused(RefusalRun(Patience()), 4)
    assert run.is_spent(served_at=10.5)
    assert not run.is_spent(served_at=9.0)  # the host refuses everything since then
    assert not refused(RefusalRun(Patience()), 3).is_spent(served_at=20.0)


def test_an_answer_ends_the_run() -> None:
    run = refused(RefusalRun(Patience()), 4)
    run.ended()
    assert not run.is_spent(served_at=20.0)
    assert not run.is_doubtful
    assert not refused(run, 3).is_spent(served_at=20.0)


def test_new_connections_in_vain_are_opened_ever_more_rarely() -> None:
    patience = Patience()
    for _ in range(3):
        patience.replaced(served=False)
    assert patience.refusals == 32
    assert refused(RefusalRun(patience), 8).is_doubtful
    assert not refused(RefusalRun(patience), 7).is_doubtful
    for _ in range(20):
        patience.replaced(served=False)
    assert patience.refusals == 256


def test_patience_returns_with_connections_that_serve() -> None:
    patience = Patience()
    patience.replaced(served=True)
    assert patience.refusals == 4
    patience.replaced(served=False)
    for _ in range(3):
        patience.began_well()
    assert patience.refusals == 4
