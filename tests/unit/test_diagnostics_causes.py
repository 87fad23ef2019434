"""The cause from an observation alone."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from diagnostics.causes import explain
from diagnostics.evidence import Case
from diagnostics.examine import diagnose
from diagnostics.model import Diagnosis, Observation, Question, Remedy, Target
from diagnostics.provoked import no_verdict
from diagnostics.report import show
from diagnostics.verdict import Judgement, Served, judge

ASK = Question(Target(app="app:fetch"), requests=10, delay=0.2)
PATCHED = dict.fromkeys(("socket", "ssl", "select", "time", "thread", "dns"), True)
FACTS: dict[str, Any] = {
    "cwd": "/proj",
    "path": [],
    "library": "/py/lib/python3.11",
    "executable": "/py/bin/python",
    "patched": PATCHED,
    "injected_copies": [],
    "gevent_openssl": [],
    "threadpool": 10,
}
# What a diagnosis has of the process besides.
OF_A_DIAGNOSIS: dict[str, Any] = {
    "python": "3.11.0",
    "implementation": "cpython",
    "packages": {},
    "pyopenssl_injected": False,
    "truststore_injected": False,
    "gevent": "26.9.0",
    "openssl": "",
}
SEEN: dict[str, Any] = {
    "imports": {},
    "patches": [],
    "injections": [],
    "contexts": [],
    "connections": [],
    "early": [],
    "replaced": [],
    "keepers": [],
}


def observation(result: dict[str, Any], **facts: Any) -> Observation:
    """Return the observation of a probe with ``result``."""
    plain = {"rounds": [], "held": [], "parked": [], "looked": 9.0, "scheduler": True, "seconds": 9.0}
    return Observation({**plain, "problem": None, "gap": 0.0, **result}, SEEN, {**FACTS, **facts}, {})


def explained(result: dict[str, Any], **facts: Any) -> list[str]:
    """Return the codes of the causes of a probe with ``result``."""
    found = observation(result, **facts)
    return [cause.code for cause, _ in explain(Case(ASK, found, judge(ASK, found)))]


def held(path: str, line: int, seconds: float) -> dict[str, Any]:
    """Return what held the hub without computing."""
    return {"stack": [[path, line, "fetch"]], "seconds": seconds, "cpu": 0.0, "ready": 0.0}


def test_brief_hub_hold_is_not_the_cause(tmp_path):
    app = tmp_path / "app.py"
    app.write_text("import requests\n\ndef fetch(url):\n    requests.get(url)\n")
    looking = ["/py/lib/python3.11/site-packages/gevent/_socketcommon.py", 247, "getaddrinfo"]
    parked = {"stack": [looking, [str(app), 4, "fetch"]], "seconds": 8.0, "during": 8.0, "most": 1}
    stuck = {"problem": "nothing more came within 9 s", "parked": [parked]}
    assert explained({**stuck, "held": [held(str(app), 4, 0.6)]}) == ["dns-pool"]
    # A real lock holds it permanently.
    assert explained({**stuck, "held": [held(str(app), 4, 8.8)]}) == ["own-lock"]


def test_remedies_are_announced_only_where_they_exist(tmp_path):
    app = tmp_path / "app.py"
    app.write_text("import requests\n\ndef fetch(url):\n    requests.get(url)\n")
    stuck = {"problem": "nothing more came within 9 s", "held": [held(str(app), 4, 8.8)]}
    facts = {"python": "3.11.0", "implementation": "cpython", "packages": {}, "pyopenssl_injected": False}
    more = {"truststore_injected": False, "gevent": "26.9.0", "openssl": "", "roots": [str(app)]}
    lock, unpatched = (
        told(diagnose(ASK, observation(stuck, **facts, **more, patched=patched)))
        for patched in (PATCHED, {})
    )
    assert "cause own-lock" in lock
    assert "--fix" not in lock
    assert "cause not-patched" in unpatched
    assert "the same command with --fix measures the remedies" in unpatched


def told(found: Diagnosis) -> str:
    """Return the text output."""
    console = Console(record=True, width=200, file=StringIO())
    show(ASK, found, console, fixed=False, profile=False)
    return console.export_text()


def once(requests: int, delay: float, wall: float) -> dict[str, Any]:
    """Return a round."""
    plain = {"cpu": 0.0, "ready": 0.0, "done": requests, "errors": 0, "kinds": {}, "first": []}
    return {"requests": requests, "delay": delay, "wall": wall, "run": f"r{delay}", **plain}


def test_computing_is_named_where_a_busy_machine_makes_another_line_wait(tmp_path):
    """The host of a virtual machine takes time that no account of a thread shows, at any line."""
    app = tmp_path / "app.py"
    app.write_text("def fetch(url):\n    load(url)\n    digest()\n")
    rounds = [once(1, 0.0, 0.3), once(10, 0.0, 2.2), once(10, 0.2, 2.3)]
    computes = {**held(str(app), 3, 1.8), "cpu": 1.7}
    computes["stack"] = [[str(app), 3, "digest"]]
    stolen = held("/py/lib/python3.11/site-packages/requests/models.py", 301, 0.9)
    stolen["stack"].append([str(app), 2, "fetch"])
    counts = {run: {"requests": 10, "peak": 1, "levels": [0.0, 2.0]} for run in ("r0.0", "r0.2")}

    def cause(waits: dict[str, Any]) -> list[str]:
        found = observation({"rounds": rounds, "held": [computes, waits], "seconds": 2.6, "looked": 2.6})
        found.served.update(counts)
        return [each.code for each, _ in explain(Case(ASK, found, judge(ASK, found)))]

    assert cause(stolen) == ["cpu-bound"]
    assert cause({**stolen, "seconds": 2.0}) == ["blocking-call"]


def test_a_line_of_gevent_that_cannot_wait_is_not_the_blocking_call(tmp_path):
    """Such a line seems to wait where the host of a virtual machine has the CPU."""
    app = tmp_path / "app.py"
    app.write_text("def fetch(url):\n    with LOCK:\n        load(url)\n")
    rounds = [once(1, 0.0, 0.1), once(10, 0.0, 1.0), once(10, 0.2, 3.0)]
    queue = [["/py/lib/python3.11/site-packages/gevent/thread.py", 90, "acquire"], [str(app), 2, "fetch"]]
    parked = {"stack": queue, "seconds": 20.0, "during": 2.5, "most": 9}
    stolen = held("/py/lib/python3.11/site-packages/gevent/ssl.py", 437, 1.9)
    stolen["stack"].append([str(app), 3, "fetch"])
    counts = {run: {"requests": 10, "peak": 1, "levels": [0.0, 2.0]} for run in ("r0.0", "r0.2")}

    def cause(**facts: Any) -> list[str]:
        result = {"rounds": rounds, "held": [stolen], "parked": [parked], "seconds": 4.1, "looked": 4.1}
        found = observation(result, **facts)
        found.served.update(counts)
        return [each.code for each, _ in explain(Case(ASK, found, judge(ASK, found)))]

    assert cause() == ["own-lock"]
    assert cause(patched={**PATCHED, "socket": False})[0] != "own-lock"


def test_computing_is_the_cause_where_no_request_came_back_for_it(tmp_path):
    app = tmp_path / "app.py"
    app.write_text("def fetch(url):\n    compute()\n")
    busy = {**held(str(app), 2, 48.7), "cpu": 48.7}
    starved = {"rounds": [], "held": [busy], "problem": "nothing more came within 49 s", "seconds": 49.2}
    assert explained(starved) == ["cpu-bound"]
    assert explained({**starved, "held": [{**busy, "cpu": 0.0}]}) != ["cpu-bound"]


def test_sockets_that_python_2_refuses_to_mix_are_named():
    text = "do_handshake_on_connect should not be specified for non-blocking sockets"
    failed = {**once(10, 0.2, 0.1), "done": 0, "errors": 10}
    failed["first"] = [{"class": "ValueError", "text": text, "stack": []}]
    unpatched = {**PATCHED, "socket": False}
    assert explained({"rounds": [failed]}, patched=unpatched) == ["sockets-unpatched"]
    assert explained({"rounds": [failed]}) != ["sockets-unpatched"]


def cause_of(lines: list[Any], served: dict[str, Any], wall: float, name: str = "") -> Any:
    """Return the cause where nine of ten greenlets waited at ``lines``, in a fetch called ``name``."""
    parked = {"stack": lines, "most": 9, "seconds": 9.0, "during": 9.0}
    rounds = [once(10, 0.0, 0.1), once(10, 0.2, wall)]
    found = observation({"rounds": rounds, "parked": [parked], "seconds": 4.1, "looked": 4.1, "name": name})
    found.served.update(dict.fromkeys(("r0.0", "r0.2"), served))
    [(cause, _)] = explain(Case(ASK, found, judge(ASK, found)))
    return cause


def test_a_real_lock_is_named_only_where_it_stops_the_process(tmp_path):
    app = tmp_path / "app.py"
    app.write_text("def fetch(url):\n    with LOCK:\n        load(url)\n")
    queue = [["/py/lib/python3.11/site-packages/gevent/thread.py", 90, "acquire"], [str(app), 2, "fetch"]]
    one_by_one = {"requests": 10, "peak": 1, "levels": [0.0, 2.0]}
    cause = cause_of(queue, one_by_one, 2.1)
    assert (cause.code, "real lock" in cause.explanation) == ("own-lock", False)
    stopped = {"rounds": [], "held": [held(str(app), 2, 48.7)], "problem": "nothing more came within 49 s"}
    for thread, code in ((True, "own-lock"), (False, "threads-unpatched")):
        found = observation({**stopped, "seconds": 49.2}, patched={**PATCHED, "thread": thread})
        [(cause, remedies)] = explain(Case(ASK, found, judge(ASK, found)))
        assert (cause.code, "real lock" in cause.explanation) == (code, True)
        assert bool(remedies) is not thread


def test_how_many_a_semaphore_lets_through(tmp_path):
    app = tmp_path / "app.py"
    app.write_text("def fetch(url):\n    with TWO:\n        load(url)\n")
    queue = [["/py/lib/python3.11/site-packages/gevent/thread.py", 90, "acquire"], [str(app), 2, "fetch"]]
    two = {"requests": 10, "peak": 2, "levels": [0.0, 0.0, 1.0]}
    assert "lets 2 of them through at once" in cause_of(queue, two, 1.1).explanation
    # Only for a moment there were two.
    one = {"requests": 10, "peak": 2, "levels": [0.0, 1.9, 0.1]}
    assert "one through after the other" in cause_of(queue, one, 2.1).explanation


def test_a_pool_of_threads_is_not_called_a_lock():
    one_by_one = {"requests": 10, "peak": 1, "levels": [0.0, 2.0]}
    cause = cause_of([], one_by_one, 2.1, "requests.get in gevent.threadpool.ThreadPool")
    assert (cause.code, cause.summary) == (
        "own-lock",
        "the requests wait for each other in a pool of threads",
    )


@pytest.mark.parametrize(("peak", "through"), [(10, False), (5, True)])
def test_a_pool_lets_some_through_only_where_the_server_saw_some(peak, through):
    counts = {"requests": 20, "peak": peak, "levels": [0.0, 0.0, 0.0, 0.0, 0.0, 0.4]}
    cause = cause_of([], counts, 0.9)
    assert (cause.code, "lets only some" in cause.summary) == ("small-pool", through)


def test_no_sentence_ends_in_an_empty_place():
    # What runs in threads of a pool has no line of the user's, neither where it waits nor where it is made.
    parked = {"stack": [], "most": 9, "seconds": 9.0, "during": 9.0}
    for wall, few, told in ((0.5, 0.0, "waited at once"), (2.1, 2.0, "waited for each other")):
        rounds = [once(10, 0.0, 0.1), once(10, 0.2, wall)]
        found = observation({"rounds": rounds, "parked": [parked], "seconds": 4.1, "looked": 4.1})
        counts = {"requests": 10, "peak": 5, "levels": [0.0, few, 0.0, 0.0, 0.0, 0.4]}
        found.served.update({run: counts for run in ("r0.0", "r0.2")})
        said = [
            line for cause, _ in explain(Case(ASK, found, judge(ASK, found))) for line in cause.evidence
        ]
        assert any(told in line for line in said), said
        assert not [line for line in said if line.rstrip().endswith((" at", " by", " of", "waiting"))]


def test_made_code_is_at_the_line_that_makes_it_and_never_at_that_of_its_caller(tmp_path):
    app = tmp_path / "app.py"
    stack = [
        ["<generated code string>", 4, "hook"],
        ["/py/lib/site-packages/requests/hooks.py", 45, "call"],
    ]
    ask = Case(ASK, observation({}, own_files=[str(app)]), judge(ASK, observation({"rounds": []})))
    for text, place in (
        ("import requests\nexec(HOOK)\n", f"{app}:2"),
        ("exec(HOOK)\nexec(OTHER)\n", "generated code string"),
        ("import requests\n", "/py/lib/site-packages/requests/hooks.py:45"),
    ):
        app.write_text(text)
        assert ask.where(ask.own_frame(stack)) == place


def test_what_waits_in_gevent_is_at_the_package_that_calls_it():
    ask = Case(ASK, observation({}), judge(ASK, observation({"rounds": []})))
    stack = [
        ["/py/site-packages/gevent/hub.py", 166, "sleep"],
        ["/py/site-packages/ratelimit/decorators.py", 113, "wrapper"],
        ["/py/site-packages/requests/sessions.py", 651, "request"],
    ]
    assert ask.where(ask.own_frame(stack)).endswith("ratelimit/decorators.py:113")
    assert ask.where(ask.own_frame(stack[:1])).endswith("gevent/hub.py:166")


def test_greenlets_that_wait_for_threads_which_all_make_requests_are_no_small_pool():
    parked = {
        "stack": [["/py/site-packages/gevent/event.py", 3, "get"]],
        "most": 10,
        "seconds": 9.0,
        "during": 9.0,
    }
    rounds = [once(10, 0.0, 0.1), once(10, 0.2, 0.5)]
    for peak, codes in ((10, []), (4, ["small-pool"])):
        found = observation({"rounds": rounds, "parked": [parked]})
        counts = {"requests": 10, "peak": peak, "levels": [0.0] * peak + [0.2]}
        found.served.update({run: counts for run in ("r0.0", "r0.2")})
        assert [cause.code for cause, _ in explain(Case(ASK, found, judge(ASK, found)))] == codes


def test_remedy_that_could_not_be_tried_is_not_said_to_have_been():
    untried = Remedy(
        "patch-before-everything", "patch first", None, "error", "patch_all()", "there", "not measured: x"
    )
    failed = replace(untried, why="still serialized")
    for tried, told, row in (
        ([untried], "no remedy is known that could be tried", "known"),
        ([untried, failed], "no remedy that was tried helps", "tried"),
    ):
        rounds = [once(10, 0.0, 0.1), once(10, 0.2, 2.1)]
        found = diagnose(ASK, observation({"rounds": rounds}, **OF_A_DIAGNOSIS))
        text = StringIO()
        show(ASK, replace(found, remedies=[], tried=tried), Console(file=text, width=200), True, False)
        assert told in text.getvalue()
        assert f"\n{row} " in text.getvalue()


SLEEPS = [["/py/lib/python3.11/site-packages/gevent/hub.py", 166, "sleep"], ["/proj/app.py", 4, "get"]]
READS = [["/py/lib/python3.11/ssl.py", 1, "read"], ["/proj/app.py", 3, "get"]]
WAITS = [["/proj/app.py", 5, "get"]]
ROUND: dict[str, Any] = {"run": "1-0", "requests": 1, "first": []}


def never_back(answered: int, going: int, stack: list[Any], rounds: list[Any]) -> Case:
    """Return the case of a client that does not come back, which the server answered so often."""
    parked = {"stack": stack, "seconds": 8.0, "during": 8.0, "most": 10 if rounds else 1}
    result = {"problem": "nothing more came within 9 s", "parked": [parked], "rounds": rounds}
    spans = [[0, 1.0, 1.1]] * answered + [[0, 1.0, None]] * going
    found = replace(
        observation(result), served={f"1-{len(rounds)}": {"requests": answered + going, "spans": spans}}
    )
    ask = replace(ASK, target=Target(command=("python", "app.py")))
    return Case(ask, found, Judgement("error", 0.0, 0.2, 0.0, 0.0, 0.0, problem=result["problem"]))


@pytest.mark.parametrize(
    ("answered", "going", "stack", "rounds", "said"),
    [
        (
            1,
            0,
            SLEEPS,
            [],
            "answered a request of its client, which did not come back: it sleeps at app.py:4",
        ),
        (9, 0, SLEEPS, [], "answered 9 requests of its client"),
        (99, 1, READS, [], "answered 99 requests of its client, which did not come back: it asks again at"),
        (10, 0, SLEEPS, [ROUND], "answered 10 requests"),
        (9, 1, SLEEPS, [ROUND], ""),  # one of them has a lock, perhaps, for which the others poll
        (0, 1, SLEEPS, [], ""),
        (1, 0, READS, [], ""),
        (1, 0, WAITS, [], ""),
    ],
)
def test_client_that_was_answered_and_asks_again_or_sleeps_has_no_verdict(
    answered, going, stack, rounds, said
):
    case = never_back(answered, going, stack, rounds)
    for code in ("own-lock", "unexplained"):
        why = no_verdict(case, code)
        assert bool(why) == bool(said)
        assert said in why
        assert "--url URL" in why or not said
    assert no_verdict(case, "dns-pool") == ""


def test_a_greenlet_that_sleeps_alone_waits_for_no_other():
    alone = never_back(0, 0, SLEEPS, [])
    assert explain(alone)[0][0].code == "unexplained"
    several = explain(never_back(0, 0, SLEEPS, [ROUND]))[0][0]
    assert (several.code, several.evidence[0]) == (
        "own-lock",
        "10 greenlets waited for each other at app.py:4",
    )
    lock = explain(never_back(0, 0, WAITS, []))[0][0]
    assert (lock.code, lock.evidence[0]) == ("own-lock", "one greenlet waited at app.py:5")


@pytest.mark.parametrize(("requests", "again"), [(10, False), (30, True)])
def test_sleep_between_the_requests_of_a_fetch_may_be_for_the_answer(requests, again):
    parked = {"stack": SLEEPS, "seconds": 80.0, "during": 8.0, "most": 10}
    served = Served(requests, 10, 3.0, 10, 0.0)
    judgement = Judgement("concurrent", 2.0, 0.2, 1.0, 0.0, 0.0, limit="rate-limit", served=served)
    cause = explain(Case(ASK, observation({"parked": [parked]}), judgement))[0][0]
    assert cause.code == "rate-limit"
    assert ("makes several requests" in cause.summary, "an answer that" in cause.explanation) == (
        again,
        again,
    )
