"""Recognize an error that the probe itself provokes: by its URL, its answer, or how it uses a client. Pure.

A session may allow some hosts only, put a base URL in front of what it is asked for, or check what is in
the response. What it then raises says nothing about HTTPS.
"""

from __future__ import annotations

import re

from diagnostics.evidence import Case

__all__ = ["is_provoked", "no_verdict"]

_ADVICE = "Name a URL that it accepts (--url URL), or a fetch (--app MODULE:CALLABLE)"
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
# An executor's, where the probe runs at the end of a program.
_ENDED = re.compile(r"cannot schedule new futures after (interpreter )?shutdown")
# What is raised where a connection fails, or the interpreter itself.
_NETWORK = re.compile(
    r"(\w*\.)*(OSError|IOError|EnvironmentError|(Connection|BrokenPipe|Blocking|ChildProcess|Timeout|Permission"
    r"|Interrupted|FileNotFound|Recursion|Memory)\w*|SystemExit|KeyboardInterrupt|error|herror|gaierror|timeout"
    r"|SSL\w*|LoopExit|BlockingSwitchOutError)|(ssl|OpenSSL|httpx2?|httpcore2?)\.[\w.]+"
)
_MACHINERY = re.compile(
    r"/gevent/|/ssl\.py$|/OpenSSL/|/urllib3/|/requests/|/httpx2?/|/httpcore2?/|/geventhttpclient/|/socket\.py$"
    r"|/selectors\.py$|/http/client\.py$|/truststore/|/threading\.py$|/concurrent/|/asyncio/|<frozen"
)


def no_verdict(case: Case, cause: str) -> str:
    """Return why nothing is known of HTTPS though the fetch failed for ``cause``; "" where it is known."""
    # A fetch that the user names is meant for the URL of the probe.
    if case.judgement.verdict != "error" or not case.question.target.command:
        return ""
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
    if cause != "unexplained" or not case.errors or not all(map(is_provoked, case.errors)):
        return ""
    first = case.errors[0]
    spot = case.user_frame(first["stack"]) or case.own_frame(first["stack"])
    at = f" ({case.where(spot)})" if spot else ""
    return f"the fetch of the probe failed with {case.judgement.error}{at}, and HTTPS did not. {_ADVICE}"


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
    chain = error.get("chain") or []
    assert isinstance(chain, list)
    if any(_of_the_network(str(each)) for each in (name, *chain)):
        return False
    # Raised by the application's code, or by the probe's use of what the application gave it.
    return not stack or not _MACHINERY.search(str(stack[0][0]).replace("\\", "/"))


def _of_the_network(name: str) -> bool:
    """Return whether the class ``name`` is of an error of a connection, or of the interpreter itself."""
    if _CLIENTS.match(name):
        return name.rpartition(".")[2] not in _REFUSED
    return bool(_NETWORK.fullmatch(name))
