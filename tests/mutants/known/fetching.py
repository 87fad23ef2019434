"""Bugs in reading responses, in pipelining, retries, proxies."""

from __future__ import annotations

from known.mutant import Mutant

__all__ = ["KNOWN"]

PIPELINING = "tests/faults/test_pipelining.py::"
ANSWERS = "tests/faults/test_hostile_answers.py::"
PROXIES = "tests/faults/test_proxies.py::"

KNOWN = (
    # What an answer is worth
    Mutant(
        "no length check, wire lane",
        "a body that ends early is stored as if it were whole",
        "PipelinedConnection._on_end",
        "isinstance(parser.body, FetchError)",
        "parser.headers_complete",
        (
            f"{PIPELINING}test_half_an_answer_and_then_the_end[4-End.CLOSE]",
            f"{ANSWERS}test_each_ends_as_it_must[auto-short]",
        ),
    ),
    Mutant(
        "no length check, requests lane",
        "a body that ends early is stored as if it were whole (requests does that)",
        "RequestsClient.fetch",
        "writer = CheckedWriter(task.batch.open(task), check)",
        "response.enforce_content_length = False\nwriter = CheckedWriter(task.batch.open(task), check)",
        (f"{ANSWERS}test_each_ends_as_it_must[requests-short-large]",),
    ),
    Mutant(
        "cut gzip taken for whole",
        "a compressed body that ends early is stored, short (requests does that)",
        "_inflated",
        "not inflate.eof",
        "False",
        (f"{ANSWERS}test_compressed_and_max_size",),
    ),
    Mutant(
        "no deadline",
        "a server that sends a byte now and then holds a connection for ever",
        "PipelinedClient.sweep",
        "now - since > limit",
        "False",
        ("tests/faults/test_lanes.py::test_a_drip_ends_at_the_deadline",),
        25,
    ),
    # Pipelining
    Mutant(
        "re-sends lost",
        "what was asked for behind a broken answer is never fetched; the run hangs at the last percent",
        "PipelinedConnection.fail",
        "self._requeue(behind)",
        "",
        (f"{PIPELINING}test_half_an_answer_and_then_the_end[64-End.RESET]",),
        25,
    ),
    Mutant(
        "who shows where the limit is has failed",
        "a file has used up an attempt because a server closes each connection after so many",
        "PipelinedConnection._on_end",
        "2 if origin_state.limit == self.served else 1",
        "1",
        ("tests/fuzz/test_fuzz_wire.py::test_fuzz[pipeline]",),
    ),
    Mutant(
        "what is answered is not charged with storing it",
        "a server that closes after so many is asked for less at a time than pays",
        "OriginState.record_responses",
        "(owed - (stored.seconds - self._storing)) / elapsed",
        "0 * owed",
        ("tests/fuzz/test_fuzz_wire.py::test_fuzz[pipeline]",),
    ),
    Mutant(
        "responses matched from the wrong end",
        "a body is stored under another file's name",
        "ResponseParser.on_message_complete",
        "self.outstanding.popleft",
        "self.outstanding.pop",
        (f"{PIPELINING}test_nothing_wrong_is_stored_by_the_wire_lane_in_order[64]",),
    ),
    Mutant(
        "an answer without a field passes for a plain one",
        "one that only the end of the connection ends fails as truncated",
        "ResponseParser.__init__",
        "self._plain: tuple[bytes, ...] | None = None",
        "self._plain: tuple[bytes, ...] | None = ()",
        ("tests/faults/test_lanes.py::test_what_is_not_a_plain_answer_is_handed_over_unharmed",),
    ),
    Mutant(
        "an answer is what the one before it was",
        "a file without a length fails as truncated; what is for the requests lane never gets there",
        "ResponseParser.on_headers_complete",
        "tuple(self._fields) == self._plain",
        "self._plain",
        ("tests/faults/test_lanes.py::test_each_answer_of_a_connection_is_judged_by_itself",),
    ),
    Mutant(
        "an interim answer counts as one",
        "after a 103 every answer is one file off",
        "ResponseParser.on_message_complete",
        "self._status < 200",
        "self._status == 100",
        (f"{PIPELINING}test_interim_answers_are_not_answers[64]",),
    ),
    Mutant(
        "window stored before it is in step",
        "a server that gives one answer twice shifts all that follow under other names",
        "PipelinedConnection._process",
        "not self._deep and completed",
        "completed",
        (f"{PIPELINING}test_one_answer_too_many_is_nobodys_file[64-7-0.02]",),
    ),
    Mutant(
        "window stored although out of step",
        "the same, where it was noticed in time",
        "PipelinedConnection._desynchronized",
        "if not self._deep:\n    self._commit_window()",
        "self._commit_window()",
        (f"{PIPELINING}test_one_answer_too_many_is_nobodys_file[64-7-0.02]",),
    ),
    Mutant(
        "a close that is announced counts as in step",
        "one answer too many, and then a close with requests unanswered: files under other names",
        "PipelinedConnection._on_close",
        "self.origin_state.closes_early(self.served)",
        "self._commit_window()",
        ("tests/fuzz/test_fuzz_wire.py::test_fuzz[pipeline]",),
    ),
    Mutant(
        "all windows stored in one turn",
        "nothing is asked for meanwhile: a third of the speed",
        "CommitQueue._commit_portion",
        "self._queue and left > 0",
        "self._queue",
        ("tests/unit/test_commit_queue.py::test_sockets_are_read_between_two_portions",),
    ),
    Mutant(
        "stores before it reads",
        "what the servers have sent lies there, and they have nothing to do: a twentieth of the speed",
        "_timer",
        "loop.timer(seconds, priority=loop.MINPRI)",
        "loop.timer(seconds)",
        ("tests/unit/test_commit_queue.py::test_sockets_are_read_between_two_portions",),
    ),
    Mutant(
        "rests without an acknowledgement",
        "the same, where the server's kernel keeps the last answer until we have acknowledged the others",
        "PipelinedConnection._continue",
        "self._transport.acknowledge()",
        "",
        ("tests/fuzz/test_fuzz_wire.py::test_fuzz[pipeline]",),
    ),
    Mutant(
        "waits behind a large file",
        "what was asked for behind it is answered for nobody; stored when the server closes, or never",
        "PipelinedConnection._readable",
        "parser.problem or parser.surplus or fresh or (not outstanding)",
        "parser.problem or parser.surplus or fresh",
        ("tests/faults/test_pipelining.py::test_a_large_file_holds_nothing_up",),
    ),
    # Retries and hosts
    Mutant(
        "Retry-After unbounded",
        "a server that says 1,000,000,000 s stops the run for thirty years",
        "RetryPolicy.delay",
        "most - random * most / 10",
        "wait",
        (
            "tests/unit/test_core_retry.py::test_retry_after_wins_is_capped_and_spread",
            "tests/faults/test_hostile_hosts.py::test_retry_after_stops_all_workers[503-1000000000-1.0-2.5]",
        ),
        25,
    ),
    Mutant(
        "a pause of one worker alone",
        "the other workers go on asking a server that has said 429",
        "Supervisor._handle",
        "self._pool.send_all(message, but=(number, FEEDER))",
        "pass",
        ("tests/faults/test_hostile_hosts.py::test_retry_after_stops_all_workers[429-1-0.9-2.5]",),
    ),
    Mutant(
        "permanent errors retried",
        "each 404 is asked for six times",
        "RetryPolicy.allows",
        "retryable and attempt <= self.retries",
        "attempt <= self.retries",
        (f"{ANSWERS}test_none_is_asked_for_more_often_than_it_must[requests-404]",),
    ),
    # Proxies
    Mutant(
        "tunnel's Host is the proxy",
        "through a proxy's tunnel the wrong site is asked, or none",
        "HttpSession.new_connection",
        "pool._tunnel_host",
        "connection.host",
        (PROXIES + "test_a_server_behind_a_tunnel_cannot_tell_the_lanes_apart",),
    ),
    Mutant(
        "proxy's credentials to the server",
        "the password of the proxy is sent to every site",
        "HttpSession.template",
        "origin.headers",
        "{**origin.headers, **self._adapter.proxy_headers(origin.proxy)}",
        (PROXIES + "test_a_server_behind_a_tunnel_cannot_tell_the_lanes_apart",),
    ),
    Mutant(
        "past the proxy",
        "what must go through the proxy goes straight: nobody sees it, or a firewall stops it",
        "HttpSession.new_connection",
        "self._adapter.get_connection_with_tls_context(request, True, origin.proxies)",
        "self._adapter.get_connection_with_tls_context(request, True)",
        (PROXIES + "test_a_forwarding_proxy_cannot_tell_the_lanes_apart",),
    ),
)
