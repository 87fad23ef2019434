"""Which call of a client fits, of the ways in which the probe can call it."""

from __future__ import annotations

import inspect
from types import FunctionType
from typing import Any

import pytest
import requests

from diagnostics.agent.https_agent import calling
from diagnostics.agent.https_agent.fetchers import Unusable

ADDED = {"timeout": 5.0, "verify": "ca.pem"}
WAYS = [calling.get, calling.request, calling.send]


class Sends(requests.Session):
    """Keeps what it is told to send with, and sends nothing."""

    sent: Any = None

    def send(self, request: Any, **kwargs: Any) -> Any:
        self.sent = kwargs
        return "response"


class Patient(Sends):
    def request(self, method: Any, url: Any, **kwargs: Any) -> Any:
        return super().request(method, url, timeout=1, **kwargs)


class Narrow(Sends):
    def request(self, method: Any, url: Any) -> Any:
        return super().request(method, url)


class Path(Sends):
    def get(self, path: Any) -> Any:  # type: ignore[override]
        return super().get(path, timeout=1)


class OnlyPrepared(requests.Session):
    sent: Any = None

    def send(self, request: Any) -> Any:  # type: ignore[override]
        self.sent = {"timeout": None}
        return "response"


class Wraps(Patient):
    def request(self, method: Any, url: Any, **kwargs: Any) -> Any:
        try:
            return super().request(method, url, **kwargs)
        except TypeError as error:
            raise Unusable("wrong") from error


class Locked(Sends):
    """Has a method that a call of another would pass by."""

    def request(self, method: Any, url: Any, signature: Any) -> Any:  # type: ignore[override]
        return super().request(method, url)


class LockedGet(Sends):
    def get(self, url: Any, signature: Any) -> Any:  # type: ignore[override]
        return super().get(url)


@pytest.mark.parametrize(
    ("kind", "timeout", "verify"),
    [
        (Sends, 5.0, "ca.pem"),
        (Patient, 1, "ca.pem"),
        (Narrow, None, True),
        (Path, 1, True),
        (OnlyPrepared, None, None),
        (Wraps, 1, "ca.pem"),
    ],
)
def test_what_does_not_fit_is_left_out(kind: Any, timeout: Any, verify: Any) -> None:
    client, call = kind(), calling.fitting(WAYS, ADDED)
    client.trust_env = False
    for _ in range(2):
        assert call(client, "https://localhost:1/") == "response"
        assert client.sent["timeout"] == timeout
        assert client.sent.get("verify") == verify


def test_what_has_fitted_is_called_from_then_on() -> None:
    called = []

    def get(client: Any, url: str, **keywords: Any) -> None:
        called.append(sorted(keywords))
        inspect.signature(lambda verify: None).bind(**keywords)

    call = calling.fitting([get], ADDED)
    call(None, "")
    call(None, "")
    assert called == [["timeout", "verify"], ["verify"], ["verify"]]


def test_error_of_the_program_itself_may_be_for_what_the_probe_has_added() -> None:
    seen = []

    def get(client: Any, url: str, **keywords: Any) -> str:
        seen.append(keywords)
        return checked(**keywords)

    assert calling.fitting([get], ADDED)(None, "") == "response"
    assert seen == [ADDED, {}]


def checked(timeout: Any = None, verify: Any = None) -> str:
    """Raise an error of its own where a timeout is given."""
    if timeout is not None:
        raise ValueError("it is not yours")
    return "response"


@pytest.mark.parametrize("kind", [Locked, LockedGet])
def test_method_of_the_program_is_not_passed_by(kind: Any) -> None:
    client = kind()
    with pytest.raises(TypeError) as caught:
        calling.fitting(WAYS, ADDED)(client, "https://localhost:1/")
    assert calling.is_of_call(caught.value)
    assert client.sent is None
    code = vars(kind)["get" if "get" in vars(kind) else "request"].__code__
    assert calling.method(caught.value) == (__file__, code.co_firstlineno, code.co_name)


def test_place_of_a_method_that_another_one_calls() -> None:
    client = Narrow()
    with pytest.raises(TypeError) as caught:
        calling.fitting([lambda client, url: client.get(url)], {})(client, "https://localhost:1/")
    spot = calling.method(caught.value)
    assert spot == (__file__, Narrow.request.__code__.co_firstlineno, "request")


def test_method_of_a_library_has_no_place_in_the_program() -> None:
    with pytest.raises(TypeError) as caught:
        calling.fitting([lambda client, url: client.get()], {})(Sends(), "")
    assert calling.is_of_call(caught.value)
    assert calling.method(caught.value) is None


@pytest.mark.parametrize(
    "text",
    [
        "wrap_socket() argument 'sock' must be a socket",
        "__init__() got an unexpected keyword argument 'strict'",
    ],
)
def test_error_of_what_is_beneath_the_client_is_not_of_the_call(text: str) -> None:
    """HTTPS does not work where the versions of libraries do not fit, for one."""

    def raised() -> None:
        raise TypeError(told)  # noqa: F821

    names = {"__name__": "urllib3.connectionpool", "TypeError": TypeError, "told": text}
    make = FunctionType(raised.__code__, names)
    called = []

    def get(client: Any, url: str, **keywords: Any) -> None:
        called.append(keywords)
        make()

    with pytest.raises(TypeError) as caught:
        calling.fitting([get], ADDED)(requests.Session(), "")
    assert not calling.is_of_call(caught.value)
    assert called == [ADDED]


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("get() takes exactly 2 arguments (3 given)", False),
        ("get() takes 2 positional arguments but 3 were given", False),
        ("get() takes from 1 to 2 positional arguments but 3 were given", False),
        ("get() takes no keyword arguments", False),
        ("get() takes no arguments (1 given)", False),
        ("get() missing 1 required positional argument: 'key'", False),
        ("get() got some positional-only arguments passed as keyword arguments: 'url'", False),
        ("missing a required argument: 'key'", False),
        ("too many positional arguments", False),
        ("get expected at most 2 arguments, got 3", False),
        ("unsupported operand type(s) for +: 'int' and 'str'", True),
    ],
)
def test_what_python_says_of_a_call_that_does_not_fit(text: str, fits: bool) -> None:
    def get(client: Any, url: str) -> None:
        raise TypeError(text)

    with pytest.raises(TypeError) as caught:
        calling.fitting([get], {})(None, "")
    assert calling.is_of_call(caught.value) != fits
