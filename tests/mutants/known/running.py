"""Bugs in names, secrets, leases, in what is said at the end, and in the diagnosis."""

from __future__ import annotations

from known.mutant import Mutant

__all__ = ["KNOWN"]

PROCESSES = "tests/faults/test_processes.py::"
SINKS = "tests/unit/test_sinks.py::"
SOURCES = "tests/integration/test_sources.py::"
IMPORTS = "tests/faults/test_imports.py::"
WATCH = "tests/diagnostics/test_watch.py::"
NAMED = "tests/faults/test_named_files.py::"
SECRETS = "tests/faults/test_secrets.py::"
LISTING = "tests/faults/test_hostile_listing.py::"

KNOWN = (
    # Names
    Mutant(
        "name not checked at the door",
        "`../x` is written outside of the destination",
        "FilesSink._locate",
        "is_inside(path)",
        "path",
        (f"{SINKS}test_the_last_door",),
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
        "FilesSink._descend",
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
        (f"{SOURCES}test_a_directory_that_leads_outside[mirror]",),
    ),
    # Leases
    Mutant(
        "credit leak, workers",
        "one worker is given every batch; memory grows with the number of files",
        "LeaseBook.assign",
        "holder.credit -= 1",
        "",
        (
            "tests/unit/test_core_leases.py::test_what_waits_goes_to_whoever_has_credit_the_least_loaded_first",
        ),
    ),
    Mutant(
        "credit leak, feeder",
        "the whole listing is read into memory while the first files are fetched",
        "_CreditCount.spend",
        "self._left -= 1",
        "",
        (f"{LISTING}test_a_listing_is_read_no_faster_than_its_files_are_fetched",),
    ),
    Mutant(
        "suspects not alone",
        "files are set aside as poison that only were in flight beside the one that kills",
        "Scheduler.take",
        "if self.active:\n    return None",
        "",
        (
            "tests/unit/test_core_scheduler.py::test_suspects_go_alone",
            f"{PROCESSES}test_those_that_were_in_flight_with_it_are_not_set_aside",
        ),
    ),
    Mutant(
        "poison without end",
        "a file that kills its worker kills every worker, for ever",
        "LeaseBook.died",
        "deaths[index] >= DEATHS_TO_POISON",
        "False",
        (f"{PROCESSES}test_a_file_that_kills_its_workers_is_set_aside",),
        25,
    ),
    Mutant(
        "files read again",
        "a worker that dies after the list or the CA file was removed ends the run as a mistake of usage",
        "Config.__post_init__",
        "self.files is None or self.files.paths != paths",
        "True",
        (f"{NAMED}test_a_worker_that_dies_after_its_files_were_removed_is_replaced",),
    ),
    Mutant(
        "OpenSSL asks for the password",
        "each worker asks at the same terminal, is killed as stuck, and leaves it without echo",
        "load_client_certificate",
        "context.load_cert_chain(cert, key, config.key_password)",
        "context.load_cert_chain(cert, key)",
        (f"{NAMED}test_the_password_of_a_key_is_asked_for_once[PKCS#8]",),
    ),
    Mutant(
        "the last header of a name",
        "of two -H of one name the server sees one",
        "_add_given",
        "headers.add(first, value)",
        "headers[first] = value",
        ("tests/faults/test_lanes.py::test_a_server_cannot_tell_the_lanes_apart",),
    ),
    # What is said
    Mutant(
        "exit 0 with failures",
        "the exit status lies",
        "make",
        "int(failed > 0)",
        "0",
        ("tests/integration/test_report.py::test_failures",),
    ),
    Mutant(
        "silently short",
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
        "[entry for entry in sys.path if entry in own or _real(entry) not in unwanted]",
        "[entry for entry in sys.path]",
        (f"{IMPORTS}test_download_into_the_current_directory_with_python_m",),
    ),
    Mutant(
        "PYTHONPATH handed on as it is",
        "an empty entry in it has the processes that we start run a downloaded json.py",
        "environment",
        "[entry for entry in entries if os.path.isabs(entry) and _real(entry) not in unwanted]",
        "entries",
        (f"{IMPORTS}test_a_program_elsewhere_calls_download_while_it_stands_in_the_destination",),
    ),
    Mutant(
        "redirect keeps credentials",
        "Authorization, Cookie and -H headers go to whatever host a redirect names",
        "RequestsClient._open",
        "session.origin(url, bare=True)",
        "session.origin(url)",
        ("tests/faults/test_hostile_tls.py::test_secrets_stay_with_the_origin_they_were_given_for",),
    ),
    Mutant(
        "secrets not redacted, URLs",
        "a token in a URL stands in the report and the failures",
        "TaskBuilder.shown",
        "redact_url(item.url or self._base + item.name)",
        "item.url or self._base + item.name",
        ("tests/integration/test_cli.py::test_secrets_in_a_list",),
    ),
    Mutant(
        "secrets not redacted, messages",
        "a server that sends a key back in what is no HTTP has it printed, logged and written down",
        "translate",
        "redact(_sentence(chain, code), secrets)",
        "_sentence(chain, code)",
        ("tests/integration/test_cli.py::test_secrets_that_a_server_sends_back",),
    ),
    Mutant(
        "secrets in names, within the query",
        "the token of a URL within the query is in the name: on the terminal, on the disk, in the journal",
        "_leaf",
        "without_secrets(query, query=True) if query else ''",
        "query",
        (f"{SECRETS}test_a_secret_in_the_path_or_in_a_url_within_the_query_is_in_no_name[flat]",),
    ),
    Mutant(
        "secrets in names, path",
        "a session's id in the path of a URL is in the name",
        "_decoded",
        "not ('=' in raw or '%' in raw or '@' in raw)",
        "True",
        (f"{SECRETS}test_a_secret_in_the_path_or_in_a_url_within_the_query_is_in_no_name[mirror]",),
    ),
    Mutant(
        "one name for all secrets",
        "of URLs that differ in a token only, the first is stored and the others fail",
        "_leaf",
        "_marked(name[:end], name[end:] + rest, f'{raw}?{query}', key)",
        "_marked(name[:end], name[end:] + rest, '', key)",
        (f"{SECRETS}test_urls_that_differ_in_a_secret_only_are_all_stored[mirror]",),
    ),
    Mutant(
        "a digest without its key",
        "whoever sees a name can test guesses of the secret that it stands for",
        "_marked",
        "blake2b(data, digest_size=_DIGEST_BYTES, key=key)",
        "blake2b(data, digest_size=_DIGEST_BYTES)",
        ("tests/unit/test_core_naming.py::test_a_digest_stands_in_a_name_where_a_secret_stood",),
    ),
    Mutant(
        "recalled under other names than the journal's",
        "files of a job that goes on stand under names that the journal does not know; verify misses them",
        "UrlLister.recall",
        "item if item.fault else msgspec.structs.replace(item, name=name)",
        "item",
        (f"{SECRETS}test_a_job_goes_on_under_the_names_that_it_began_with[flat]",),
    ),
    Mutant(
        "https to http",
        "a redirect takes what was asked for over TLS into the clear",
        "next_url",
        "scheme == 'http' and urlsplit(url).scheme.lower() == 'https'",
        "False",
        ("tests/faults/test_hostile_tls.py::test_secrets_stay_with_the_origin_they_were_given_for",),
    ),
    Mutant(
        "certificates not verified",
        "anybody on the way may answer",
        "_tls_context",
        "config.insecure",
        "True",
        ("tests/integration/test_cli.py::test_certificate_that_is_not_trusted[Tls.EXPIRED]",),
    ),
    Mutant(
        "what waits is left when the disk is full",
        "half a gigabyte of temporary names stays in the destination",
        "PipelinedClient._store_completed",
        "for _, rest in islice(completed, at, None):\n    discard_body(rest)",
        "",
        (
            "tests/integration/test_sinks_run.py::"
            "test_nothing_is_left_of_large_files_that_wait_when_the_disk_is_full",
        ),
    ),
    Mutant(
        "waits for a large piece",
        "the end of a large file, which is a small piece, is never noticed",
        "Transport.widen",
        "(_WIDE, 1)",
        "(_WIDE,)",
        ("tests/faults/test_lanes.py::test_the_last_bytes_of_a_large_body_are_not_waited_for",),
    ),
    # Diagnostics
    Mutant(
        "watch looks away while it writes",
        "what has the interpreter locked while a report is written is never told",
        "Watch._watch",
        "self._send(self._look_around)",
        "self._send()",
        (WATCH + "test_one_who_locks_the_interpreter_while_the_report_is_written_is_seen",),
    ),
)
