"""Bugs in the diagnostics: wrong clocks and clients, imports that never return, errors of commands."""

from __future__ import annotations

from known.mutant import Mutant

__all__ = ["KNOWN"]

CLOCKS = "tests/diagnostics/test_clocks.py::"
VERDICT = "tests/unit/test_diagnostics_verdict.py::"
STUCK = "tests/diagnostics/test_stuck_imports.py::"
LOOKS = "tests/unit/test_diagnostics_stuck.py::"
SCENARIO = "tests/diagnostics/scenarios/test_scenarios.py::test_scenario"
LIKE = "tests/unit/test_diagnostics_like.py::"
OF_EACH = "test_context_of_pyopenssl_is_set_up_for_the_first_connection_of_each_client"
KEPT = "tests/diagnostics/test_kept_connections.py::"
ENDS = "tests/diagnostics/test_exit_codes.py::"

KNOWN = (
    Mutant(
        "the clock is the program's",
        "a serial program that freezegun has stopped is called concurrent, or has no verdict",
        "clock",
        "return _taken['clock']()",
        "return time.monotonic()",
        (
            f"{CLOCKS}test_pytest_with_a_stopped_clock[freezegun-serial]",
            f"{CLOCKS}test_check_in_a_process_whose_clock_is_stopped",
        ),
    ),
    Mutant(
        "a stopped clock of the C library counts",
        "what libfaketime has stopped has no verdict, or a wrong one",
        "compare",
        "_taken['clock'] = lambda: ticks() + ahead",
        "pass",
        (f"{CLOCKS}test_clock_of_the_c_library_is_stopped",),
    ),
    Mutant(
        "a verdict by a clock that the kernel contradicts",
        "a serial program whose clock is stopped is called concurrent",
        "contradiction",
        "abs(own - real) > _ROOM + _SHARE * abs(real)",
        "False",
        (f"{VERDICT}test_no_verdict_by_a_clock_that_the_kernel_contradicts",),
    ),
    Mutant(
        "a verdict on less than a delay",
        "ten requests of 0.2 s took 0.00 s, and that is called concurrent",
        "_untrue",
        "wall < delay * (1 - _EARLY)",
        "False",
        (
            f"{VERDICT}test_no_verdict_on_requests_that_took_less_than_a_delay",
            f"{CLOCKS}test_fetch_that_returns_before_the_response_has_no_verdict",
        ),
    ),
    Mutant(
        "a verdict against the record of the server",
        "a serial program whose clock goes too slowly is called concurrent",
        "_untrue",
        "waited > wall + delay + _ROOM",
        "False",
        (f"{VERDICT}test_no_verdict_where_the_server_had_requests_for_longer",),
    ),
    Mutant(
        "an import is waited for as long as it takes",
        "a program that serves while it is imported is given up after 100 s, and nothing says why",
        "SetUp.check",
        "self._over or now < self._next",
        "True",
        (f"{STUCK}test_import_that_never_returns[in-gevent]",),
        30,
    ),
    Mutant(
        "the hub's stack is the main greenlet's",
        "an import that waits is said to wait in the hub, nowhere in the program",
        "stack",
        "frame = frame if main is current else main.gr_frame",
        "pass",
        (f"{STUCK}test_import_that_never_returns[in-gevent]",),
        30,
    ),
    Mutant(
        "an import that computes is given up",
        "a large import on a busy machine is said to stand still",
        "standstill",
        "last.used - begin.used < _IDLE * (last.at - begin.at)",
        "True",
        (f"{LOOKS}test_what_computes_or_has_no_cpu_is_waited_for_up_to_a_limit",),
    ),
    Mutant(
        "an import that goes on is given up",
        "a slow import from a network drive is said to stand still",
        "standstill",
        "not look.same(last)",
        "False",
        (f"{LOOKS}test_an_import_that_goes_on",),
    ),
    Mutant(
        "the last line of the output is the error",
        "a command that fails is reported with a closing bracket",
        "_Watch._last_output",
        "error_in(redact(output.read().decode(errors='replace')))",
        "redact(output.read().decode(errors='replace')).strip().splitlines()[-1]",
        (f"{ENDS}test_command_that_fails_shows_its_error",),
    ),
    Mutant(
        "the adapter of the application's host is not measured",
        "a program whose adapter lets one request through at a time is called concurrent",
        "session.make",
        "adapter is not None",
        "False",
        (
            f"{SCENARIO}[client_of_one_host/adapter]",
            f"{LIKE}test_adapter_of_the_host_serves_the_probe_and_the_session_stays_as_it_is",
        ),
    ),
    Mutant(
        "a client for each greenlet is measured as one for all",
        "a healthy program whose workers have a session of one connection each is called serial",
        "judged",
        "connecting > 1",
        "False",
        (
            f"{SCENARIO}[client_for_each/thread]",
            f"{LIKE}test_two_greenlets_at_a_connection_with_clients_of_their_own_have_one_each",
        ),
    ),
    Mutant(
        "the first that connects is measured, whatever most do",
        "a healthy program is called serial whose heartbeat has a client of one connection for itself",
        "Connecting._judge",
        "sharing.alike([each.sighting for each in clients])",
        "[clients[0].sighting]",
        (f"{SCENARIO}[turns_around_requests/heartbeat]",),
    ),
    Mutant(
        "what holds a client is taken for what fetches with it",
        "a program that takes turns at a session that its function has as an argument is called concurrent",
        "Seen._look_at",
        "not is_inside(frame, own, kind)",
        "False",
        (
            f"{SCENARIO}[holds_a_client/argument]",
            f"{SCENARIO}[holds_a_client/method]",
            f"{LIKE}test_what_is_called_with_a_client_is_no_request",
        ),
    ),
    Mutant(
        "a login under a lock is a turn",
        "a healthy program that logs in once under a lock has no verdict",
        "Connecting.may_take_turns",
        "turns.stand(using, self.waits)",
        "False",
        (f"{SCENARIO}[turns_around_requests/login]",),
    ),
    Mutant(
        "greenlets that wait for the answer of a worker are taken for idle ones",
        "a program whose only worker answers through a queue is called concurrent",
        "Connecting.may_be_idle",
        "turns.stand(1, self.line)",
        "False",
        (f"{SCENARIO}[turns_around_requests/reply]", f"{SCENARIO}[turns_around_requests/polled]"),
    ),
    Mutant(
        "a turn that is passed on once is one each time",
        "a healthy crawler has no verdict whose first pages lead to one another",
        "pass_on",
        "range(_TIMES)",
        "range(1)",
        (f"{SCENARIO}[turns_around_requests/pages]",),
    ),
    Mutant(
        "workers that share a session have one each",
        "a program whose ten workers share a session of one connection is called concurrent",
        "Sighting.waits_with",
        "self.shares('pool', other)",
        "False",
        (
            f"{SCENARIO}[client_for_each/one session]",
            f"{LIKE}test_greenlets_that_wait_for_one_pool_lock_or_session_share_it",
        ),
    ),
    Mutant(
        "the first of two measurements counts though the other is not like it",
        "a program of one greenlet that has a session of one connection for itself is called serial",
        "settled",
        "found[0].verdict == found[1].verdict",
        "True",
        (f"{SCENARIO}[who_shares_the_client/login]",),
    ),
    Mutant(
        "one greenlet is evidence of who shares a client",
        "a program whose heartbeat has a session of one connection for itself is called serial",
        "judged",
        "first.queued() >= turns.SOME",
        "True",
        (
            f"{SCENARIO}[one_greenlet_yet/heartbeat]",
            f"{LIKE}test_client_that_one_greenlet_was_seen_with_is_not_said_to_be_shared",
        ),
    ),
    Mutant(
        "a lock in a client that one greenlet was seen with counts",
        "a program that reads its secrets through a session with a lock is called serial",
        "unlike",
        "seen <= _SOME or case.in_threads",
        "False",
        (f"{SCENARIO}[one_greenlet_yet/lock]", f"{SCENARIO}[threads_of_gevent/given two]"),
    ),
    Mutant(
        "requests on kept connections are not seen",
        "a program that takes turns at a session that has logged in is called concurrent",
        "Agent._on_request",
        "self._begun or choice.in_greenlet()",
        "False",
        (f"{KEPT}test_lock_around_requests_on_a_kept_connection",),
    ),
    Mutant(
        "clients are copied as often as they are seen though others wait for them",
        "a program that lends one client from a queue is called concurrent",
        "unlike",
        "len(held) >= _SOME",
        "False",
        (f"{SCENARIO}[who_shares_the_client/queue]",),
    ),
    Mutant(
        "a context of pyOpenSSL that has made a connection of the program's is not set up for the probe",
        "HTTPS is said not to work in a program that makes a context for each connection",
        "_of_a_client.setting.call",
        "not used or made",
        "True",
        (f"{SCENARIO}[client_for_each/context]", f"{LIKE}{OF_EACH}"),
    ),
    Mutant(
        "a context of pyOpenSSL is set up as if it had made no connection of the probe's",
        "a program of which one request succeeds is called concurrent",
        "_of_a_client.setting.call",
        "not used or made",
        "not used",
        (f"{SCENARIO}[context_for_several_connections/session]", f"{LIKE}{OF_EACH}"),
    ),
    Mutant(
        "greenlets with clients of their own are not seen to share a context",
        "a program of which one request succeeds is called concurrent",
        "Connecting._judge",
        "context is not None",
        "False",
        (f"{SCENARIO}[context_for_several_connections/one context]",),
    ),
    Mutant(
        "requests that fail at once have overlapped",
        "HTTPS is said not to work in a program whose only greenlet needs one connection",
        "overlapped",
        'any(each["errors"] for each in rounds)',
        "False",
        ("tests/diagnostics/test_used_contexts.py::test_context_of_the_only_greenlet_is_no_verdict",),
    ),
    Mutant(
        "the program stays stopped while the probe waits for it",
        "HTTPS is said not to work in a program that logs in under a lock",
        "Agent.measure",
        "self._pause.end if self._pause is not None else None",
        "None",
        (f"{SCENARIO}[holds_what_the_probe_needs/login]",),
    ),
    Mutant(
        "an error that the answer of the probe provokes is a verdict",
        "HTTPS is said not to work in a program that checks what is in a response",
        "no_verdict",
        "not all(map(_is_provoked, case.errors))",
        "True",
        (
            f"{SCENARIO}[session_of_another_shape/answer]",
            f"{LIKE}test_error_that_the_probe_provokes_is_no_verdict",
        ),
    ),
    Mutant(
        "what runs in threads is measured in greenlets",
        "a program that fetches in a pool of threads is called serial, since nothing is patched",
        "Agent._is_of_a_thread",
        "native.through(pool, fetch)",
        "fetch",
        (f"{SCENARIO}[threads_of_gevent/ten]",),
    ),
    Mutant(
        "only what is of a known client is given to threads",
        "a program whose pool of one thread calls urlopen is OK",
        "given",
        "pooled or package is None or package in _CLIENTS",
        "package in _CLIENTS",
        (f"{SCENARIO}[threads_of_gevent/given urlopen]",),
    ),
    Mutant(
        "what held the hub is told with the time of a round without it",
        "10 × 0.2 s that took 0.22 s are called serial",
        "_measured",
        "_of_pair(give('serialized'), slowest)",
        "give('serialized')",
        (f"{VERDICT}test_what_held_the_hub_is_told_with_the_time_of_its_round",),
    ),
)
