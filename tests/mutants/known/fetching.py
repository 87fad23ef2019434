"""Bugs in reading responses, in pipelining, retries, proxies."""

from __future__ import annotations

from known.mutant import Mutant

__all__ = ["KNOWN"]

PIPELINING = "tests/faults/test_pipelining.py::"
ANSWERS = "tests/faults/test_hostile_answers.py::"
GOODPUT = "tests/unit/test_core_goodput.py::"
PROXIES = "tests/faults/test_proxies.py::"
TLS = "tests/faults/test_tls_settings.py::"

KNOWN = (
    # Judging a response
    Mutant(
        "no length check, pipelined client",
        "a body that ends early is stored as if it were whole",
        "PipelinedConnection._on_end",
        "isinstance(parser.body, FetchError)",
        "parser.headers_complete",
        (
            f"{PIPELINING}test_truncated_response_charges_only_the_first_request[4-End.CLOSE]",
            f"{ANSWERS}test_each_response_ends_with_the_expected_result[auto-short]",
        ),
    ),
    Mutant(
        "no length check, requests client",
        "a body that ends early is stored as if it were whole (requests does that)",
        "RequestsClient.fetch",
        "writer = open_writer(task, self._checking)",
        "response.enforce_content_length = False\nwriter = open_writer(task, self._checking)",
        (f"{ANSWERS}test_each_response_ends_with_the_expected_result[requests-short-large]",),
    ),
    Mutant(
        "cut TLS connection counts as closed",
        "a body without a length that is cut is stored as if it were whole (Debian's Python does that)",
        "secured",
        "context.options &= ~(_IGNORE_UNEXPECTED_EOF | ssl.OP_NO_TLSv1_2 | ssl.OP_NO_TLSv1_3)",
        "context.options |= _IGNORE_UNEXPECTED_EOF",
        (
            f"{TLS}test_cut_responses_are_not_stored_and_closed_ones_are[auto]",
            f"{TLS}test_cut_responses_are_not_stored_and_closed_ones_are[requests]",
            f"{TLS}test_no_setting_of_a_distribution_remains[16]",
        ),
    ),
    Mutant(
        "truncated gzip counts as complete",
        "a compressed body that ends early is stored, short (requests does that)",
        "_inflated",
        "not inflate.eof",
        "False",
        (f"{ANSWERS}test_compressed_and_max_size",),
    ),
    Mutant(
        "no deadline",
        "a server that sends a byte at intervals holds a connection for ever",
        "PipelinedClient.sweep",
        "now - since > limit",
        "False",
        ("tests/faults/test_lanes.py::test_slow_body_ends_at_the_deadline",),
        25,
    ),
    # Pipelining
    Mutant(
        "unanswered requests not requeued",
        "requests behind a broken response are never fetched; the run hangs at the last percent",
        "PipelinedConnection.fail",
        "self._requeue(behind)",
        "",
        (f"{PIPELINING}test_truncated_response_charges_only_the_first_request[64-End.RESET]",),
        25,
    ),
    Mutant(
        "item that reveals the connection limit is charged an attempt",
        "a file has used up an attempt because a server closes each connection after N requests",
        "PipelinedConnection._on_end",
        "2 if origin_state.limit == self.served else 1",
        "1",
        ("tests/fuzz/test_fuzz_wire.py::test_fuzz[pipeline]",),
    ),
    Mutant(
        "depth measurement excludes storing",
        "a server that closes after N requests gets fewer requests at a time than is optimal",
        "Meter.sample",
        "(responses * per_file - (storing - self._storing)) / elapsed",
        "0.0",
        (f"{GOODPUT}test_storing_is_charged_to_the_responses",),
    ),
    Mutant(
        "goodput is measured from the first response on",
        "whether a slow server gets several requests at a time is a matter of chance",
        "Meter.restart",
        "self._settling = True",
        "self._settling = False",
        (
            f"{GOODPUT}test_first_responses_are_not_measured",
            f"{GOODPUT}test_slow_server_that_does_not_overlap_is_not",
        ),
    ),
    Mutant(
        "goodput is measured for less time than a response takes",
        "whether a slow server gets several requests at a time is a matter of chance",
        "Meter.sample",
        "in_flight * _SPAN",
        "0",
        (f"{GOODPUT}test_slow_server_that_overlaps_is_pipelined_deeply",),
    ),
    Mutant(
        "a gain by chance counts",
        "a slow server that processes one request at a time gets many, which wait",
        "_pays",
        "_CERTAINTY * sqrt(1 / sample.responses + 1 / before.responses)",
        "0.0",
        (f"{GOODPUT}test_slow_server_that_does_not_overlap_is_not",),
    ),
    Mutant(
        "responses matched from the wrong end",
        "a body is stored under another file's name",
        "ResponseParser.on_message_complete",
        "self.outstanding.popleft",
        "self.outstanding.pop",
        (f"{PIPELINING}test_pipelined_files_are_stored_under_their_own_names[64]",),
    ),
    Mutant(
        "response without a field counts as plain",
        "a body delimited by the end of the connection fails as truncated",
        "ResponseParser.__init__",
        "self._plain: tuple[bytes, ...] | None = None",
        "self._plain: tuple[bytes, ...] | None = ()",
        ("tests/faults/test_lanes.py::test_other_responses_are_handed_to_the_requests_client",),
    ),
    Mutant(
        "field names of the previous response reused",
        "a file without a length fails as truncated; responses for the requests client are not handed over",
        "ResponseParser.on_headers_complete",
        "tuple(self._fields) == self._plain",
        "self._plain",
        ("tests/faults/test_lanes.py::test_each_response_on_a_connection_is_judged_separately",),
    ),
    Mutant(
        "interim response counts as final",
        "after a 103 every response belongs to the wrong file",
        "ResponseParser.on_message_complete",
        "self._status < 200",
        "self._status == 100",
        (f"{PIPELINING}test_interim_responses_are_skipped[64]",),
    ),
    Mutant(
        "window stored before it is in step",
        "a server that sends one response twice shifts all that follow to other names",
        "PipelinedConnection._process",
        "not self._deep and completed",
        "completed",
        (f"{PIPELINING}test_surplus_response_is_not_stored[64-7-0.02]",),
    ),
    Mutant(
        "window stored although out of step",
        "the same, where the surplus response was detected in time",
        "PipelinedConnection._desynchronized",
        "if not self._deep:\n    self._commit_window()",
        "self._commit_window()",
        (f"{PIPELINING}test_surplus_response_is_not_stored[64-7-0.02]",),
    ),
    Mutant(
        "announced close counts as in step",
        "a surplus response, then a close with requests unanswered: files under other names",
        "PipelinedConnection._on_close",
        "self.origin_state.closes_early(self.served)",
        "self._commit_window()",
        ("tests/fuzz/test_fuzz_wire.py::test_fuzz[pipeline]",),
    ),
    Mutant(
        "all windows stored in one turn",
        "no requests are sent meanwhile: a third of the speed",
        "CommitQueue._commit_portion",
        "self._queue and left > 0",
        "self._queue",
        ("tests/unit/test_commit_queue.py::test_sockets_are_read_between_two_portions",),
    ),
    Mutant(
        "stores before it reads",
        "responses stay unread, and the servers are idle: a twentieth of the speed",
        "_timer",
        "loop.timer(seconds, priority=loop.MINPRI)",
        "loop.timer(seconds)",
        ("tests/unit/test_commit_queue.py::test_sockets_are_read_between_two_portions",),
    ),
    Mutant(
        "rests without an acknowledgement",
        "the same, where the server's kernel keeps the last response until the others are acknowledged",
        "PipelinedConnection._continue",
        "self._transport.acknowledge()",
        "",
        ("tests/fuzz/test_fuzz_wire.py::test_fuzz[pipeline]",),
    ),
    Mutant(
        "waits behind a large file",
        "responses behind it are not processed; stored when the server closes, or never",
        "PipelinedConnection._readable",
        "parser.problem or parser.surplus or fresh or (not outstanding)",
        "parser.problem or parser.surplus or fresh",
        ("tests/faults/test_pipelining.py::test_large_file_does_not_delay_small_files",),
    ),
    # Retries and hosts
    Mutant(
        "Retry-After unbounded",
        "a server that says 1,000,000,000 s stops the run for thirty years",
        "RetryPolicy.delay",
        "most - random * most / 10",
        "wait",
        (
            "tests/unit/test_core_retry.py::test_retry_after_takes_precedence_and_is_capped_and_jittered",
            "tests/faults/test_hostile_hosts.py::test_retry_after_stops_all_workers[503-1000000000-1.0-2.5]",
        ),
        25,
    ),
    Mutant(
        "pause limited to one worker",
        "the other workers keep sending requests to a server that responded 429",
        "Supervisor._handle",
        "self._pool.send_all(message, but=(number, FEEDER))",
        "pass",
        ("tests/faults/test_hostile_hosts.py::test_retry_after_stops_all_workers[429-1-0.9-2.5]",),
    ),
    Mutant(
        "permanent errors retried",
        "each 404 is requested six times",
        "RetryPolicy.allows",
        "retryable and attempt <= self.retries",
        "attempt <= self.retries",
        (f"{ANSWERS}test_request_counts_are_as_expected[requests-404]",),
    ),
    # Proxies
    Mutant(
        "tunnel's Host is the proxy",
        "through a proxy's tunnel the wrong site is requested, or none",
        "HttpSession.new_connection",
        "tunnel_host(pool)",
        "connection.host",
        (PROXIES + "test_both_clients_send_the_same_request_through_a_tunnel",),
    ),
    Mutant(
        "proxy's credentials to the server",
        "the password of the proxy is sent to every site",
        "HttpSession._record_template",
        "origin.headers",
        "{**origin.headers, **self._adapter.proxy_headers(origin.proxy)}",
        (PROXIES + "test_both_clients_send_the_same_request_through_a_tunnel",),
    ),
    Mutant(
        "proxy bypassed",
        "requests that must use the proxy are sent directly: not monitored, or stopped by a firewall",
        "HttpSession.new_connection",
        "self._adapter.get_connection_with_tls_context(request, True, origin.proxies)",
        "self._adapter.get_connection_with_tls_context(request, True)",
        (PROXIES + "test_both_clients_send_the_same_request_to_a_forwarding_proxy",),
    ),
)
