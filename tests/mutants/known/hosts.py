"""Bugs in what is done with many hosts, names that are looked up, and hosts that are dead."""

from __future__ import annotations

from known.mutant import Mutant

__all__ = ["KNOWN"]

NAMES = "tests/faults/test_names.py::"
SESSION = "tests/fuzz/test_fuzz_wire.py::test_fuzz[session]"
PIPELINE = "tests/fuzz/test_fuzz_wire.py::test_fuzz[pipeline]"
MACHINES = "tests/faults/test_machines.py::test_another_machine_behind_the_name_serves"
MOVED = "tests/faults/test_machines.py::test_name_that_gets_another_address_during_the_run"
CONNECTING = "tests/fuzz/test_fuzz_wire.py::test_fuzz[connecting]"

REDIRECTS = "tests/faults/test_redirect_places.py::"
SPENT = "tests/faults/test_spent_connections.py::"

KNOWN = (
    Mutant(
        "place at a host kept over a redirect",
        "two hosts that redirect to each other, with one request each, wait for ever",
        "RedirectPlaces.move",
        "schedule.leave(left)",
        "pass",
        (f"{REDIRECTS}test_hosts_that_redirect_to_each_other",),
    ),
    Mutant(
        "redirects that count for no host",
        "a store that takes two requests at once, as --per-host says, gets two from each host of the list",
        "RedirectPlaces.move",
        "schedule.enter(target)",
        "True",
        (f"{REDIRECTS}test_host_that_redirects_lead_to_gets_as_many_as_any",),
    ),
    Mutant(
        "idle connections of the other client kept",
        "a host takes few connections and redirects: the pipelined client keeps them, and every file fails",
        "HostFailures._lacks_room",
        "self._session.close_idle(host.key)",
        "None",
        (
            "tests/faults/test_crowded_hosts.py::"
            "test_files_wait_whose_connections_are_closed_since_the_other_client_has_them",
        ),
    ),
    Mutant(
        "connections kept on which everything is refused",
        "a server that serves 20 requests on a connection, and then refuses, pauses again and again",
        "HostFailures._renew",
        "rounds == 1 or not error.answered",
        "True",
        (f"{SPENT}test_requests_beyond_those_that_a_connection_is_granted",),
    ),
    Mutant(
        "request sent again where it was refused",
        "one machine of a balancer refuses everything, and what it refuses comes to it again",
        "HttpSession.sends_again",
        "self.budget.leave_doubtful(origin.peer)",
        "None",
        (
            f"{SPENT}test_machine_of_a_balancer_that_refuses_everything",
            f"{SPENT}test_requests_beyond_those_that_a_connection_is_granted",
        ),
    ),
    Mutant(
        "file sent where as many requests were served as are granted",
        "at the end of a job all connections may have had theirs: a file is refused on each, and lost",
        "Patience.expects_refusal",
        "answered == self._granted",
        "False",
        (
            "tests/unit/test_core_spent_connections.py::"
            "test_connections_that_have_had_as_many_requests_as_others_were_granted_are_left_too",
            f"{SPENT}test_end_of_a_job_whose_connections_have_had_all_that_they_are_granted",
        ),
    ),
    Mutant(
        "a Retry-After of no time pauses the host",
        "a balancer that sends a fixed 0 with each refusal makes a job take ten times as long",
        "FetchError.asks_to_wait",
        "bool(self.retry_after)",
        "self.retry_after is not None",
        ("tests/faults/test_failing_urls.py::test_who_asks_for_no_pause_gets_none[0]",),
    ),
    Mutant(
        "a date to wait for is compared with our clock",
        "a host whose clock is an hour ahead is paused for two minutes at each refusal",
        "parse_retry_after",
        "_moment(date) if date else None",
        "None",
        (
            "tests/faults/test_failing_urls.py::"
            "test_a_date_to_wait_for_counts_from_that_of_the_response[3600-auto]",
        ),
    ),
    Mutant(
        "ever new connections to a host that refuses on all",
        "files that are always refused are requested on new connections only",
        "Patience.replaced",
        "opened > self._vain.setdefault(address, now)",
        "False",
        (f"{SPENT}test_files_that_are_always_refused_cost_few_connections",),
    ),
    Mutant(
        "each of many connections that were opened at once counts as another try",
        "a name has two machines, one of which is ill: files are lost, since nothing goes to the other one",
        "Patience.replaced",
        "opened > self._vain.setdefault(address, now)",
        "True",
        (
            "tests/unit/test_core_spent_connections.py::"
            "test_connections_opened_before_an_address_was_tried_in_vain_do_not_count",
        ),
    ),
    Mutant(
        "connections that serve closed with those of a host that is down",
        "the machine that serves comes behind the one that refuses all: its files are lost",
        "ConnectionBudget.leave_idle",
        "idle.refuses or idle.since < since",
        "True",
        ("tests/fuzz/test_fuzz_wire.py::test_fuzz[idle]",),
    ),
    Mutant(
        "workers that have nothing to do decide about connections",
        "a job of one worker stays at the first connections, since the other ones are not full",
        "together",
        "row.works",
        "True",
        ("tests/unit/test_core_worker_counts.py::test_workers_that_have_nothing_to_do_decide_nothing",),
    ),
    Mutant(
        "pace raised slowly though nothing is refused",
        "a host whose quota was spent once is sent a request a second for most of a minute",
        "Throttle._judge",
        "self.raised**2",
        "self.raised",
        ("tests/unit/test_core_throttle.py::test_pace_that_is_far_too_low_rises_ever_faster",),
    ),
    Mutant(
        "last attempt at a file charged while its host refuses everything",
        "hosts with few files lose all of them to a restart of 15 s",
        "HostFailures.failed",
        "self._last_chance(host, error, excused) if wait is None and last else wait",
        "wait",
        (
            "tests/faults/test_outages.py::test_server_that_restarts_loses_no_file_of_hosts_that_have_few[503-80-20-0]",
        ),
    ),
    Mutant(
        "pace raised at once beyond what was too fast",
        "a server that works on twelve requests at once refuses three times as many, and connections stay",
        "Throttle._judge",
        "share or self.raised > self.gap * self.unpaced * _FAR",
        "share",
        ("tests/unit/test_core_throttle.py::test_pace_near_what_was_too_fast_rises_slowly",),
    ),
    Mutant(
        "one failure behind a success is a bad file, though few fail",
        "a host with eight files loses half of them to a restart, where responses are mixed",
        "Trouble.outage_began",
        "share > _MANY_BAD and share**self.streak > _AT_ODDS",
        "share**self.streak > _AT_ODDS",
        (
            "tests/unit/test_core_host_trouble.py::"
            "test_few_failures_are_an_outage_unless_many_files_fail_by_themselves",
        ),
    ),
    Mutant(
        "connection used first that was refused last",
        "an ill machine of a balancer answers late, and is sent what it has refused until it fails",
        "PipelinedClient.idle",
        "0 if connection.refuses else len(idle)",
        "len(idle)",
        (f"{SPENT}test_machine_of_a_balancer_that_refuses_everything_late",),
    ),
    Mutant(
        "connection of requests used first that was refused last",
        "the same where files are fetched by the requests client",
        "_IdleConnections.put",
        "connection.refuses",
        "False",
        (f"{SPENT}test_machine_of_a_balancer_that_refuses_everything_late",),
    ),
    Mutant(
        "end of TLS forgotten that came with data",
        "a file that is cut off waits for --read-timeout, where the server closes only after the client",
        "Transport._receive_tls",
        "not count and filled",
        "False",
        ("tests/faults/test_tls_end.py::test_end_that_was_read_together_with_data_is_pending",),
    ),
    Mutant(
        "files in doubt that a checksum verifies",
        "a server is found to answer out of order, and the run ends with 1 though each file was compared",
        "PipelinedConnection._exchangeable",
        "not self._client.verifies",
        "True",
        ("tests/faults/test_response_order.py::test_files_that_a_checksum_verifies_are_not_in_doubt",),
    ),
    Mutant(
        "redirect used however old it is",
        "signed URLs expire while their requests wait for a place at the store, and the files fail",
        "RequestsClient._open",
        "waited > _FRESH and returns < _MOST_RETURNS",
        "False",
        (f"{REDIRECTS}test_redirect_that_holds_for_a_short_time_is_used_within_it",),
    ),
    Mutant(
        "refusal of an outdated redirect is final",
        "signed URLs that run out while their requests wait for two hosts fail their files",
        "FetchError.transient",
        "self.outdated and self.answered",
        "False",
        (
            "tests/unit/test_core_host_trouble.py::"
            "test_refusal_of_a_request_that_has_waited_for_long_behind_a_redirect_is_not_final",
        ),
    ),
    Mutant(
        "a wall that asks to wait is probed without its cookie",
        "each probe of such a host pauses it once more: minutes for one cookie",
        "Host.take_probe",
        "self.rounds % 2 == 1 and queue[0].path is None and queue[-1].path is not None",
        "False",
        ("tests/faults/test_cookies.py::test_a_wall_that_asks_to_wait",),
    ),
    Mutant(
        "redirect to a paused host begun again",
        "a host that redirects to one which refuses many is asked ten times for each file",
        "RedirectPlaces.move",
        "until > longest",
        "True",
        (f"{REDIRECTS}test_redirecting_host_is_not_asked_again_while_the_other_is_paused",),
    ),
    Mutant(
        "slot held while connecting",
        "thirty dead hosts at the head of a list hold up all others for minutes",
        "ConnectionBudget.park_slow",
        "self._slots.park()",
        "False",
        (f"{NAMES}test_hosts_that_do_not_answer_hold_no_slot",),
    ),
    Mutant(
        "host of another worker given up",
        "a worker that gets no connection fails the files of a host whose connections another one has",
        "ReachedHosts._at",
        "self._began + (noted & 0xFFFFFFFF) / _TICKS",
        "-math.inf",
        (
            "tests/faults/test_crowded_hosts.py::test_host_whose_connections_another_worker_has_is_not_down[auto]",
            "tests/unit/test_core_reached_hosts.py::test_what_one_worker_notes_another_one_reads",
        ),
    ),
    Mutant(
        "connections that are closed at once are the file's fault",
        "a worker whose connections a server closes fails the files, while another one has all of them",
        "HostFailures._others_are_answered",
        "self._reached.answered_at(host.key) > max(since, host.noted_answer, now - _SERVED)",
        "False",
        (
            "tests/faults/test_crowded_hosts.py::test_files_wait_whose_connections_are_closed_since_another_worker_"
            "has_them_all",
        ),
    ),
    Mutant(
        "slots held by tarpits",
        "responses of a byte each 20 s hold all slots, and nothing else is stored for minutes",
        "Preemption._excess",
        "most <= 0",
        "True",
        (
            "tests/faults/test_tarpits.py::test_living_files_are_stored_while_tarpits_trickle",
            "tests/unit/test_core_preemption.py::test_tarpits_keep_half_of_the_slots",
        ),
    ),
    Mutant(
        "held up for a moment",
        "where a fast server is held up for half a second, half of its requests end and are sent again",
        "Preemption.allotment",
        "ended - at >= _SHORTEST / 2",
        "True",
        ("tests/unit/test_core_preemption.py::test_few_are_lost_where_a_server_that_was_fast_is_held_up",),
    ),
    Mutant(
        "slow file begun again for ever",
        "a large file over a slow line is preempted each time before it can end",
        "Preemption.allotment",
        "GROWTH ** job.demotions",
        "1",
        ("tests/unit/test_core_preemption.py::test_time_of_a_demoted_request_grows_until_it_can_end",),
    ),
    Mutant(
        "slower with more and kept",
        "a server that slows down with each connection is asked by hundreds, at a fifth of its speed",
        "_held",
        "held >= _BEFORE_FEWER",
        "False",
        (
            "tests/unit/test_core_connection_limit.py::test_server_that_slows_down_gets_fewer",
            "tests/faults/test_connections.py::test_connections_shrink_where_fewer_are_faster",
        ),
    ),
    Mutant(
        "fewer are tried once",
        "two workers stay beyond what a server takes, at an eighth of its speed, since half is as slow",
        "_judge_fewer",
        "sample.rate >= before.rate * _AS_FAST and limit.now > 1",
        "False",
        ("tests/unit/test_core_connection_limit.py::test_fewer_still_are_tried_where_fewer_are_as_fast",),
    ),
    Mutant(
        "a measurement of more files than there are",
        "a server that slows down with connections keeps 32, at a third of its speed, for a short job",
        "Climb._measured",
        "elapsed >= long and finished >= fewest",
        "False",
        (
            "tests/unit/test_core_connection_limit.py::"
            "test_files_that_finish_together_are_measured_for_seconds_where_they_are_few",
        ),
    ),
    Mutant(
        "workers that compete",
        "each worker opens more connections to a slow server, since it gets more of it, and all get less",
        "WorkerCounts.living",
        "then > now - _LIVING",
        "then == now",
        ("tests/unit/test_core_worker_counts.py::test_what_one_worker_writes_another_one_reads",),
    ),
    Mutant(
        "none needed where nothing was measured",
        "the report says that no more connections were needed, where nobody knows",
        "Climb._need",
        "counted.now - self._full_since >= _SECONDS",
        "False",
        ("tests/unit/test_core_connection_limit.py::test_more_were_needed_if_files_waited",),
    ),
    Mutant(
        "smaller limit without effect",
        "connections in use go on with further files, however many fewer were chosen",
        "Scheduler.next_jobs",
        "self.active > self.most",
        "False",
        ("tests/unit/test_scheduler_slots.py::test_fewer_slots_take_effect_on_connections_in_use",),
    ),
    Mutant(
        "slot not taken back",
        "more requests are in flight than --connections allows, without end",
        "Scheduler.unpark",
        "self.active += 1",
        "",
        ("tests/unit/test_scheduler_slots.py::test_parked_job_leaves_its_slot_to_another",),
    ),
    Mutant(
        "files of dead hosts count as work",
        "a worker asks for nothing more while it waits for dead hosts",
        "Scheduler._rest",
        "self.resting += len(host.queue)",
        "",
        ("tests/unit/test_scheduler_slots.py::test_jobs_of_failing_hosts_and_later_ones_rest",),
    ),
    Mutant(
        "dead host tried again",
        "the end of a run waits a minute for each host that does not answer",
        "HostFailures._failed",
        "not known and error.unreachable",
        "False",
        (f"{NAMES}test_each_dead_host_fails_with_its_code_and_every_living_one_is_stored",),
    ),
    Mutant(
        "a file's 503 is the host's",
        "one URL that always answers 503 fails files that were never requested",
        "Trouble.blames_host",
        "self.streak < _IN_A_ROW or self.streak < self._unlikely()",
        "False",
        (
            "tests/unit/test_core_host_trouble.py::"
            "test_files_that_fail_among_others_never_mean_that_the_host_is_down",
        ),
    ),
    Mutant(
        "files under way are no success",
        "a host that sends large files, and refuses some, is paused",
        "Trouble.blames_host",
        "serves(self.streak_began)",
        "False",
        (
            "tests/faults/test_late_successes.py::"
            "test_large_files_that_are_under_way_while_others_are_refused",
            "tests/unit/test_core_host_trouble.py::"
            "test_host_that_still_sends_a_file_requested_meanwhile_is_not_down",
        ),
    ),
    Mutant(
        "one attempt says that a host is dead",
        "one bad machine behind a name, or one cut handshake, and all files of the name fail unrequested",
        "HostFailures._failed",
        '(error.code == "dns" or not trouble.hardly_tried)',
        "True",
        ("tests/faults/test_hostile_tls.py::test_one_bad_machine_behind_a_name_costs_its_own_files_only",),
    ),
    Mutant(
        "all retries go to the same machine",
        "a machine behind a name answers 503, resets or is silent: files fail, although another serves",
        "Resolver.try_others",
        "known is not None and address in known.addresses",
        "False",
        (f"{MACHINES}[refuses with 503-auto]", f"{MACHINES}[resets each request-requests]"),
    ),
    Mutant(
        "machine with a wrong certificate asked for ever",
        "beside an address that refuses, each connection leads to it again: the run never ends",
        "_CountedConnection._untried",
        "each not in self._failed",
        "True",
        ("tests/faults/test_machines.py::test_bad_certificate_beside_machines_that_refuse",),
    ),
    Mutant(
        "a wrong certificate of one machine is final",
        "a machine behind a name has an expired certificate: its files fail, although another one serves",
        "Resolver.has_others",
        "return any(address not in tried for address in found)",
        "return False",
        tuple(
            f"{MACHINES}[{machine}-{lane}]"  # whichever machine comes first in one of them
            for machine in ("expired certificate", "certificate of another host", "old TLS")
            for lane in ("auto", "requests")
        ),
    ),
    Mutant(
        "a connection that is refused with a status belongs to its file",
        "a host takes few connections and answers 503 to others: most files fail",
        "FetchError.refuses",
        "self.answered and failure_kind(self.code).retry",
        "False",
        (
            "tests/faults/test_crowded_hosts.py::"
            "test_files_wait_whose_connections_are_closed_since_others_of_the_worker_are_all",
        ),
    ),
    Mutant(
        "what a host refuses while it refuses all is charged",
        "at a quota without Retry-After files spend all their retries on what another worker has used up",
        "HostFailures._excuse",
        "not refused or excused >= _EXCUSES",
        "True",
        (
            "tests/faults/test_failing_urls.py::test_quota_that_all_workers_use_up_and_that_begins_anew[503]",
        ),
    ),
    Mutant(
        "files fail with the status of others",
        "where a host answers 503 for a while, its files end with a status that they did not get",
        "HostFailures._failed",
        "schedule.give_up(host)",
        "schedule.fail_host(host, error.code, error.detail, now)",
        (
            "tests/faults/test_failing_urls.py::"
            "test_files_of_a_host_that_always_asks_to_wait_are_all_requested[503]",
        ),
    ),
    Mutant(
        "refused files slow down the others",
        "a host that always fails for some files is taken for one that wants fewer requests",
        "Throttle._judge",
        "self.steps < _STEPS",
        "True",
        ("tests/unit/test_core_throttle.py::test_files_that_fail_at_any_rate_do_not_slow_down_the_others",),
    ),
    Mutant(
        "measured before the first files have come",
        "where files take seconds, a host that refuses some at once is sent one request a second",
        "Throttle._record",
        "max(_SHORTEST, 2 * takes)",
        "_SHORTEST",
        ("tests/unit/test_core_throttle.py::test_files_that_fail_beside_others_that_take_long",),
    ),
    Mutant(
        "a host that refuses is given up as soon as one that cannot be reached",
        "a server that restarts for 17 s loses a quarter of its files",
        "HostFailures._pause",
        "unreached and (not host.answered)",
        "not host.answered",
        (
            "tests/faults/test_hostile_hosts.py::"
            "test_outage_causes_no_retry_storm_and_loses_nothing[0-1.5-auto]",
        ),
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
        "name asked for with each retry",
        "the name server gets a query for each attempt at a host that refuses connections",
        "Resolver.forget",
        "known is not None and monotonic() >= known.since + known.patience",
        "known is not None",
        ("tests/fuzz/test_fuzz_wire.py::test_fuzz[names]",),
    ),
    Mutant(
        "name not asked for again",
        "a host gets another address (failover): its files fail for a minute, although the new one serves",
        "Resolver.forget",
        "known.failed = True",
        "pass",
        (f"{MOVED}[refuses-auto]", f"{MOVED}[resets-requests]"),
    ),
    Mutant(
        "name of a dead host asked for each second",
        "thousands of dead hosts, whose addresses stay the same, are queries without end",
        "Resolver._keep",
        "before.patience * 2",
        "before.patience",
        ("tests/fuzz/test_fuzz_wire.py::test_fuzz[names]",),
    ),
    Mutant(
        "attempt charged for an address of before",
        "a host gets another address: with few retries, files fail that the new one serves",
        "_CountedConnection._connect_to_any_address",
        "not resolver.has_others(host, {*addresses, *self._failed})",
        "True",
        (f"{MOVED}[refuses-auto]", f"{MOVED}[refuses-requests]"),
    ),
    Mutant(
        "known addresses lost with the name server",
        "a host restarts while the name server is down, too: its files fail as dns",
        "Resolver._look_up",
        "known is not None and known.failed",
        "False",
        ("tests/fuzz/test_fuzz_wire.py::test_fuzz[names]",),
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
    Mutant(
        "all connections for one of many hosts",
        "a small host of a long list gets as many connections as a worker has",
        "per_host",
        "_PER_HOST_OF_MANY if hosts >= MANY_HOSTS else connections",
        "connections",
        (
            "tests/unit/test_core_connection_limit.py::test_share_of_one_host",
            "tests/faults/test_connections.py::test_one_of_many_hosts_gets_a_few_connections",
        ),
    ),
    Mutant(
        "refused connections ignored",
        "a server that allows few connections refuses all others, for the whole run",
        "Climb.observe",
        "self.limit = refused(limit)",
        "self.limit = limit",
        ("tests/faults/test_connections.py::test_connections_shrink_where_a_server_refuses_them",),
    ),
    Mutant(
        "number of connections not fixed",
        "--connections 32 opens more, where a server allows no more",
        "first_limit",
        "fixed(afford.connections) if chosen else adaptive(afford.connections, afford.ceiling)",
        "adaptive(1024, '')",
        ("tests/faults/test_connections.py::test_a_number_of_connections_fixes_it",),
    ),
    Mutant(
        "every TLS session read",
        "memory grows with each connection to a server that does not resume sessions",
        "SessionBudget.allows",
        "self._reads >= _FIRST_READS + (now - self._began) / _SECONDS_A_READ",
        "False",
        ("tests/unit/test_core_session_budget.py::test_server_that_never_resumes_is_not_read_for_ever",),
    ),
    Mutant(
        "closed connections in cycles",
        "a list over many hosts holds thousands of closed connections in memory",
        "PipelinedConnection.close",
        "self.parser.close()",
        "pass",
        (PIPELINE,),
    ),
    Mutant(
        "gain by chance counts",
        "connections are opened because of one second that was faster, and stay open",
        "measured",
        "gains == tries",
        "gains",
        ("tests/unit/test_core_connection_limit.py::test_small_gain_must_be_seen_twice",),
    ),
    Mutant(
        "one slow second counts",
        "after a second in which servers were slow, more connections are opened that gain nothing",
        "_grow",
        "best = max(limit.best, sample.rate)",
        "best = sample.rate",
        ("tests/unit/test_core_connection_limit.py::test_one_slow_second_is_no_reason_for_more",),
    ),
    Mutant(
        "trial without others to compare with",
        "a slow server that works on one request after the other gets many, and each waits for long",
        "trial_pays",
        "deep > usual * _TRIAL_GAIN",
        "True",
        (PIPELINE,),
    ),
    Mutant(
        "connections wait for the depth of slow servers",
        "where each response takes seconds, the first minute passes with few requests in flight",
        "OriginDepths.adapt",
        "self._try(state)",
        "pass",
        (PIPELINE, "tests/faults/test_connections.py::test_slow_server_gets_depth_while_connections_grow"),
    ),
    Mutant(
        "names looked up again",
        "a list over many hosts asks for each name twice",
        "Resolver._begin",
        "self._ahead.pop(host, None)",
        "",
        ("tests/fuzz/test_fuzz_wire.py::test_fuzz[names]",),
    ),
    Mutant(
        "a look-up is begun anew before its time is over",
        "a host fails as dns whose name is answered within --connect-timeout",
        "tries_within",
        "waited < seconds",
        "tries < 3",
        ("tests/fuzz/test_fuzz_wire.py::test_fuzz[names]",),
    ),
    Mutant(
        "a look-up has the time that c-ares gives it",
        "living hosts fail as dns where their names take longer than those before",
        "_CaresLookup.addresses",
        "monotonic() >= give_up",
        "True",
        (
            "tests/faults/test_names.py::"
            "test_living_hosts_whose_names_take_long_or_are_not_answered_for_a_while",
        ),
    ),
    Mutant(
        "silent connections are waited for",
        "a server whose listening socket has a short queue takes half a minute for the last of 300 files",
        "SlowRequests.run",
        "self._send_again(now)",
        "",
        ("tests/faults/test_silent_connections.py::test_server_of_the_standard_library_is_not_flooded",),
    ),
    Mutant(
        "what a host has not taken is sent again although it answers nobody",
        "a server that is held up gets each request several times",
        "Preemption.stranded",
        "job.host.answered > each.since",
        "True",
        (
            "tests/unit/test_core_preemption.py::"
            "test_silent_connection_is_left_for_a_new_one_only_where_the_host_answers_others",
        ),
    ),
    Mutant(
        "a file that a server takes long for is requested again",
        "a link that is valid once fails with 410",
        "is_unacknowledged",
        "fcntl.ioctl(sock.fileno(), _UNACKNOWLEDGED, bytes(4)) != bytes(4)",
        "True",
        (
            "tests/faults/test_silent_connections.py::"
            "test_file_that_a_server_takes_long_for_is_requested_once",
        ),
    ),
    Mutant(
        "what failed as a host went down sets a pace",
        "after a restart of its server a job goes on with a few requests a second for half a minute",
        "Trouble.blames_host",
        "self.throttle.interrupted(now)",
        "self.throttle.was_refused(now, began)",
        (
            "tests/unit/test_core_host_trouble.py::test_host_that_went_down_gets_no_pace_of_what_failed_then",
        ),
    ),
)
