"""Bugs in names, secrets, leases, on disks that fail, in results shown at the end, and in the diagnosis."""

from __future__ import annotations

from known.mutant import Mutant

__all__ = ["KNOWN"]

SIGNALS = "tests/faults/test_signals.py::"
SINKS = "tests/unit/test_sinks.py::"
SOURCES = "tests/integration/test_sources.py::"
IMPORTS = "tests/faults/test_imports.py::"
WATCH = "tests/diagnostics/test_watch.py::"
NAMED = "tests/faults/test_named_files.py::"
SECRETS = "tests/faults/test_secrets.py::"
LISTING = "tests/faults/test_hostile_listing.py::"
WAITING = "tests/faults/test_waiting_files.py::"
DISKS = "tests/faults/test_file_systems.py::"
LEDGER = "tests/unit/test_ledger.py::"
TERMINALS = "tests/faults/test_lost_terminals.py::test_a_terminal_that_goes_away_does_not_end_a_run"
LINES = "tests/faults/test_progress_lines.py::test_rate_and_time_left_while_a_large_body_arrives"

KNOWN = (
    # Names
    Mutant(
        "name not checked by the sink",
        "`../x` is written outside of the destination",
        "FilesSink._locate",
        "is_inside(path)",
        "path",
        (f"{SINKS}test_sink_refuses_unsafe_names",),
    ),
    Mutant(
        "name not escaped",
        "a server's `a/../../b`, newline or ESC becomes a path, or a line on the terminal",
        "escape",
        "_PLAIN(raw)",
        "raw",
        ("tests/unit/test_core_naming.py::test_escape", f"{SOURCES}test_names_of_every_kind[flat]"),
    ),
    Mutant(
        "symlink followed",
        "a directory of the destination that is a link leads every file below it outside",
        "FilesSink._descend_once",
        "try:\n"
        "    below = os.open(segment, _DIRECTORY | os.O_NOFOLLOW, dir_fd=at)\n"
        "except FileNotFoundError:\n"
        "    with contextlib.suppress(FileExistsError):\n"
        "        os.mkdir(segment, dir_fd=at)\n"
        "    below = os.open(segment, _DIRECTORY | os.O_NOFOLLOW, dir_fd=at)\n"
        "except (NotADirectoryError, OSError) as error:\n"
        "    if error.errno in (errno.ENOTDIR, errno.ELOOP):\n"
        "        raise not_a_directory(at, segment, depth, name, self.layout) from error\n"
        "    raise",
        "try:\n"
        "    below = os.open(segment, _DIRECTORY, dir_fd=at)\n"
        "except FileNotFoundError:\n"
        "    with contextlib.suppress(FileExistsError):\n"
        "        os.mkdir(segment, dir_fd=at)\n"
        "    below = os.open(segment, _DIRECTORY | os.O_NOFOLLOW, dir_fd=at)\n"
        "except (NotADirectoryError, OSError) as error:\n"
        "    if error.errno in (errno.ENOTDIR, errno.ELOOP):\n"
        "        raise not_a_directory(at, segment, depth, name, self.layout) from error\n"
        "    raise",
        (f"{SOURCES}test_symlinked_directory_is_not_followed[mirror]",),
    ),
    # Leases
    Mutant(
        "credit leak, workers",
        "one worker is given every batch; memory grows with the number of files",
        "LeaseBook.assign",
        "holder.credit -= 1",
        "",
        ("tests/unit/test_core_leases.py::test_least_loaded_worker_with_credit_gets_the_next_batch",),
    ),
    Mutant(
        "credit leak, feeder",
        "the whole listing is read into memory while the first files are fetched",
        "_Inbox.spend",
        "self._credit -= 1",
        "",
        (f"{LISTING}test_a_listing_is_read_no_faster_than_its_files_are_fetched",),
    ),
    Mutant(
        "feeder of files falls silent",
        "it is killed, and another after it, while workers take long over what they have",
        "_Inbox._receive",
        "self._link.send(Heartbeat(Tally(), 0))",
        "pass",
        ("tests/cluster/test_slice_process.py::test_feeder_of_files_lives_without_gevent[list]",),
    ),
    Mutant(
        "suspects not alone",
        "files are set aside as poison that were only in flight beside the one that kills",
        "Scheduler.take",
        "if self.in_flight:\n    return None",
        "",
        (
            "tests/unit/test_core_scheduler.py::test_suspects_go_alone",
            f"{SIGNALS}test_files_in_flight_with_a_poison_file_are_stored",
        ),
    ),
    Mutant(
        "no limit of deaths",
        "a file that kills its worker kills every worker, for ever",
        "LeaseBook.died",
        "deaths[index] >= DEATHS_TO_POISON",
        "False",
        (f"{SIGNALS}test_file_that_kills_its_workers_is_poison",),
        25,
    ),
    Mutant(
        "files read again",
        "a worker that dies after the list or the CA file was removed ends the run with a usage error",
        "Config.__post_init__",
        "self.files is None or self.files.paths != paths",
        "True",
        (f"{NAMED}test_dead_worker_is_replaced_after_certificate_files_were_removed",),
    ),
    Mutant(
        "OpenSSL prompts for the password",
        "each worker prompts at the same terminal, is killed as stuck, and leaves it without echo",
        "load_client_certificate",
        "context.load_cert_chain(cert, key, config.key_password)",
        "context.load_cert_chain(cert, key)",
        (f"{NAMED}test_key_password_is_asked_for_once[PKCS#8]",),
    ),
    Mutant(
        "repeated header replaced by the last",
        "of two -H of one name the server sees one",
        "_add_given",
        "headers.add(first, value)",
        "headers[first] = value",
        ("tests/faults/test_lanes.py::test_both_clients_send_the_same_request",),
    ),
    # Results shown
    Mutant(
        "exit 0 with failures",
        "the exit code is wrong",
        "exit_code_of",
        "int(wrong > 0)",
        "0",
        ("tests/integration/test_report.py::test_failures",),
    ),
    Mutant(
        "truncated listing counts as complete",
        "a listing that breaks off in the middle ends as complete",
        "Supervisor._source_broke",
        "self.result.stop = self.result.stop or error",
        "",
        (f"{LISTING}test_a_broken_listing_ends_the_run_and_is_named[not JSON]",),
    ),
    # Secrets and safety
    Mutant(
        "imports from the current directory",
        "a downloaded json.py is run by the same command, started in DEST",
        "guard",
        "_guarded(sys.path, dest)",
        "[entry for entry in sys.path]",
        (f"{IMPORTS}test_download_into_the_current_directory_with_python_m",),
    ),
    Mutant(
        "DEST is handed on with the path of a program",
        "the processes that download() starts run a downloaded json.py",
        "handed_on",
        "_guarded(sys.path, dest)",
        "sys.path",
        (f"{IMPORTS}test_program_that_makes_its_own_path_calls_download",),
    ),
    Mutant(
        "SIGCHLD stays ignored",
        "each run below `trap '' CHLD` ends with exit code 4",
        "inherit_none",
        "signal.signal(signal.SIGCHLD, signal.SIG_DFL)",
        "pass",
        (f"{SIGNALS}test_program_that_ignores_and_blocks_signals_starts_a_run[files]",),
    ),
    Mutant(
        "PYTHONPATH passed on unchanged",
        "an empty entry makes the processes that we start run a downloaded json.py",
        "environment",
        "[entry for entry in entries if os.path.isabs(entry) and _real(entry) not in unwanted]",
        "entries",
        (f"{IMPORTS}test_program_with_the_destination_as_current_directory_calls_download",),
    ),
    Mutant(
        "redirect keeps credentials",
        "Authorization, Cookie and -H headers are sent to any host that a redirect names",
        "RequestsClient._open",
        "session.origin(url, bare=True)",
        "session.origin(url)",
        ("tests/faults/test_hostile_tls.py::test_secrets_are_sent_only_to_their_origin",),
    ),
    Mutant(
        "a login over segments of a path",
        "public URLs lose their path: a : in one segment and an @ in a later one are taken for a login",
        "redact_url",
        "_target(rest) if is_target and '://' in url[:start] else _rest(rest)",
        "_rest(rest)",
        ("tests/unit/test_core_redact.py::test_harmless_urls_stay",),
    ),
    Mutant(
        "login of a URL within a path is in its name",
        "mirror names the directory of /http://user:password@host/x with the password",
        "_contexts",
        "_SCHEME if precedes_host(each) else ''",
        "''",
        ("tests/unit/test_core_naming.py::test_digest_replaces_a_secret_in_a_name",),
    ),
    Mutant(
        "query and ? of a path have one name in a mirror",
        "a%3Fb and a?b are name-taken with --layout mirror, to which the message sends the user",
        "url_path",
        "_leaf(segments[-1], query, key, naming, contexts[-1], apart=True)",
        "_leaf(segments[-1], query, key, naming, contexts[-1])",
        ("tests/unit/test_core_naming.py::test_names_of_paths_that_look_like_logins_and_queries",),
    ),
    Mutant(
        "each layer of percent-encoding is a call within a call",
        "a URL in a list with hundreds of layers ends the run with a RecursionError",
        "_hides",
        "_unquoted(decoded) != decoded",
        "False",
        ("tests/unit/test_core_redact.py::test_layers_of_encoding_without_end",),
    ),
    Mutant(
        "secrets not redacted, URLs",
        "a token in a URL is in the report and the failures",
        "TaskBuilder.shown",
        "redact_url(item.url or self._base + item.name)",
        "item.url or self._base + item.name",
        ("tests/integration/test_cli_secrets.py::test_secrets_in_a_list",),
    ),
    Mutant(
        "secrets not redacted, messages",
        "a key that a server sends back in an invalid response is printed, logged and stored",
        "translate",
        "redact(_sentence(chain, code), secrets)",
        "_sentence(chain, code)",
        ("tests/integration/test_cli_secrets.py::test_secrets_that_a_server_sends_back",),
    ),
    Mutant(
        "secrets in names, within the query",
        "the token of a URL within the query is in the name: on the terminal, on the disk, in the journal",
        "_leaf",
        "without_secrets(query, naming, query=True) if query else ''",
        "query",
        (f"{SECRETS}test_secrets_in_path_or_nested_url_are_in_no_name[flat]",),
    ),
    Mutant(
        "secrets in names, path",
        "a session's id in the path of a URL is in the name",
        "_decoded",
        "not ('=' in raw or '%' in raw or '@' in raw)",
        "True",
        (f"{SECRETS}test_secrets_in_path_or_nested_url_are_in_no_name[mirror]",),
    ),
    Mutant(
        "one name for all secrets",
        "of URLs that differ in a token only, the first is stored and the others fail",
        "_leaf",
        "_marked(name[:end], tail + rest, f'{raw}?{query}', key, naming)",
        "_marked(name[:end], tail + rest, '', key, naming)",
        (f"{SECRETS}test_urls_that_differ_in_a_secret_only_are_all_stored[mirror]",),
    ),
    Mutant(
        "digest without a key",
        "guesses of a secret can be tested against a visible name",
        "_marked",
        "blake2b(data, digest_size=_DIGEST_BYTES, key=key)",
        "blake2b(data, digest_size=_DIGEST_BYTES)",
        ("tests/unit/test_core_naming.py::test_digest_replaces_a_secret_in_a_name",),
    ),
    Mutant(
        "recalled under other names than the journal's",
        "files of a resumed job have names that the journal does not know; verify misses them",
        "UrlLister.recall",
        "item if item.fault else msgspec.structs.replace(item, name=name)",
        "item",
        (f"{SECRETS}test_resumed_job_keeps_its_names[flat]",),
    ),
    Mutant(
        "https to http",
        "a redirect moves a request made over TLS to plain HTTP",
        "next_url",
        "scheme == 'http' and url[:6].lower() == 'https:'",
        "False",
        ("tests/faults/test_hostile_tls.py::test_secrets_are_sent_only_to_their_origin",),
    ),
    Mutant(
        "certificates not verified",
        "any host on the path can respond",
        "_made",
        "config.insecure",
        "True",
        ("tests/integration/test_cli.py::test_untrusted_certificate[Tls.EXPIRED]",),
    ),
    Mutant(
        "pending files left when the disk is full",
        "half a gigabyte of temporary files stays in the destination",
        "PipelinedClient._store_completed",
        "for _, rest in islice(completed, at, None):\n    discard_body(rest)",
        "",
        ("tests/integration/test_sinks_run.py::test_full_disk_leaves_no_partial_large_files",),
    ),
    Mutant(
        "waits for a large piece",
        "the end of a large file, which is a small piece, is never detected",
        "Transport.widen",
        "(_WIDE, 1)",
        "(_WIDE,)",
        ("tests/faults/test_lanes.py::test_end_of_a_large_body_is_read_at_once",),
    ),
    # Files that wait
    Mutant(
        "waiting files hold their batch's slot",
        "one file in a thousand that waits for its retries stops all others, again and again",
        "Narrowing.make_room",
        "now < self._not_before",
        "True",
        (f"{WAITING}test_files_that_wait_do_not_delay_the_others[files]",),
        120,
    ),
    Mutant(
        "failures of a narrowed batch forgotten",
        "files that had failed when their batch was narrowed are in no report, and are not tried again",
        "Journal._settle",
        "finished is None",
        "True",
        (f"{WAITING}test_files_that_wait_do_not_delay_the_others[files]",),
    ),
    Mutant(
        "states of a narrowed shard forgotten",
        "a shard whose last sample came late counts only that one",
        "ActiveBatch._packed",
        "not self._before or not isinstance(self.marks, Entries)",
        "True",
        (f"{WAITING}test_files_that_wait_do_not_delay_the_others[tar]",),
    ),
    Mutant(
        "entries reused at once",
        "after a kill, the outcome of a narrowed batch is neither in the ledger nor in the journal",
        "Ledger.close",
        "self._reported += slot.places.values()",
        "self._free += slot.places.values()",
        (f"{LEDGER}test_entries_are_reused_when_two_leases_have_followed_the_outcome",),
    ),
    Mutant(
        "slot of a narrowed batch ignored",
        "after a kill, files are fetched again that were stored before their batch was narrowed",
        "read_merged",
        "item_states.merge(before, packed, count)",
        "packed",
        (f"{LEDGER}test_narrowed_batch_has_the_states_of_both_its_places",),
    ),
    # Progress
    Mutant(
        "bytes that arrive do not count",
        "while a large file arrives, the progress says 0 B/s for hours",
        "Progress.update",
        "totals.tally.bytes + totals.receiving.bytes",
        "totals.tally.bytes",
        (f"{LINES}[auto-False]",),
    ),
    Mutant(
        "time left by files alone",
        "while the last file, a large one, arrives, the progress says that milliseconds are left",
        "seconds_left",
        "left <= receiving.files",
        "False",
        (
            f"{LINES}[auto-True]",
            "tests/unit/test_core_progress_estimate.py::test_time_left_is_said_where_it_is_known",
        ),
    ),
    # What ends a process
    Mutant(
        "a removed current directory is a defect",
        "who stands in a directory that was removed is asked to report a defect",
        "main",
        "isinstance(error, FileNotFoundError) and (lost := _lost_directory())",
        "(lost := '')",
        ("tests/integration/test_cli.py::test_current_directory_that_was_removed",),
    ),
    Mutant(
        "a lost terminal of standard error ends the run",
        "a closed window ends a run that nohup should keep, with 4, and without the report",
        "outlive_stderr",
        "sys.stderr is not sys.__stderr__ or sys.stderr is None",
        "True",
        (TERMINALS,),
    ),
    Mutant(
        "a lost terminal of standard output is a full disk",
        "the exit code is 4, and 0 or 130 in the report that was written before",
        "has_no_reader",
        "error.errno != errno.EIO",
        "True",
        (TERMINALS,),
    ),
    Mutant(
        "Ctrl-C in an import is a traceback",
        "who presses Ctrl-C at once gets Python's traceback from each process of the terminal's group",
        "begin",
        "sys.exit(130)",
        "raise",
        ("tests/integration/test_cli.py::test_interrupt_while_modules_are_imported",),
    ),
    Mutant(
        "kills of ancestors count",
        "a process that someone killed seems to have exceeded a memory limit, as others did elsewhere",
        "oom_kills",
        "directories(read, '')[:1]",
        "directories(read, '')",
        (
            "tests/unit/test_core_cgroups.py::"
            "test_processes_that_were_killed_for_want_of_memory_are_those_of_the_group",
        ),
    ),
    Mutant(
        "a killed process has no cause",
        "a publisher of shards that needs more memory than there is dies, and what to change is not told",
        "why_killed",
        "signal == SIGKILL",
        "False",
        ("tests/integration/test_cgroup_limits.py::test_a_memory_limit_that_kills_is_named",),
    ),
    Mutant(
        "a file is taken for a server",
        "who gives the URL of a file reads about JSON, and not how to fetch it",
        "parse_listing",
        "f'; {NO_SERVER}' if first else ''",
        "''",
        ("tests/integration/test_cli.py::test_source_is_no_server_but_a_file",),
    ),
    # Disks
    Mutant(
        "a worker that died of SIGBUS is replaced",
        "on a full btrfs workers die one after the other, and their files are poison",
        "Supervisor._reap",
        "refused and self._phase not in ENDING",
        "False",
        (DISKS + "test_refused_page_ends_the_run_and_blames_no_file",),
    ),
    Mutant(
        "a DEST that cannot be opened has no journal",
        "a disk that fails, or that nobody serves any more: as if nothing had been downloaded there",
        "_opened",
        "(FileNotFoundError, NotADirectoryError)",
        "OSError",
        (DISKS + "test_home_that_cannot_be_opened_is_not_called_absent",),
    ),
    # Diagnostics
    Mutant(
        "watch does not sample while it writes",
        "code that holds the interpreter lock while a report is written is never reported",
        "Watch._watch",
        "self._send(self._look_around)",
        "self._send()",
        (WATCH + "test_interpreter_lock_held_during_a_report_is_reported",),
    ),
)
