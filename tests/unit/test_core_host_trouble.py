"""What failures say about the host: pure state."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from downloader.core.host_trouble import Trouble
from downloader.errors import FAILURES, Blame, FetchError, failure_kind


def fails(
    trouble: Trouble,
    blame: Blame,
    began: float = 0.0,
    serves: Callable[[float], bool] = lambda since: False,
    **given: bool,
) -> bool:
    situation = {"fresh": True, "answered": True, "down": False, **given}
    return trouble.blames_host(blame, began=began, now=0.0, serves=serves, **situation)


@pytest.mark.parametrize("share", [0.01, 0.3, 0.5, 0.7, 0.9, 0.97])
@pytest.mark.parametrize("seed", range(5))
def test_files_that_fail_among_others_never_mean_that_the_host_is_down(share: float, seed: int) -> None:
    draw, trouble = random.Random(seed), Trouble()
    outages, down = 0, False
    for _ in range(20_000):
        if draw.random() >= share:
            trouble.succeeded(1, 0.0, 0.0)
            down = False
        elif not down:
            down = fails(trouble, Blame.EITHER)
            outages += down
    # Before it is known how many fail, a long row of them is taken for an outage, once or twice.
    assert outages <= (0 if share < 0.6 else 5)


def test_host_of_which_nothing_succeeds_is_down() -> None:
    trouble = Trouble()
    trouble.succeeded(1, 0.0, 0.0)
    assert [fails(trouble, Blame.EITHER) for _ in range(17)].count(True) == 2


def test_host_that_still_sends_a_file_requested_meanwhile_is_not_down() -> None:
    """What it was sent before the first of the failures says nothing."""
    trouble = Trouble()
    asked: list[float] = []

    def serves(since: float) -> bool:
        asked.append(since)
        return since <= 10.0

    blamed = [began for began in range(100) if fails(trouble, Blame.EITHER, float(began), serves)]
    # The first time it is asked about those since 0, and then about those since the failure behind that.
    assert asked[0] == 0.0
    assert blamed[0] >= 2 * 16
    assert all(since > 10.0 for since in asked[1:])


@pytest.mark.parametrize(
    ("bad", "then", "is_outage"), [(3, 1, True), (3, 0, True), (30, 1, False), (30, 10, True)]
)
def test_few_failures_are_an_outage_unless_many_files_fail_by_themselves(
    bad: int, then: int, is_outage: bool
) -> None:
    """Responses may come in any order: some of the successes behind the first refusals."""
    trouble = Trouble()
    for _ in range(bad):
        fails(trouble, Blame.EITHER, 5.0)
    trouble.succeeded(4, 5.0, 5.0)
    for _ in range(then):
        fails(trouble, Blame.EITHER, 6.0)
    began = trouble.outage_began(5.0)
    assert began == ((6.0 if then else 5.0) if is_outage else math.inf)


def test_retries_of_bad_files_say_nothing() -> None:
    """At the end of a run nothing else may be left."""
    trouble = Trouble()
    assert not any(fails(trouble, Blame.EITHER, fresh=False) for _ in range(5000))


def test_every_failed_probe_counts_while_the_host_is_down() -> None:
    assert fails(Trouble(), Blame.EITHER, fresh=False, down=True)


@pytest.mark.parametrize("blame", [Blame.FILE, Blame.NEITHER])
def test_others_are_never_the_hosts(blame: Blame) -> None:
    trouble = Trouble()
    assert not any(fails(trouble, blame, down=True) for _ in range(100))


def test_host_that_cannot_be_reached() -> None:
    assert fails(Trouble(), Blame.HOST, answered=False)
    trouble = Trouble()
    assert [fails(trouble, Blame.HOST) for _ in range(4)] == [False, False, False, True]
    trouble.succeeded(1, 0.0, 0.0)
    assert not fails(trouble, Blame.HOST)
    assert fails(trouble, Blame.HOST, down=True)


def test_host_that_went_down_gets_no_pace_of_what_failed_then() -> None:
    trouble = Trouble()
    for number in range(200):
        trouble.succeeded(1, number / 300, number / 300)
    for _ in range(100):
        fails(trouble, Blame.EITHER)
    trouble.throttle.gap, trouble.throttle.steps = 0.2, 1
    assert [fails(trouble, Blame.HOST) for _ in range(4)] == [False, False, False, True]
    assert trouble.throttle.gap == 0


def test_any_answer_shows_that_it_was_reached() -> None:
    trouble = Trouble()
    for _ in range(10):
        assert not any(fails(trouble, Blame.HOST) for _ in range(3))
        assert not fails(trouble, Blame.EITHER, fresh=False)


def test_host_that_is_given_up_is_blamed_no_more_until_it_answers() -> None:
    trouble = Trouble(given_up=True)
    assert not any(fails(trouble, Blame.EITHER) for _ in range(100))
    trouble.succeeded(1, 0.0, 0.0)
    assert [fails(trouble, Blame.EITHER) for _ in range(16)][-1]


def test_status_is_never_the_hosts_alone() -> None:
    """A file must not end with a status that it did not get."""
    assert all(failure_kind(f"http-{status}").blame is not Blame.HOST for status in range(100, 1000))
    assert {code for code, kind in FAILURES.items() if kind.blame is Blame.HOST} == {
        *("dns", "connect", "connect-timeout", "tls-verify", "tls-version", "tls-handshake", "proxy")
    }


@pytest.mark.parametrize(
    ("code", "after", "waits", "retried"),
    [
        ("http-429", 1.0, True, True),
        ("http-503", 0.0, False, True),
        ("http-429", 0.0, False, True),
        ("http-403", 0.0, False, True),
        ("http-403", 1.0, True, True),
        ("http-403", None, False, False),
        ("http-503", None, False, True),
        ("http-404", 1.0, False, False),
        ("http-500", 1.0, False, True),
    ],
)
def test_hosts_that_ask_to_wait(code: str, after: float | None, waits: bool, retried: bool) -> None:
    error = FetchError(code, "", after)
    assert (error.asks_to_wait, error.transient) == (waits, retried)


@pytest.mark.parametrize(
    ("code", "retried"), [("http-403", True), ("http-410", True), ("too-large", False)]
)
def test_refusal_of_a_request_that_has_waited_for_long_behind_a_redirect_is_not_final(
    code: str, retried: bool
) -> None:
    """The signed URL that the redirect led to may have run out."""
    error = FetchError(code)
    assert not error.transient
    error.outdated = True
    assert error.transient is retried
