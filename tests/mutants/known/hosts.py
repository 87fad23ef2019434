"""Bugs in what is done with many hosts, names that are looked up, and hosts that are dead."""

from __future__ import annotations

from known.mutant import Mutant

__all__ = ["KNOWN"]

NAMES = "tests/faults/test_names.py::"
SESSION = "tests/fuzz/test_fuzz_wire.py::test_fuzz[session]"
CONNECTING = "tests/fuzz/test_fuzz_wire.py::test_fuzz[connecting]"

KNOWN = (
    Mutant(
        "slot held while connecting",
        "thirty dead hosts at the head of a list hold up all others for minutes",
        "Census.park_slow",
        "self._slots.park(opening.host)",
        "False",
        (f"{NAMES}test_hosts_that_do_not_answer_hold_no_slot",),
    ),
    Mutant(
        "slot not taken back",
        "more requests are in flight than --connections allows, without end",
        "Scheduler.unpark",
        "self.active += 1",
        "",
        ("tests/unit/test_core_scheduler.py::test_parked_job_leaves_its_slot_to_another",),
    ),
    Mutant(
        "files of dead hosts count as work",
        "a worker asks for nothing more while it waits for dead hosts",
        "Scheduler._rest",
        "self.resting += len(host.queue)",
        "",
        ("tests/unit/test_core_scheduler.py::test_jobs_of_failing_hosts_and_later_ones_rest",),
    ),
    Mutant(
        "dead host tried again",
        "the end of a run waits a minute for each host that does not answer",
        "HostFailures.failed",
        "not host.answered and (error.unreachable or rounds > self._policy.retries)",
        "False",
        (f"{NAMES}test_each_dead_host_fails_with_its_code_and_every_living_one_is_stored",),
    ),
    Mutant(
        "missing name tried again",
        "a name that does not exist takes all retries, and its pauses",
        "translate",
        "_name_does_not_exist(chain)",
        "False",
        (
            f"{NAMES}test_each_dead_host_fails_with_its_code_and_every_living_one_is_stored",
            f"{NAMES}test_queries_are_few",
        ),
    ),
    Mutant(
        "template of another host",
        "a server is asked for the files of another one, which it may have under the same names",
        "HttpSession.template",
        "known[1].replace(_HOST, host)",
        "known[1].replace(_HOST, b'\\r\\nHost: a.test\\r\\n')",
        (SESSION,),
    ),
    Mutant(
        "template with another's password",
        "the credentials of one URL are sent to the hosts of others",
        "HttpSession._make_origin",
        "variant = bare, auth",
        "variant = bare, None",
        (SESSION,),
    ),
    Mutant(
        "addresses one after the other",
        "a host with one dead address costs a whole --connect-timeout for each connection",
        "connect",
        "_HEAD_START if waiting else None",
        "None",
        (CONNECTING,),
    ),
)
