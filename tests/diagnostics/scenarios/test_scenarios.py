"""Every known trap, each in a fresh process: verdict, cause and place are those that its file states.

Scenarios that need other versions of packages are slow, and so are those that hang until the probe is given
up. Where a cause has another scenario here, those whose rounds are repeated (15 s each) and those that
differ little are slow, too.
"""

from __future__ import annotations

import sys

import pytest

from diagnostics.environments import satisfies, version_of
from diagnostics.scenario import Scenario, chosen
from diagnostics.scenarios_run import run

HANG = {
    "executor_before_patching",
    "import_that_waits",
    "lock_before_patching",
    "lock_put_back",
    "patching_that_waits",
    "real_lock_of_grequests",
    "stuck_lookups",
}
# The slow scenarios by cause; the comment names the one that is not slow.
COVERED = {
    # client_for_each/thread and /context, client_of_one_host/adapter, holds_a_client/argument and /asleep,
    # holds_what_the_probe_needs/login, session_of_another_shape/answer,
    # context_for_several_connections/set once, handlers_of_botocore/none and /after-call,
    # refuses_the_probe, calls_that_do_not_fit/strict, /pool, /signed and /computing,
    # wants_another_answer/exit, ends_of_clients/session and /adapter
    "": {
        "adapters_of_an_idle_program/wide",
        "calls_that_do_not_fit/manager",
        "calls_that_do_not_fit/narrow",
        "calls_that_do_not_fit/opener",
        "calls_that_do_not_fit/plain",
        "calls_that_do_not_fit/prepared",
        "calls_that_do_not_fit/timeout",
        "calls_that_do_not_fit/verify",
        "calls_that_do_not_fit/wrapped",
        "client_for_each/manager",
        "client_for_each/pool",
        "client_for_each/prefixes",
        "client_for_each/workers",
        "client_of_one_host/allowed",
        "client_of_one_host/for each request",
        "connections_in_turn/four",
        "connections_of_http_client/late",
        "context_of_idle_server/server",
        "httpx2_clients/wide",
        "context_for_several_connections/standard",
        "ends_of_clients/sealed",
        "ends_with_an_error/arguments",
        "ends_with_an_error/raised",
        "handlers_of_botocore/another operation",
        "holds_a_client/each",
        "holds_a_client/free argument",
        "holds_a_client/free method",
        "holds_what_the_probe_needs/ten workers",
        "plain_http_beside/each",
        "plain_http_beside/standard",
        "plain_http_beside/wide",
        "long_turns/two places",
        "session_of_another_shape/base",
        "session_of_another_shape/parsed",
        "session_of_another_shape/version",
        "threads_hand_on/work after",
        "threads_in_turn/acquired",
        "threads_in_turn/semaphore",
        "threads_of_gevent/plain",
        "turns_around_requests/handler",
        "turns_of_starters/flag",
        "turns_of_starters/pool",
        "tls_of_its_own/library",
        "turns_of_other_things/turn",
        "turns_in_a_package/decorated",
        "turns_in_a_package/semaphore",
        "turns_around_requests/semaphore",
        "wants_another_answer/poll",
    },
    "blocking-call": {  # sleep_from_before, handlers_of_botocore/before-send
        "blocking_callback",
        "connections_of_http_client/waits",
        "httpx2_clients/hook",
        "handlers_of_botocore/both",
        "handlers_of_botocore/request-created",
        "lookups_left_out",
        "session_database_waits",
        "session_logging_waits",
        "session_sleep_from_before",
    },
    "context-before-patching": {  # context_before_patching, connections_of_http_client/early
        "adapter_before_patching",
        "context_of_idle_server/opener",
    },
    "cpu-bound": {"session_hook_hashes"},  # cpu_in_callback
    "not-patched": {"not_patched_injected"},  # not_patched
    "original-restored": {"several_put_back", "sleep_put_back"},  # select_put_back
    "own-lock": {  # own_lock, travelled_clock
        "assigned_clock",
        "burst_then_lock",
        "chain_then_lock",
        "client_for_each/one lock",
        "client_of_one_host/lock",
        "connections_in_turn/lock",
        "holds_what_the_probe_needs/lock",
        "holds_what_the_probe_needs/one worker",
        "lock_around_other_work",
        "lock_around_reading",
        "login_under_lock",
        "threads_of_gevent/one",
    },
    "patched-too-late": {"pool_before_patching", "ssl_imported_earlier"},  # requests_then_patched
    "pool-of-one": {  # pool_of_one, client_for_each/one session
        "client_for_each/one adapter",
        "client_of_one_host/pool",
        "httpx2_clients/one",
        "pool_of_one_urllib3",
        "tls_of_its_own/settings",
        "who_shares_the_client/adapters",
        "who_shares_the_client/frozen",
        "who_shares_the_client/transport",
    },
    "pyopenssl-context-used": {"context_for_several_connections/manager"},  # the same with a session
    "pyopenssl-own-context": {"client_of_one_host/context"},  # adapter_of_pyopenssl
    "pyopenssl-unpatched-select": {  # grequests_injected
        "frozen_clock_injected",
        "impatient_server",
        "select_left_out",
        "sockets_and_ssl_only_injected",
    },
    "pyopenssl-vendored-copy": {"copy_in_the_project"},  # vendored_copy
    "rate-limit": {"rate_limited/chosen", "wants_another_answer/retry"},  # rate_limited/demanded
}
OFFLINE = [
    each
    for each in chosen()
    if each.runs_on(version_of(sys.executable))
    and satisfies(sys.executable, each.packages)
    and each.name not in HANG
]
SLOW = [each for each in chosen() if each not in OFFLINE]
DELAY = 0.2


def offline(scenario: Scenario) -> object:
    """Return the scenario as a parameter: slow where another one has the same cause and is not."""
    covered = COVERED.get(scenario.expected.cause, ())
    return pytest.param(
        scenario, marks=pytest.mark.slow if scenario.name in covered else (), id=scenario.name
    )


def told(text: str) -> None:
    """Discard the progress messages."""


def test_each_cause_has_a_scenario_that_is_not_slow() -> None:
    causes = {each.name: each.expected.cause for each in chosen()}
    for cause, covered in COVERED.items():
        assert {causes.get(name) for name in covered} == {cause}
    quick = {
        each.expected.cause for each in OFFLINE if each.name not in COVERED.get(each.expected.cause, ())
    }
    assert quick == {each.expected.cause for each in OFFLINE}


@pytest.mark.parametrize("scenario", [offline(each) for each in OFFLINE])
def test_scenario(scenario: Scenario) -> None:
    row = run(scenario, sys.executable, True, told, DELAY)
    assert row.outcome == "as expected", row


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("scenario", SLOW, ids=lambda each: each.name)
def test_slow_scenario(scenario: Scenario) -> None:
    row = run(scenario, sys.executable, False, told)
    if row.outcome == "skipped":
        pytest.skip(row.reason)
    assert row.outcome == "as expected", row
