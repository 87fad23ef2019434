"""Which TLS sessions are read."""

from __future__ import annotations

from downloader.core.session_budget import SessionBudget


def test_session_of_a_single_connection_is_not_read() -> None:
    budget = SessionBudget(0.0)
    assert not any(budget.allows(f"h{n}", 0.0) for n in range(5000))


def test_session_of_the_second_connection_is_read() -> None:
    budget = SessionBudget(0.0)
    assert [budget.allows("h", 0.0) for _ in range(3)] == [False, True, True]


def test_server_that_never_resumes_is_not_read_for_ever() -> None:
    budget = SessionBudget(0.0)
    hour = sum(budget.allows("h", second / 100) for second in range(360_000))
    assert 500 < hour < 600
