"""The verdict from numbers alone."""

from __future__ import annotations

from typing import Any

import pytest

from diagnostics.agent.https_agent.patience import Patience
from diagnostics.errors import ProbeError
from diagnostics.model import Observation, Question, Target
from diagnostics.verdict import holds, judge, least_slope

ASK = Question(Target(style="requests"), requests=10, delay=0.2)


def once(requests: int, delay: float, wall: float, **more: Any) -> dict[str, Any]:
    """Return one round as the agent reports it."""
    plain = {
        "cpu": 0.0,
        "ready": 0.0,
        "done": requests,
        "errors": 0,
        "kinds": {},
        "first": [],
        "run": f"r{delay}",
    }
    return {"requests": requests, "delay": delay, "wall": wall, **plain, **more}


def seen(
    *rounds: dict[str, Any], held: Any = (), parked: Any = (), problem: str | None = None, **more: Any
) -> Observation:
    """Return the observation of these rounds."""
    result = {
        "rounds": list(rounds),
        "held": list(held),
        "parked": list(parked),
        "looked": sum(each["wall"] for each in rounds),
        "scheduler": True,
        "gap": 0.0,
        "problem": problem,
    }
    return Observation(result, {}, {"patched": {}}, **more)


def served(requests: int, *levels: float) -> dict[str, Any]:
    """Return what the server saw of the round at the delay: ``levels`` are the seconds in which 1, 2, …
    waited."""
    return {"r0.2": {"requests": requests, "peak": len(levels), "levels": [0.0, *levels]}}


def parked(file: str, function: str, during: float, most: int) -> dict[str, Any]:
    """Return greenlets that waited at one place."""
    stack = [(file, 1, function), ("/proj/app.py", 7, "fetch")]
    return {"stack": stack, "seconds": during * most, "during": during, "most": most}


def test_serial_when_time_grows_with_each_delay():
    found = judge(ASK, seen(once(1, 0, 0.1), once(10, 0.0, 0.3), once(10, 0.2, 2.3)))
    assert found.verdict == "serialized"
    assert found.slope == pytest.approx(10)


def test_not_serial_when_the_time_is_as_long_without_a_delay():
    rounds = (once(1, 0, 0.1), once(10, 0.0, 4.0), once(10, 0.2, 4.3))
    found = judge(ASK, seen(*rounds, served=served(10, 0.0, 0.0, *[0.2] * 7, 0.1)))
    assert (found.verdict, found.limit) == ("concurrent", "time-elsewhere")


def test_minimum_of_repeated_pairs_counts():
    pairs = [once(10, 0.0, 0.1), once(10, 0.2, 1.4), once(10, 0.0, 0.1), once(10, 0.2, 0.4)]
    assert judge(ASK, seen(once(1, 0, 0.1), *pairs)).verdict == "concurrent"


def test_not_serial_when_the_server_saw_overlapping_requests():
    rounds = (once(1, 0, 0.1), once(10, 0.0, 0.1), once(10, 0.2, 2.1, cpu=1.9))
    together = (*[0.0] * 9, 0.2)
    assert judge(ASK, seen(*rounds)).verdict == "serialized"
    assert judge(ASK, seen(*rounds, served=served(10, *together))).verdict == "concurrent"
    assert judge(ASK, seen(*rounds, served=served(10, 2.0))).verdict == "serialized"


def test_one_burst_does_not_overrule_the_rest():
    """All of them wait at once, then three requests of each pass a lock: 6.2 s of ten times four."""
    rounds = (once(1, 0, 0.1), once(10, 0.0, 0.2), once(10, 0.2, 6.4))
    found = judge(ASK, seen(*rounds, served=served(40, 6.0, *[0.0] * 8, 0.2)))
    assert found.verdict == "serialized"
    assert found.concurrency == pytest.approx(1.25)


@pytest.mark.parametrize(
    ("most", "during", "peak", "limit"),
    [
        (6, 1.0, 4, "small-pool"),
        (6, 1.0, 3, "small-pool"),  # the server had no CPU either, and saw one less
        (4, 1.0, 4, ""),  # less than half of them
        (6, 0.1, 4, ""),  # for a moment only
        (9, 1.0, 10, ""),  # the server saw them all
    ],
)
def test_small_pool_is_named_on_a_busy_machine(most, during, peak, limit):
    """Three delays, during most of which the process had no CPU."""
    rounds = (once(1, 0, 0.1), once(10, 0.0, 0.4, ready=0.35), once(10, 0.2, 0.9, ready=0.55))
    levels = (*[0.0] * (peak - 1), 0.5)
    waits = (parked("/proj/app.py", "fetch", during, most),)
    found = judge(ASK, seen(*rounds, parked=waits, served=served(10, *levels)))
    assert (found.verdict, found.limit) == ("concurrent", limit)


def test_consecutive_requests_are_not_serial():
    rounds = (once(1, 0, 0.1), once(10, 0.0, 0.1), once(10, 0.2, 1.1))
    found = judge(ASK, seen(*rounds, served=served(50, *[0.0] * 9, 1.0)))
    assert found.verdict == "concurrent"
    assert found.concurrency == pytest.approx(10 * 5 * 0.2 / 1.1)


def test_time_without_cpu_is_excluded():
    rounds = (once(1, 0, 0.1), once(10, 0.0, 0.3), once(10, 0.2, 2.3, ready=1.7))
    assert judge(ASK, seen(*rounds)).verdict == "concurrent"
    # A round at no delay during which it had no CPU does not hide a serial process, either.
    rounds = (once(1, 0, 0.1), once(10, 0.0, 2.0, ready=1.8), once(10, 0.2, 2.3))
    assert judge(ASK, seen(*rounds, served=served(10, 2.0))).verdict == "serialized"


SLEEPS = parked("/lib/gevent/hub.py", "sleep", 6.0, 1)
QUEUE = parked("/lib/gevent/thread.py", "acquire", 6.0, 9)


@pytest.mark.parametrize(
    ("waits", "verdict", "limit"),
    [((QUEUE, SLEEPS), "concurrent", "rate-limit"), ((QUEUE,), "serialized", ""), ((), "serialized", "")],
)
def test_excessive_time_is_serial_only_with_a_cause(waits, verdict, limit):
    """The time does not grow with the delay, and requests are served one at a time."""
    rounds = (once(1, 0, 0.1), once(10, 0.0, 3.0), once(10, 0.2, 3.2))
    found = judge(ASK, seen(*rounds, parked=waits, served=served(10, 2.0)))
    assert (found.verdict, found.limit) == (verdict, limit)


def test_a_small_pool_is_named():
    rounds = (once(1, 0, 0.1), once(10, 0.0, 0.1), once(10, 0.2, 0.7))
    found = judge(ASK, seen(*rounds, parked=[QUEUE], served=served(10, 0.0, 0.2, 0.0, 0.4)))
    assert (found.verdict, found.limit) == ("concurrent", "small-pool")


def test_fetch_without_requests_is_no_measurement():
    rounds = (once(1, 0, 0.0), once(10, 0.0, 0.0), once(10, 0.2, 0.0003))
    found = judge(ASK, seen(*rounds, served={}))
    assert found.verdict == "error"


def held(seconds: float, cpu: float, ready: float, file: str = "/proj/app.py") -> dict[str, Any]:
    """Return a stack that held the hub."""
    return {"seconds": seconds, "cpu": cpu, "ready": ready, "stack": [(file, 7, "fetch")], "samples": 9}


@pytest.mark.parametrize(
    ("hold", "verdict"),
    [
        (held(2.0, 0.0, 0.0), "serialized"),  # it waited
        (held(2.0, 1.9, 0.0), "serialized"),  # it computed
        (held(2.0, 0.5, 1.5), "serialized"),  # it computed on a busy machine
        (held(2.0, 0.01, 1.99), "concurrent"),  # it only had no CPU
        (held(2.0, 1.9, 0.0, "/lib/site-packages/urllib3/util/ssl_.py"), "concurrent"),  # TLS contexts
        (held(0.2, 0.0, 0.0), "concurrent"),
    ],
)
def test_hub_holders_beside_waiting_greenlets(hold, verdict):
    rounds = (once(1, 0, 0.1), once(10, 0.0, 1.1), once(10, 0.2, 1.4))
    assert judge(ASK, seen(*rounds, held=[hold])).verdict == verdict


def test_waits_in_many_places_indicate_a_busy_machine():
    apart = [held(0.1, 0.0, 0.0, f"/proj/{number}.py") for number in range(30)]
    assert holds(apart)[0] == pytest.approx(0.1)


def test_stolen_cpu_time_is_no_wait():
    computes = held(2.5, 1.2, 0.3)
    assert holds([computes]) == (0.0, pytest.approx(1.5))
    assert holds([computes, held(2.5, 0.6, 0.3, "/proj/other.py")]) == (
        pytest.approx(1.6),
        pytest.approx(1.5),
    )


def test_errors_give_the_verdict_error():
    bad = {
        "done": 0,
        "errors": 10,
        "first": [{"class": "RecursionError", "text": "too\ndeep", "stack": []}],
    }
    found = judge(ASK, seen(once(1, 0, 0.1), once(10, 0.0, 0.1, **bad), once(10, 0.2, 0.003, **bad)))
    assert (found.verdict, found.error) == ("error", "RecursionError: too deep")
    assert found.concurrency == 0
    some = {**bad, "done": 7, "errors": 3}
    assert judge(ASK, seen(once(10, 0.0, 0.1), once(10, 0.2, 0.3, **some))).verdict == "error"
    # A serial process in front of a server with short timeouts: some responses, and errors.
    assert judge(ASK, seen(once(10, 0.0, 0.1), once(10, 0.2, 2.1, **some))).verdict == "serialized"


def test_no_response_at_all():
    assert judge(ASK, seen(problem="nothing more came within 9 s")).verdict == "error"


def test_url_is_judged_by_the_wait_of_one_request():
    ask = Question(Target(style="requests"), requests=10, url="https://h/")
    single = [once(1, 0, 0.3), once(1, 0, 0.31, cpu=0.01), once(1, 0, 0.3, cpu=0.01)]
    assert judge(ask, seen(*single, once(10, 0.2, 3.0, cpu=0.1))).verdict == "serialized"
    assert judge(ask, seen(*single, once(10, 0.2, 0.4, cpu=0.1))).verdict == "concurrent"
    # Too fast to decide by the time; what holds the hub decides.
    quick = [once(1, 0, 0.01), once(1, 0, 0.01, cpu=0.01), once(1, 0, 0.01, cpu=0.01)]
    assert judge(ask, seen(*quick, once(10, 0.2, 0.1, cpu=0.1))).verdict == "concurrent"
    assert judge(ask, seen(*quick, once(10, 0.2, 0.1), held=[held(0.12, 0, 0)])).verdict == "serialized"


def test_serial_threshold_values():
    assert least_slope(2) == pytest.approx(4 / 3)
    assert least_slope(10) == 4


def test_rate_limit_at_a_url_needs_server_observations():
    ask = Question(Target(style="requests"), requests=10, url="https://h/")
    rounds = [once(1, 0, 0.3), once(1, 0, 0.2), once(1, 0, 0.2), once(10, 0.2, 2.5)]
    told = [judge(ask, seen(*rounds, parked=[SLEEPS], paced=paced)) for paced in (False, True)]
    assert [each.verdict for each in told] == ["serialized", "concurrent"]
    assert told[1].limit == "rate-limit"
    assert judge(ask, seen(*rounds, held=[held(2.0, 0, 0)], paced=True)).verdict == "serialized"


def test_small_pool_is_named_at_a_url():
    ask = Question(Target(style="requests"), requests=10, url="https://h/")
    rounds = [once(1, 0, 0.3), once(1, 0, 0.2), once(1, 0, 0.2), once(10, 0.2, 0.6)]
    found = judge(ask, seen(*rounds, parked=[{**QUEUE, "most": 7}]))
    assert (found.verdict, found.limit) == ("concurrent", "small-pool")


def test_other_client_than_the_applications_is_never_concurrent():
    rounds = (once(1, 0, 0.1), once(10, 0.0, 0.1), once(10, 0.2, 0.3))
    found = seen(*rounds)
    assert judge(ASK, found).verdict == "concurrent"
    found.result["foreign"] = [{"name": "aiohttp", "at": ["/proj/app.py", 3, "<module>"]}]
    told = judge(ASK, found)
    assert (told.verdict, "aiohttp" in told.error) == ("error", True)


@pytest.mark.parametrize(
    ("now", "starved", "sign", "starved_then", "after"),
    [
        (114.9, 0.0, 114.8, 0.0, None),
        (115.0, 0.0, 114.9, 0.0, 15.0),
        # Without a CPU for 9 of 10 seconds: ten times as much time, up to three times the limit.
        (130.0, 27.0, 129.9, 27.0, None),
        (145.0, 40.0, 144.9, 40.0, 45.0),
        # The same for the time without a sign of the hub.
        (107.0, 0.0, 100.0, 0.0, 7.0),
        (109.0, 8.0, 100.0, 0.0, None),
        (109.0, 8.0, 101.0, 7.5, 8.0),
    ],
)
def test_measurement_continues_without_cpu(now, starved, sign, starved_then, after):
    assert Patience(15.0, 7.0, 100.0).exhausted(now, starved, sign, starved_then) == after


def test_measurement_extends_its_limit_for_time_without_cpu():
    patience = Patience(15.0, 7.0, 100.0)
    assert not patience.needs_more(114.0, 10.0)
    assert patience.needs_more(116.0, 10.0)
    assert not patience.needs_more(116.0, 0.5)


@pytest.mark.parametrize(
    "passed", [(0.0, 2.6), (26.0, 2.6), (1.3, 2.6)], ids=["stopped", "too fast", "too slow"]
)
def test_no_verdict_by_a_clock_that_the_kernel_contradicts(passed):
    rounds = (once(1, 0, 0.1), once(10, 0.0, 0.3), once(10, 0.2, 0.5))
    assert judge(ASK, seen(*rounds, passed=(2.5, 2.6))).verdict == "concurrent"
    with pytest.raises(ProbeError, match=r"^--style requests: the clock .* stopped or replaced"):
        judge(ASK, seen(*rounds, passed=passed))


def test_no_verdict_on_requests_that_took_less_than_a_delay():
    rounds = (once(1, 0, 0.0), once(10, 0.0, 0.0), once(10, 0.2, 0.0))
    counts = served(10, *[0.0] * 9, 0.2)
    with pytest.raises(ProbeError, match=r"10 requests at once took 0.00 s, .* its clock is stopped"):
        judge(ASK, seen(*rounds, served=counts))
    with pytest.raises(ProbeError, match=r"10 requests at once took 0.00 s, .* s: its fetch returns"):
        judge(ASK, seen(*rounds, served=counts, passed=(0.5, 0.6)))


def test_no_verdict_where_the_server_had_requests_for_longer():
    rounds = (once(1, 0, 0.0), once(10, 0.0, 0.0), once(10, 0.2, 0.25))
    with pytest.raises(ProbeError, match=r"the server had requests waiting for 2\.00 s"):
        judge(ASK, seen(*rounds, served=served(10, 2.0)))


def test_requests_that_failed_or_were_not_sent_contradict_no_clock():
    failed = once(10, 0.2, 0.0, done=0, errors=10, first=[{"class": "E", "text": "no", "stack": []}])
    rounds = (once(1, 0, 0.0), once(10, 0.0, 0.0))
    assert judge(ASK, seen(*rounds, failed, served=served(10, 0.2))).verdict == "error"
    assert judge(ASK, seen(*rounds, once(10, 0.2, 0.0), served={})).verdict == "error"


def test_what_held_the_hub_is_told_with_the_time_of_its_round():
    held = [{"stack": [("/proj/app.py", 6, "look_up")], "seconds": 2.6, "cpu": 0.0, "ready": 0.0}]
    quick = (once(10, 0.0, 0.02), once(10, 0.2, 0.22))
    found = judge(ASK, seen(once(1, 0, 0.3), once(10, 0.0, 2.5), once(10, 0.2, 2.8), *quick, held=held))
    assert (found.verdict, found.wall) == ("serialized", 2.8)
    assert found.concurrency < 1


def test_what_blocks_while_connections_are_opened_is_told_with_the_time_of_that_pass():
    held = [{"stack": [("/proj/app.py", 9, "connect")], "seconds": 2.0, "cpu": 0.0, "ready": 0.0}]
    rounds = (once(1, 0, 0.2), once(10, 0.0, 1.85), once(10, 0.2, 0.21))
    found = judge(ASK, seen(*rounds, held=held, served=served(10, *[0.0] * 9, 0.2)))
    assert (found.verdict, found.wall, found.delay, found.concurrency) == ("serialized", 1.85, 0.0, 1.0)
