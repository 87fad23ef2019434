"""Define the table of causes: what must be observed for each, where it is, and what it means.

The table is searched in order: entries that explain more of the observation come first, and the first that
matches is the cause. A predicate returns None, or the place and the evidence; without evidence there is no
cause. Sources: gevent's documentation of ``monkey``, urllib3's ``contrib.pyopenssl``, and reports from
users (gunicorn 1062, gevent 903, 1016, 1531, urllib3 1176, requests 3752).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from diagnostics import clients, limits, patch_order, predicates
from diagnostics.evidence import Case
from diagnostics.model import Cause

__all__ = ["LIMITS", "TABLE", "explain"]


class Entry(NamedTuple):
    """A row of the table. ``remedies``: codes of ``diagnostics.remedy``, best first."""

    code: str
    summary: str
    explanation: str
    remedies: tuple[str, ...]
    found: Callable[[Case], predicates.Found | None]


def explain(case: Case) -> list[tuple[Cause, tuple[str, ...]]]:
    """Return the cause of ``case`` with the codes of the remedies that may help.

    Return an empty list when HTTPS is concurrent, unless the program limits itself.
    """
    for entry in LIMITS if case.judgement.verdict == "concurrent" else TABLE:
        found = entry.found(case)
        if found is not None:
            evidence = [line for line in found.evidence if line]
            summary, explanation = found.summary or entry.summary, found.explanation or entry.explanation
            return [(Cause(entry.code, summary, found.where, evidence, explanation), entry.remedies)]
    return []


_NOT_GEVENTS = (
    "gevent makes concurrent what waits in sockets of the standard library: requests, urllib3,\n"
    "httpx.Client. This client waits elsewhere. Fetch with one of those, or leave gevent out."
)

_HELD_IN_POLL = (
    "urllib3's wrapper answers 'not ready yet' by waiting in select/poll. Where that is not gevent's,\n"
    "the thread sleeps there, the hub never runs, and one request at a time is served."
)

# For a process that is concurrent but takes longer than N simultaneous requests would.
LIMITS: tuple[Entry, ...] = (
    Entry(
        "rate-limit",
        "the program itself spaces its requests out",
        "Greenlets sleep before their requests, for as long with the delay as without it: this is a rate\n"
        "limit, not a wait for the network. That is no fault, unless the rate is unintended.",
        (),
        limits.rate_limit,
    ),
    Entry(
        "small-pool",
        "the program itself lets only some requests through at once",
        "A pool of connections that blocks, a pool of threads, or a semaphore, is smaller than the number\n"
        "of requests here. That is no fault, unless it is meant to be larger.",
        (),
        limits.small_pool,
    ),
    Entry(
        "time-elsewhere",
        "the requests overlapped, and most of the time was spent on something else",
        "The server saw them waiting at once, and no greenlet waited for another. The rest of the time is\n"
        "work between the requests, or a machine that was too busy: measure again on an idle one.",
        (),
        limits.time_elsewhere,
    ),
)

TABLE: tuple[Entry, ...] = (
    Entry(
        "no-request",
        "the fetch sends no request to the server of the probe",
        "It must fetch the URL that it is given: what is cached, mocked, or fetched from elsewhere says\n"
        "nothing about HTTPS here.",
        (),
        limits.no_request,
    ),
    Entry(
        "serial-server",
        "the server answers one request at a time",
        "The same number of requests from threads of a clean process takes as long.\n"
        "Nothing in the process under check can change that.",
        (),
        predicates.serial_server,
    ),
    Entry(
        "too-few-descriptors",
        "the process may not open as many sockets",
        "Each connection takes a file descriptor, and the limit of this process is reached.\n"
        "Raise it (ulimit -n), or fetch with fewer at once.",
        ("raise-descriptors",),
        predicates.too_few_descriptors,
    ),
    Entry(
        "foreign-client",
        "the process fetches with a client that gevent does not make concurrent",
        _NOT_GEVENTS + "\nTo measure a fetch of your own, name it: --app MODULE:CALLABLE.",
        (),
        clients.foreign,
    ),
    Entry(
        "asyncio-client",
        "the client is asyncio's, which gevent does not make concurrent",
        _NOT_GEVENTS,
        (),
        clients.asynchronous,
    ),
    Entry(
        "eventlet-client",
        "the client is eventlet's, whose hub and gevent's do not know of each other",
        _NOT_GEVENTS,
        (),
        clients.eventlet,
    ),
    Entry(
        "thread-client",
        "the requests run in threads, which gevent does not make concurrent",
        _NOT_GEVENTS,
        (),
        clients.threads,
    ),
    Entry(
        "context-before-patching",
        "an SSLContext was made before gevent patched ssl",
        "A context keeps the class that it was made of: its sockets stay the unpatched ones for good,\n"
        "whatever is patched afterwards.",
        ("patch-all-first", "patch-before-everything", "patch-at-start"),
        patch_order.early_context,
    ),
    Entry(
        "patched-too-late",
        "gevent patched ssl after urllib3 had taken it over",
        "urllib3 and requests keep the SSLContext that they find when imported. If gevent replaces the\n"
        "class afterwards, its properties call themselves without end: RecursionError.",
        ("patch-all-first", "patch-before-everything", "patch-at-start"),
        patch_order.too_late,
    ),
    Entry(
        "truststore",
        "truststore's SSLContext does not work with gevent's ssl",
        "truststore's context, made by hand or put in the place of ssl.SSLContext by an injection, hands\n"
        "gevent's sockets to methods that do not know them.",
        ("no-truststore", "extract-truststore"),
        predicates.truststore,
    ),
    Entry(
        "not-patched",
        "gevent has patched nothing: every socket blocks the whole process",
        "Greenlets only switch where gevent knows that one waits. A socket of the standard library waits\n"
        "in the kernel, and the hub with it.",
        ("patch-all-first", "patch-before-everything", "patch-at-start"),
        predicates.not_patched,
    ),
    Entry(
        "original-restored",
        "what gevent had patched was put back afterwards",
        "After patching, something set the original function again. Whatever waits in it holds the hub.\n",
        ("patch-again",),
        predicates.put_back,
    ),
    Entry(
        "ssl-unpatched",
        "sockets are patched, ssl is not",
        "The standard library's ssl cannot work on gevent's sockets: patch both, or neither.\n",
        ("patch-all-first", "patch-before-everything", "patch-at-start"),
        predicates.ssl_left_out,
    ),
    Entry(
        "pyopenssl-context-used",
        "a pyOpenSSL context is shared by several connections",
        "urllib3 sets its context up for each connection, and since pyOpenSSL 26.2 one that has made one\n"
        "refuses that: the first succeeds alone. Use ssl.create_default_context(), or none.",
        (),
        predicates.used_context,
    ),
    Entry(
        "gevent-openssl-python3",
        "gevent-openssl does not cover what Python 3 uses",
        "gevent-openssl 1.2 wraps recv() and not recv_into(), which Python 3 reads with: urllib3's\n"
        "wrapper waits in the unpatched select/poll as before.",
        ("patch-all-first", "extract-pyopenssl", "patch-select", "no-injection", "patch-at-start"),
        predicates.gevent_openssl,
    ),
    Entry(
        "pyopenssl-vendored-copy",
        "a vendored copy of urllib3 uses pyOpenSSL, and select is not patched",
        _HELD_IN_POLL,
        ("patch-all-first", "extract-pyopenssl", "patch-select", "no-injection", "patch-at-start"),
        predicates.vendored,
    ),
    Entry(
        "pyopenssl-own-context",
        "an adapter brings its own pyOpenSSL context, and select is not patched",
        _HELD_IN_POLL
        + "\nFrom pyOpenSSL 26.2 on such a context has one connection alone: all others fail.\n"
        "Use ssl.create_default_context(), or none.",
        ("patch-all-first", "patch-select", "patch-at-start"),
        predicates.own_context,
    ),
    Entry(
        "pyopenssl-unpatched-select",
        "urllib3 uses pyOpenSSL, and select is not patched",
        _HELD_IN_POLL,
        ("patch-all-first", "extract-pyopenssl", "patch-select", "no-injection", "patch-at-start"),
        predicates.pyopenssl,
    ),
    Entry(
        "pyopenssl-unpatched-sockets",
        "pyOpenSSL reads from sockets that block",
        "The sockets are the original ones, so OpenSSL itself waits for the network; to patch select does\n"
        "not help here.",
        ("patch-all-first", "patch-before-everything", "patch-at-start"),
        predicates.blocking_pyopenssl,
    ),
    Entry(
        "sockets-unpatched",
        "sockets are not patched",
        "A socket of the standard library waits in the kernel, and the hub with it.\n",
        ("patch-all-first", "patch-before-everything", "patch-at-start"),
        predicates.sockets,
    ),
    Entry(
        "pool-of-one",
        "the requests wait for a connection of a pool that is too small",
        "A request waits until a connection of the pool is free, so no more run at once than it has:\n"
        "block=True of urllib3, max_connections of httpx, concurrency of geventhttpclient (1 by default).",
        ("unblock-pool",),
        predicates.pool_of_one,
    ),
    Entry(
        "made-before-patching",
        "what was made before gevent patched holds the hub",
        "A lock, a queue, a socket or a pool of threads keeps what it was made of: it stays the real one,\n"
        "and whatever waits in it holds the hub.",
        ("patch-all-first", "patch-before-everything", "patch-at-start"),
        patch_order.early_waiting,
    ),
    Entry(
        "threads-unpatched",
        "threading is not patched, and the requests wait in a lock",
        "",
        ("patch-all-first", "patch-before-everything", "patch-at-start"),
        predicates.real_lock,
    ),
    Entry(
        "own-lock",
        "the requests wait for each other at a line of the application",
        "What they wait for lets one through after the other. Let go of it before the request, or allow\n"
        "more of them at once.",
        (),
        predicates.own_lock,
    ),
    Entry(
        "blocking-call",
        "a call that blocks the thread holds the hub",
        "While it waits no other greenlet runs. It is not patched, or was taken by name\nbefore patching.",
        ("patch-all-first", "patch-before-everything", "patch-at-start"),
        predicates.blocking,
    ),
    Entry(
        "cpu-bound",
        "computing holds the hub",
        "Greenlets share one thread: while one computes, no other runs.\n"
        "Do less there, or do it in other processes.",
        (),
        predicates.computing,
    ),
    Entry(
        "dns-pool",
        "the look-ups of names wait for each other",
        "gevent looks names up in a few threads. A look-up without a response keeps its thread until the\n"
        "resolver gives up; a few of those block every look-up.",
        ("more-resolver-threads",),
        predicates.dns,
    ),
    Entry(
        "certificate-not-trusted",
        "the certificate of the server is not trusted in this set-up",
        "SSL_CERT_FILE names a file with the CA of the probe's server, and requests trusts it by itself.\n"
        "A client that names its own CA file does not: use --url with a real server.",
        (),
        predicates.untrusted,
    ),
    Entry(
        "no-request",
        "the function fails before it sends a request",
        "",
        (),
        limits.failed_before,
    ),
    Entry(
        "unexplained",
        "no known cause explains it",
        "The frames that were seen are the evidence.\n",
        ("patch-all-first",),
        predicates.unexplained,
    ),
)
