"""Recognize an error that the probe itself provokes: by its URL, its answer, or how it uses a client. Pure.

A session may allow some hosts only, put a base URL in front of what it is asked for, or check what is in
the response. What it then raises says nothing about HTTPS.
"""

from __future__ import annotations

import re

from diagnostics.agent.https_agent.probe import timed_out
from diagnostics.evidence import Case
from diagnostics.source_places import ending
from diagnostics.waits import asleep

__all__ = ["is_provoked", "no_verdict"]

_FETCH = "Name a fetch: --app MODULE:CALLABLE"
_ADVICE = "Name a URL that it accepts (--url URL), or a fetch (--app MODULE:CALLABLE)"
_TAKES = "Name a URL whose answer it takes: --url URL"
_AGAIN = 3  # requests of one fetch, from which on it is said to ask again and again
# Of requests and urllib3: the URL, the proxy or the content of the response is refused.
_REFUSED = {
    "ContentDecodingError",
    "HTTPError",
    "HostChangedError",
    "InvalidHeader",
    "InvalidJSONError",
    "InvalidProxyURL",
    "InvalidSchema",
    "InvalidURL",
    "JSONDecodeError",
    "LocationParseError",
    "LocationValueError",
    "MissingSchema",
    "ProxyError",
    "ProxySchemeUnknown",
    "TooManyRedirects",
    "URLSchemeUnknown",
}
_CLIENTS = re.compile(r"(requests|urllib3|pip\._vendor)\.")
_PINNED = re.compile(
    r"Fingerprints did not match|Hostname mismatch|certificate is not valid for|doesn't match"
)
# The server of the probe and the client have nothing of these in common; the reasons of OpenSSL.
_NOTHING_SHARED = re.compile(
    r"NO_SHARED_\w+|NO_SUITABLE_\w+|UNSUPPORTED_PROTOCOL|VERSION_TOO_LOW|UNSUPPORTED_ELLIPTIC_CURVE"
    r"|WRONG_SSL_VERSION|UNKNOWN_PROTOCOL"
)
# The program knows no localhost, or something else by that name: the server of the probe does listen.
_ELSEWHERE = re.compile(
    r"(\w*\.)*(gaierror|NameResolutionError|ConnectionRefusedError)|Failed to resolve|getaddrinfo failed"
    r"|\[Errno (-[2-58]|101|111|113)\]"
)
# An executor's, where the probe runs at the end of a program.
_ENDED = re.compile(r"cannot schedule new futures after (interpreter )?shutdown")
# What is raised where a connection fails, or the interpreter itself.
_NETWORK = re.compile(
    r"(\w*\.)*(OSError|IOError|EnvironmentError|(Connection|BrokenPipe|Blocking|ChildProcess|Timeout|Permission"
    r"|Interrupted|FileNotFound|Recursion|Memory)\w*|error|herror|gaierror|timeout"
    r"|SSL\w*|LoopExit|BlockingSwitchOutError)|(ssl|OpenSSL|httpx2?|httpcore2?)\.[\w.]+"
)
_MACHINERY = re.compile(
    r"/gevent/|/ssl\.py$|/OpenSSL/|/urllib3/|/requests/|/httpx2?/|/httpcore2?/|/geventhttpclient/|/socket\.py$"
    r"|/selectors\.py$|/http/client\.py$|/truststore/|/threading\.py$|/concurrent/|/asyncio/|<frozen"
)


def no_verdict(case: Case, cause: str) -> str:
    """Return why nothing is known of HTTPS though the fetch failed for ``cause``; "" where it is known."""
    if case.judgement.verdict != "error":
        return ""
    if why := _of_the_server(case, cause) or _of_the_call(case, cause) or _of_another_answer(case, cause):
        return why
    # A fetch that the user names is meant for the URL of the probe, though not always for its answer.
    if not case.question.target.command:
        return _of_the_answer(case, cause)
    if case.observation.result.get("waited") and not case.errors:
        return _waited(case)
    if case.question.url or case.observation.result.get("foreign"):
        return ""
    if cause == "no-request":
        return f"its client sent no request to the URL of the probe. {_ADVICE}"
    if cause == "certificate-not-trusted":
        spot = case.own_frame(case.errors[0]["stack"]) if case.errors else None
        return (
            f"its client{case.at(spot)} has CA certificates of its own, which do not trust the server of"
            " the probe: no verdict. Name a server that it trusts: --url URL"
        )
    if cause != "unexplained" or not case.errors:
        return ""
    if not all(map(is_provoked, case.errors)):
        if all(map(_is_elsewhere, case.errors)):
            return (
                "its client does not come to the server of the probe, since the program looks up names or"
                f" connects in a way of its own: no verdict: {case.judgement.error}. {_ADVICE}"
            )
        return ""
    return f"the fetch of the probe failed with {_raised(case)}, and HTTPS did not. {_ADVICE}"


def _of_another_answer(case: Case, cause: str) -> str:
    """Return that the client was answered, and sleeps or asks again instead of returning; "" otherwise.

    What waits for a lock, or for its request, was not answered as often as it was called.
    """
    if cause not in ("own-lock", "unexplained") or not case.judgement.problem or case.errors:
        return ""
    rounds = case.observation.result["rounds"]
    ended = {each["run"] for each in rounds}
    going = [each for run, each in (case.observation.served or {}).items() if run not in ended]
    answered = sum(each["requests"] - sum(span[2] is None for span in each["spans"]) for each in going)
    many = case.question.requests if rounds else 1
    sleeps = asleep(case.observation.result)
    if answered < (many if sleeps else _AGAIN * many):
        return ""
    waits = sleeps or (case.parked[0] if case.parked else None)
    at = ending("at", case.where(case.own_frame(waits["stack"])) if waits else "")
    does = "it sleeps" if sleeps else "it asks again"
    what = "a request" if answered == 1 else f"{answered} requests"
    return (
        f"the server of the probe answered {what} of its client, which did not come back: {does}{at}."
        " It may want another answer: no verdict."
        f" {_ADVICE if case.question.target.command else _TAKES}"
    )


def _of_the_answer(case: Case, cause: str) -> str:
    """Return why a fetch that the user names failed with the answer that it got; "" where it got none."""
    came = sum(each["requests"] for each in (case.observation.served or {}).values())
    if cause != "unexplained" or not came or not case.errors or not all(map(is_provoked, case.errors)):
        return ""
    return (
        f"the fetch failed with {_raised(case)} after the server of the probe had answered, and HTTPS did"
        " not: no verdict. Let it take any answer, or name a URL whose answer it takes: --url URL"
    )


def _of_the_call(case: Case, cause: str) -> str:
    """Return why no call of the probe fits to the program's client or to its code, whatever the URL.

    A TypeError in a fetch that the user names is the fetch's own, unless it is a client's method that does
    not take the URL alone.
    """
    if not case.errors:
        return ""
    if not any(each.get("called", True) for each in case.errors):
        return (
            f"no call that the probe knows fits to the client: {_raised(case)}. HTTPS was not measured."
            f" {_FETCH}"
        )
    if not case.question.target.command or case.observation.result.get("foreign"):
        return ""
    of_code = all(each["class"] == "TypeError" and is_provoked(each) for each in case.errors)
    if cause != "unexplained" or not of_code:
        return ""
    return f"the fetch of the probe failed with {_raised(case)}, and HTTPS did not. {_FETCH}"


def _raised(case: Case) -> str:
    """Return the error of the first request that failed, with the place.

    A method that does not fit was not entered: its place is where it is.
    """
    stack = case.errors[0]["stack"]
    spot = case.user_frame(stack) or case.errors[0].get("method") or case.own_frame(stack)
    return f"{case.judgement.error} ({case.where(spot)})" if spot else case.judgement.error


def _of_the_server(case: Case, cause: str) -> str:
    """Return what the server of the probe is like that no request can succeed; "" where one might."""
    seen = case.observation
    reasons = [each for each in seen.refused if _NOTHING_SHARED.fullmatch(each)]
    came = sum(each["requests"] for each in (seen.served or {}).values())
    if reasons and not came:
        return (
            "the handshake with the server of the probe failed, as it has no TLS version, suite or key that"
            f" the client takes ({', '.join(reasons)}): no verdict. Name a server that has: --url URL"
        )
    if cause == "unexplained" and "impatient" in seen.result and all(map(timed_out, case.errors)):
        return (
            "its requests time out where the server of the probe answers after"
            f" {seen.result['impatient']:g} s, and succeed where it does at once: no verdict. Give a"
            " shorter --delay, or a server that it has the patience for: --url URL"
        )
    return ""


def _is_elsewhere(error: dict[str, object]) -> bool:
    """Return whether no connection came about, for what has nothing to do with TLS."""
    return any(map(_ELSEWHERE.fullmatch, _names(error))) or bool(_ELSEWHERE.search(str(error["text"])))


def _names(error: dict[str, object]) -> list[str]:
    chain = error.get("chain") or []
    assert isinstance(chain, list)
    return [str(error["class"]), *map(str, chain)]


def _waited(case: Case) -> str:
    spot = next((case.own_frame(each["stack"]) for each in case.parked if each["stack"]), None)
    at = f" at {case.where(spot)}" if spot else ""
    return (
        f"the first request of the probe waited{at} for what the program holds, until it was given up; "
        f"the program was not stopped meanwhile. {_ADVICE}"
    )


def is_provoked(error: dict[str, object]) -> bool:
    """Return whether an error comes from the URL or the answer of the probe, not from the connection."""
    name, stack = str(error["class"]), error["stack"]
    assert isinstance(stack, list)
    last = name.rpartition(".")[2]
    if any(each.search(str(error["text"])) for each in (_PINNED, _ENDED)):
        return True
    if _CLIENTS.match(name) and last in _REFUSED:
        return True
    names = _names(error)
    # The class of what ends a greenlet or the program says nothing of a connection: what led to it does.
    if any(map(_of_the_network, names[1:] if error.get("ends") else names)):
        return False
    # Raised by the application's code, or by the probe's use of what the application gave it.
    return not stack or not _MACHINERY.search(str(stack[0][0]).replace("\\", "/"))


def _of_the_network(name: str) -> bool:
    """Return whether the class ``name`` is of an error of a connection, or of the interpreter itself."""
    if _CLIENTS.match(name):
        return name.rpartition(".")[2] not in _REFUSED
    return bool(_NETWORK.fullmatch(name))
