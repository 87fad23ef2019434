"""Clients that are like the application's, for another host, and errors that the probe provokes."""

from __future__ import annotations

import gc
import sys
import threading
from pathlib import Path
from typing import Any, ClassVar

import pytest
import requests
import urllib3
from gevent.lock import RLock, Semaphore
from requests.adapters import HTTPAdapter

from diagnostics.agent.https_agent import like, sharing
from diagnostics.evidence import Case
from diagnostics.model import Observation, Question, Target
from diagnostics.provoked import no_verdict
from diagnostics.verdict import Judgement

HOST = "https://api.example:9443"
OPTIONS = {
    "verify": "ca.pem",
    "limit": 5.0,
    "url": "https://localhost:1/{run}/{delay}/{index}",
    "own": True,
}
URL = "https://localhost:1/run/0.2/3"


class Reached(Exception):
    """Raised where a connection would be made; has the frame."""

    def __init__(self, frame: Any) -> None:
        super().__init__()
        self.frame = frame


class Ends(HTTPAdapter):
    """Ends at the connection."""

    def send(self, *args: Any, **kwargs: Any) -> Any:
        raise Reached(sys._getframe())


class WithBase(requests.Session):
    base = ""
    token = ""

    def request(self, method: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
        return super().request(method, self.base + path, *args, **kwargs)


def reached(session: Any, url: str) -> like.Seen:
    """Return what is seen where ``session`` gets ``url``."""
    session.mount(HOST, Ends())
    with pytest.raises(Reached) as caught:
        session.get(url)
    return like.Seen(caught.value.frame)


def client(**levels: Any) -> like.Seen:
    seen = like.Seen(None)
    vars(seen).update(levels)
    return seen


def test_adapter_of_the_host_serves_the_probe_and_the_session_stays_as_it_is() -> None:
    session = requests.Session()
    seen = reached(session, f"{HOST}/x")
    mounted, before = session.get_adapter(HOST), list(session.adapters)
    give, shown = like.session(seen, OPTIONS)
    assert seen.session is session
    assert isinstance(give().get_adapter(URL), Ends)
    assert shown(URL) == URL
    assert list(session.adapters) == before
    assert isinstance(mounted, HTTPAdapter)
    assert not mounted.poolmanager.pools.keys()


def sent(seen: like.Seen, url: str = URL) -> str:
    """Return the URL that a session like the one that is ``seen`` sends to for the probe."""
    give, shown = like.session(seen, OPTIONS)
    with pytest.raises(Reached) as caught:
        give().get(shown(url))
    return str(caught.value.frame.f_locals["args"][0].url)


@pytest.mark.parametrize(
    ("base", "path", "expected"),
    [(HOST, "/x", "/run/0.2/3"), (f"{HOST}/v1/", "x", "run/0.2/3"), ("", f"{HOST}/x", URL)],
)
def test_base_url_is_that_of_the_probe(base: str, path: str, expected: str) -> None:
    session = WithBase()
    session.base = base
    seen = reached(session, path)
    give, shown = like.session(seen, OPTIONS)
    made = give()
    assert shown(URL) == expected
    assert sent(seen) == URL
    assert session.base == base
    session.token = "of a login"
    assert made.token == "of a login"


class SendsInItsOwnWay(requests.Session):
    def request(self, method: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
        made = self.prepare_request(requests.Request(method, HOST + path))
        return self.send(made, 5) if path == "/by-position" else self.send(prepared=made, patience=5)

    def send(self, prepared: Any, patience: Any) -> Any:  # type: ignore[override]
        return super().send(prepared, timeout=patience)


@pytest.mark.parametrize("path", ["/by-position", "/by-name"])
def test_session_that_sends_with_arguments_of_its_own(path: str) -> None:
    session = SendsInItsOwnWay()
    seen = reached(session, path)
    give, shown = like.session(seen, OPTIONS)
    with pytest.raises(Reached) as caught:
        give().request("GET", shown(URL))
    assert str(caught.value.frame.f_locals["args"][0].url) == URL


class WithBaseOfAModule(requests.Session):
    def request(self, method: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
        kwargs["params"] = {"key": 1}
        return super().request(method, f"{HOST}/v1/{path}", *args, **kwargs)


class OfNumbers(WithBaseOfAModule):
    def get(self, number: Any, **kwargs: Any) -> Any:
        return super().get(f"items-{number}" if isinstance(number, int) else number, **kwargs)


@pytest.mark.parametrize(("kind", "asked"), [(WithBaseOfAModule, "x"), (OfNumbers, 3)])
def test_base_url_is_that_of_the_probe_wherever_it_comes_from(kind: Any, asked: Any) -> None:
    assert sent(reached(kind(), asked)) == f"{URL}?key=1"


class WithBaseInVerbs(requests.Session):
    base = HOST

    def get(self, path: Any, **kwargs: Any) -> Any:
        return super().get(self.base + path, **kwargs)

    def post(self, path: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        return super().post(self.base + path, **kwargs)

    def item(self, path: Any) -> Any:
        return self.post("/items" + path)


def test_base_url_that_another_verb_puts_in_front_is_that_of_the_probe() -> None:
    session = WithBaseInVerbs()
    session.base = HOST  # of the object, as a program sets it
    session.mount(HOST, Ends())
    with pytest.raises(Reached) as caught:
        session.item("/x")
    assert sent(like.Seen(caught.value.frame)) == URL


def test_session_in_which_another_one_logs_in_is_the_client() -> None:
    inner = requests.Session()
    inner.mount(HOST, Ends())

    def auth(request: Any) -> Any:
        inner.get(f"{HOST}/token")

    session = requests.Session()
    session.auth = auth
    assert reached(session, f"{HOST}/x").session is session


class Counted(requests.Session):
    """Keeps what is seen from inside of its methods."""

    found: list[like.Seen]

    def item(self) -> None:
        self.found.append(like.Seen(sys._getframe()))

    def send(self, *args: Any, **kwargs: Any) -> Any:
        self.found.append(like.Seen(sys._getframe()))
        return requests.Response()

    def post(self, *args: Any, **kwargs: Any) -> Any:
        self.found.append(like.Seen(sys._getframe()))
        return requests.Response()


def get(session: Counted) -> None:
    session.found.append(like.Seen(sys._getframe()))


@pytest.mark.parametrize("call", [Counted.item, Counted.post, get])
def test_what_is_called_with_a_client_is_no_request(call: Any) -> None:
    session = Counted()
    session.found = []
    call(session)
    assert [each.session for each in session.found] == [None]


def test_method_of_a_library_that_the_user_has_instead_is_part_of_a_request() -> None:
    session = Counted()
    session.found = []
    session.send(requests.Request("GET", URL).prepare())
    assert [each.session for each in session.found] == [session]


KEPT: list[Any] = []
KNOWN = requests.Session()


def seen(session: Any, connects: bool = True, **levels: Any) -> sharing.Sighting:
    return sharing.Sighting({"session": session, **levels}, sys._getframe(), connects)


def verdict(*found: sharing.Sighting) -> tuple[int, bool, str]:
    known = sharing.judged(sharing.alike(list(found)))
    return known.many, known.own, known.evidence


def test_two_greenlets_at_a_connection_with_clients_of_their_own_have_one_each() -> None:
    first, second = (seen(requests.Session(), pool=object()) for _ in range(2))
    assert verdict(first, second) == (sharing.MANY, True, sharing.OWN)
    second.connects = False  # it may wait for what they share
    assert verdict(first, second) == (1, False, sharing.UNCLEAR)


def test_greenlets_that_wait_for_one_pool_lock_or_session_share_it() -> None:
    pool, lock = object(), RLock()
    sessions = [requests.Session() for _ in range(4)]
    assert verdict(*(seen(each, pool=pool) for each in sessions)) == (1, False, sharing.SHARED)
    waiting = [seen(sessions[0], pool=pool), *(seen(sessions[0], False) for _ in range(3))]
    assert verdict(*waiting) == (1, False, sharing.SHARED)
    assert verdict(*waiting[:3]) == (1, False, sharing.UNCLEAR)  # they may report something
    for each in sessions:
        each.lock = lock  # type: ignore[attr-defined]
    lock.acquire()
    waiting = [seen(each, each is sessions[0], pool=object()) for each in sessions]
    assert verdict(*waiting) == (1, False, sharing.SHARED)


@pytest.mark.parametrize("lock", [threading.Lock(), RLock(), threading.BoundedSemaphore(20), Semaphore(0)])
def test_lock_that_nobody_waits_for_or_that_lets_several_through_is_none_of_the_requests(
    lock: Any,
) -> None:
    sessions = [requests.Session() for _ in range(4)]
    for each in sessions:
        each.stats_lock = lock  # type: ignore[attr-defined]
    found = [seen(each, pool=object()) for each in sessions]
    assert verdict(*found) == (sharing.MANY, True, sharing.OWN)


def test_greenlets_that_take_turns_at_several_clients_have_as_many() -> None:
    sessions = [requests.Session() for _ in range(5)]
    assert verdict(*(seen(each) for each in sessions * 2)) == (5, True, sharing.SHARED)
    # One of a job that has a client for itself says nothing of the others.
    assert verdict(*(seen(each) for each in [sessions[0], *[sessions[1]] * 4])) == (
        1,
        False,
        sharing.SHARED,
    )
    assert verdict(*(seen(each) for each in [sessions[0], sessions[1], sessions[1], sessions[2]])) == (
        1,
        False,
        sharing.UNCLEAR,
    )


def of_another_function(session: Any, connects: bool = True, **levels: Any) -> sharing.Sighting:
    found = sharing.Sighting({"session": session, **levels}, sys._getframe(), connects)
    found.code = of_another_function.__code__
    return found


def test_client_of_another_function_is_no_evidence() -> None:
    first, second = seen(requests.Session()), of_another_function(requests.Session())
    assert verdict(first, second) == (1, False, sharing.UNCLEAR)


def test_first_that_connects_is_not_measured_where_most_do_something_else() -> None:
    heartbeat, shared = seen(KNOWN, pool=object()), requests.Session()
    own = [of_another_function(requests.Session(), pool=object()) for _ in range(4)]
    assert verdict(heartbeat, *own) == (sharing.MANY, True, sharing.OWN)
    narrow = [of_another_function(shared, number == 2, pool=shared) for number in range(4)]
    assert verdict(heartbeat, *narrow) == (1, False, sharing.SHARED)
    assert sharing.alike([heartbeat, *narrow])[0] is narrow[2]
    # One that is made for each request is measured as such, and none is that is made for a heartbeat.
    plain = sharing.Sighting({}, sys._getframe(), True)
    assert verdict(plain, *narrow) == (1, False, sharing.SHARED)
    assert sharing.alike([plain, *narrow])[0] is narrow[2]


def test_client_that_one_greenlet_was_seen_with_is_not_said_to_be_shared() -> None:
    assert verdict(seen(KNOWN)) == (1, False, sharing.UNCLEAR)  # a module may have it for a heartbeat


def test_lock_of_one_session_is_new_and_a_shared_one_is_not() -> None:
    session = requests.Session()
    session.own = RLock()  # type: ignore[attr-defined]
    session.shared = RLock()  # type: ignore[attr-defined]
    KEPT.append(session.shared)  # type: ignore[attr-defined]
    try:
        assert list(sharing.locks_of(session)()) == ["own"]
        assert sharing.locks_of(session, new=False)() == {}
    finally:
        KEPT.clear()


def test_context_of_pyopenssl_is_set_up_for_the_first_connection_of_each_client() -> None:
    class Context:
        _used = True  # by the program

        def set(self, value: object) -> None:
            if self._used:
                raise ValueError("already been used")
            set_up.append(value)

    class PyOpenSSLContext:
        verify_mode = property(lambda self: 2, lambda self, value: self._ctx.set(value))

        def __init__(self) -> None:
            self._ctx = Context()

        def load_verify_locations(self, *args: Any) -> None:
            self._ctx.set(args)

        def wrap_socket(self, sock: object) -> None:
            self._ctx._used = True

    def connect(context: Any) -> None:
        context.verify_mode = 2
        context.load_verify_locations("ca.pem")
        context.wrap_socket(None)

    set_up: list[Any] = []
    context = PyOpenSSLContext()
    settings = {"ssl_context": context}
    seen = like.Seen(None)
    own = like._Contexts(seen)
    first, second = own.of(settings)["ssl_context"], own.of(settings)["ssl_context"]
    connect(first)
    connect(second)
    assert set_up == [2, ("ca.pem",)] * 2
    for used in (first, context):
        with pytest.raises(ValueError, match="already been used"):
            connect(used)
    seen.one_context = True
    shared = like._Contexts(seen)
    assert shared.of(settings)["ssl_context"] is shared.of(settings)["ssl_context"]


def test_pool_is_like_that_of_the_host() -> None:
    pool = urllib3.HTTPSConnectionPool(
        "api.example", 9443, maxsize=1, block=True, assert_hostname="api.example"
    )
    give, shown = like.pool(client(pool=pool), OPTIONS)
    made = give()
    assert (made.host, made.port, made.block, made.pool.maxsize) == ("localhost", 1, True, 1)
    assert (made.ca_certs, made.assert_hostname) == ("ca.pem", None)
    assert made.pool is not pool.pool
    assert (pool.host, pool.port, pool.ca_certs, pool.num_requests) == ("api.example", 9443, None, 0)
    assert shown(URL) == "/run/0.2/3"


def test_manager_has_pools_of_its_own() -> None:
    manager = urllib3.PoolManager(num_pools=1, maxsize=2, block=True)
    pool = manager.connection_from_url(HOST)
    made = like.manager(client(manager=manager), OPTIONS)()
    other = made.connection_from_url(URL)
    assert (other.pool.maxsize, other.block, other.ca_certs) == (2, True, "ca.pem")
    assert manager.connection_from_url(HOST) is pool


def test_client_that_has_fetched_nothing_is_found_by_its_type_alone() -> None:
    class Lazy:
        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError(name)

    session = requests.Session()
    session.mount(HOST, Ends())
    found = like.idle([{"lazy": Lazy(), "api": session, "same": session, "kind": requests.Session}])
    assert [(each.session, each.url) for each in found] == [(session, HOST), (session, "https://")]
    assert like.idle([{"one": requests.Session(), "other": requests.Session()}]) == []
    assert like.idle([{"lazy": Lazy()}]) == []


def test_narrowest_and_widest_adapter_of_a_session_that_has_fetched_nothing_are_measured() -> None:
    session = requests.Session()
    assert [each.url for each in like.idle([{"api": session}])] == ["https://"]
    session.mount(HOST, Ends())
    session.mount("https://cdn.example/", HTTPAdapter(pool_maxsize=50, pool_block=True))
    session.mount("https://old.example/", HTTPAdapter(pool_maxsize=1, pool_block=True))
    found = [each.url for each in like.idle([{"api": session}])]
    assert found[0] == "https://old.example/"
    assert found[1] in {"https://", "https://cdn.example/"}


OWN = [("/proj/app.py", 7, "check")]
SSL = [("/usr/lib/python3.11/ssl.py", 7, "do_handshake")]


@pytest.mark.parametrize(
    ("name", "text", "stack", "chain", "provoked"),
    [
        ("ValueError", "unexpected answer", OWN, [], True),
        ("AttributeError", "no attribute", [], [], True),
        (
            "app.errors.BadAnswer",
            "no JSON",
            OWN,
            ["requests.JSONDecodeError", "json.JSONDecodeError"],
            True,
        ),
        ("requests.InvalidURL", "no host", OWN, [], True),
        ("requests.ProxyError", "403", SSL, ["urllib3.MaxRetryError", "OSError"], True),
        ("requests.SSLError", "Fingerprints did not match", SSL, [], True),
        ("requests.SSLError", "handshake failure", SSL, ["ssl.SSLError"], False),
        ("app.errors.ApiError", "failed", OWN, ["requests.ConnectionError"], False),
        ("ConnectionError", "reset", OWN, [], False),
        ("RuntimeError", "cannot schedule new futures after interpreter shutdown", SSL, [], True),
        ("RecursionError", "depth", OWN, [], False),
        ("AttributeError", "no attribute", SSL, [], False),
        ("gevent.LoopExit", "blocks forever", OWN, [], False),
        ("requests.ConnectionError", "no name", SSL, ["urllib3.MaxRetryError", "socket.gaierror"], True),
        ("requests.ConnectionError", "[Errno 111] Connection refused", SSL, [], True),
        ("requests.ReadTimeout", "timed out", SSL, ["TimeoutError"], False),
    ],
)
def test_error_that_the_probe_provokes_is_no_verdict(
    name: str, text: str, stack: Any, chain: Any, provoked: bool
) -> None:
    error = {"class": name, "text": text, "stack": stack, "chain": chain}
    result = {"rounds": [{"first": [error]}], "parked": [], "held": []}
    question = Question(Target(command=("python", "app.py")))
    judgement = Judgement("error", 0.1, 0.2, 0.0, 0.0, 0.0, error=f"{name}: {text}")
    facts = {"patched": {}, "own_files": ["/proj/app.py"], "started": "/proj"}
    case = Case(question, Observation(result, {}, facts), judgement)
    assert bool(no_verdict(case, "unexplained")) == provoked
    assert no_verdict(case, "patched-too-late") == ""


@pytest.mark.parametrize(
    ("name", "stack", "chain", "provoked"),
    [
        ("SystemExit", OWN, ["requests.JSONDecodeError"], True),
        ("KeyboardInterrupt", OWN, [], True),
        ("gevent.timeout.Timeout", OWN, [], True),
        ("gevent.timeout.Timeout", [("/site-packages/gevent/hub.py", 7, "switch")], [], False),
        ("SystemExit", OWN, ["requests.SSLError", "ssl.SSLError"], False),
    ],
)
@pytest.mark.parametrize("target", [Target(command=("python", "app.py")), Target(app="app:fetch")])
def test_end_that_the_program_raises_is_no_verdict_unless_a_connection_led_to_it(
    target: Target, name: str, stack: Any, chain: Any, provoked: bool
) -> None:
    error = {"class": name, "text": "", "stack": stack, "chain": chain, "ends": True}
    result = {"rounds": [{"first": [error]}], "parked": [], "held": []}
    facts = {"patched": {}, "own_files": ["/proj/app.py"], "started": "/proj"}
    seen = Observation(result, {}, facts, {"1-0": {"requests": 1}})
    case = Case(Question(target), seen, Judgement("error", 0.1, 0.2, 0.0, 0.0, 0.0, error=name))
    assert bool(no_verdict(case, "unexplained")) == provoked


@pytest.mark.parametrize(("served", "known"), [({"1-0": {"requests": 1}}, False), ({}, True)])
def test_fetch_that_a_person_names_may_fail_with_its_answer_alone(served: Any, known: bool) -> None:
    error = {"class": "ValueError", "text": "unexpected", "stack": OWN, "chain": []}
    result = {"rounds": [{"first": [error]}], "parked": [], "held": []}
    facts = {"patched": {}, "own_files": ["/proj/app.py"], "started": "/proj"}
    seen = Observation(result, {}, facts, served)
    judgement = Judgement("error", 0.1, 0.2, 0.0, 0.0, 0.0, error="ValueError: unexpected")
    case = Case(Question(Target(app="app:fetch")), seen, judgement)
    assert (no_verdict(case, "unexplained") == "") == known


@pytest.mark.parametrize("url", ["", "https://localhost:1/"])
@pytest.mark.parametrize(
    ("target", "called", "stack", "advised"),
    [
        (Target(command=("python", "app.py")), False, SSL, True),  # no call fits
        (Target(app="app:client.get"), False, SSL, True),
        (Target(command=("python", "app.py")), True, OWN, True),  # what the program does with the answer
        (Target(command=("python", "app.py")), True, SSL, False),
        (Target(app="app:fetch"), True, OWN, False),
    ],
)
def test_error_of_how_the_probe_calls_is_no_verdict_whatever_the_url(
    url: str, target: Target, called: bool, stack: Any, advised: bool
) -> None:
    error = {"class": "TypeError", "text": "it failed", "stack": stack, "chain": [], "called": called}
    result = {"rounds": [{"first": [error]}], "parked": [], "held": []}
    judgement = Judgement("error", 0.1, 0.2, 0.0, 0.0, 0.0, error="TypeError: it failed")
    facts = {"patched": {}, "own_files": ["/proj/app.py"], "started": "/proj"}
    case = Case(Question(target, url=url), Observation(result, {}, facts), judgement)
    why = no_verdict(case, "unexplained")
    assert ("--app" in why, "--url" in why) == (advised, False)


@pytest.mark.parametrize(
    ("refused", "served", "known"),
    [
        (["NO_SHARED_CIPHER"], {}, False),
        (["UNSUPPORTED_PROTOCOL", "TLSV1_ALERT_UNKNOWN_CA"], {"1-0": {"requests": 0}}, False),
        (["NO_SHARED_CIPHER"], {"1-0": {"requests": 1}}, True),  # another connection of it came through
        (["TLSV1_ALERT_UNKNOWN_CA"], {}, True),
        ([], {}, True),
    ],
)
def test_handshake_that_no_client_of_the_kind_completes_is_no_verdict(
    refused: list[str], served: Any, known: bool
) -> None:
    error = {"class": "ssl.SSLError", "text": "EOF", "stack": SSL, "chain": []}
    result = {"rounds": [{"first": [error]}], "parked": [], "held": []}
    seen = Observation(result, {}, {"patched": {}}, served, refused)
    case = Case(Question(Target(app="app:fetch")), seen, Judgement("error", 0.1, 0.2, 0.0, 0.0, 0.0))
    assert (no_verdict(case, "unexplained") == "") == known


@pytest.mark.parametrize(("name", "known"), [("requests.ReadTimeout", False), ("RecursionError", True)])
def test_what_times_out_at_the_delay_alone_is_no_verdict(name: str, known: bool) -> None:
    error = {"class": name, "text": "it failed", "stack": SSL, "chain": []}
    result = {"rounds": [{"first": [error]}], "parked": [], "held": [], "impatient": 0.2}
    seen = Observation(result, {}, {"patched": {}}, {"1-0": {"requests": 1}})
    case = Case(Question(Target(app="app:fetch")), seen, Judgement("error", 0.1, 0.2, 0.0, 0.0, 0.0))
    assert (no_verdict(case, "unexplained") == "") == known
    assert no_verdict(case, "own-lock") == ""


def test_place_of_a_pool_is_where_it_was_made_and_of_several_none_is_guessed(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(
        "payments = HTTPAdapter(pool_block=True)\n"
        "images = HTTPAdapter(\n    pool_maxsize=1,\n    pool_block=True,\n)\n"
        "other = HTTPAdapter(**OPTIONS)\n"
    )
    pattern = r"\bpool_block\s*=\s*True"

    def lines(*made: int) -> list[int]:
        result = {"rounds": [], "parked": [], "held": [], "made": [(str(app), each, "") for each in made]}
        facts = {"patched": {}, "own_files": [str(app)], "started": str(tmp_path)}
        judgement = Judgement("serialized", 0.1, 0.2, 0.0, 0.0, 0.0)
        question = Question(Target(command=("python", "app.py")))
        case = Case(question, Observation(result, {}, facts), judgement)
        return [each[1] for each in case.pool_lines([pattern])]

    assert (lines(1), lines(2), lines(6)) == ([1], [4], [6])
    assert lines() == [1, 4]


class Slotted(requests.Session):
    __slots__ = ("__secret", "lock", "token")

    def __init__(self) -> None:
        super().__init__()
        self.token, self.lock, self.__secret = "first", RLock(), "s"

    def said(self) -> tuple[str, str]:
        return self.token, self.__secret


class Sealed(Slotted):
    """One that permits no subclass."""

    __slots__ = ("more",)

    def __init_subclass__(cls) -> None:
        raise TypeError("sealed")


@pytest.mark.parametrize("kind", [Slotted, Sealed])
def test_copy_of_a_session_has_what_is_in_its_slots(kind: type[Slotted]) -> None:
    own = kind()
    made = like.substitute(own, {"token": "other", "verify": "ca.pem"})
    assert made is not own
    assert (made.said(), made.verify, made.lock is own.lock) == (("other", "s"), "ca.pem", True)
    assert (own.said(), own.verify) == (("first", "s"), True)
    assert not hasattr(made, "more")


def test_copy_of_a_session_shares_its_slots_as_they_change() -> None:
    own = Slotted()
    made = like.substitute(own, {"verify": "ca.pem"})
    own.token = "second"
    assert made.token == "second"
    made.token = "third"
    assert own.token == "third"


def test_lock_in_a_slot_is_new_in_each_copy() -> None:
    own = Slotted()
    locks = sharing.locks_of(own)()
    assert list(locks) == ["lock"]
    assert like.substitute(own, locks).lock is locks["lock"] is not own.lock


class Ending(Slotted):
    """One that is told of its end."""

    __slots__ = ()
    ended: ClassVar[list[int]] = []

    def __del__(self) -> None:
        self.ended.append(id(self))


class SealedEnding(Ending):
    __slots__ = ()

    def __init_subclass__(cls) -> None:
        raise TypeError("sealed")


class InSlots:
    """One without a dictionary."""

    __slots__ = ("token",)
    ended: ClassVar[list[int]] = []

    def __init__(self) -> None:
        self.token = "first"

    def __del__(self) -> None:
        self.ended.append(id(self))


@pytest.mark.parametrize("kind", [Ending, SealedEnding, InSlots])
def test_end_of_a_copy_is_not_the_programs(kind: Any) -> None:
    own = kind()
    made = like.substitute(own, {"token": "other"})
    assert made is not own
    assert isinstance(made, kind)
    assert (made.token, own.token) == ("other", "first")
    kind.ended.clear()
    del made
    gc.collect()
    assert kind.ended == []
    number = id(own)
    del own
    gc.collect()
    assert kind.ended == [number]
