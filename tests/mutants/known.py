"""Known bugs: each is a small exact replacement in the sources, what it would do to a user, and the
tests that must fail with it. Most were made once, here or in a comparable tool."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["KNOWN", "Mutant"]


@dataclass(frozen=True)
class Mutant:
    """``old``, which stands exactly once in ``path``, becomes ``new`` (and so with ``more``); all of
    ``tests`` together must notice. ``seconds``: what one test may take (a run that hangs is noticed by
    that)."""

    name: str
    harm: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]
    seconds: int = 60
    more: tuple[tuple[str, str], ...] = ()


PIPELINING = "tests/faults/test_pipelining.py::"
HOST = "tests/faults/test_host.py::"
PROCESSES = "tests/faults/test_processes.py::"
ANSWERS = "tests/faults/test_hostile_answers.py::"
SINKS = "tests/unit/test_sinks.py::"
SOURCES = "tests/integration/test_sources.py::"
IMPORTS = "tests/faults/test_imports.py::"
PROXIES = "tests/faults/test_proxies.py::"
WATCH = "tests/diagnostics/test_watch.py::"
NAMED = "tests/faults/test_named_files.py::"
TAKEN = "tests/faults/test_names_taken.py::"
SECRETS = "tests/faults/test_secrets.py::"
RESUME = "tests/integration/test_resume.py::"
LISTING = "tests/faults/test_hostile_listing.py::"

KNOWN = (
    # Publishing
    Mutant(
        "named too early",
        "a file has its final name before its bytes are there; a kill leaves half of it",
        "downloader/sinks/files.py",
        "        self.size = 0\n        self.crc = 0\n",
        "        self.size = 0\n        self.crc = 0\n"
        "        with contextlib.suppress(OSError):\n            self._link(leaf)\n",
        (
            f"{SINKS}test_a_name_appears_whole_or_not_at_all",
            "tests/faults/test_kill.py::test_kill_in_the_midst_of_large_files[supervisor]",
        ),
    ),
    Mutant(
        "names in the encoding of the locale",
        "a name that the locale cannot express ends the run, and every run after it",
        "downloader/sinks/stored.py",
        'UTF8 = sys.getfilesystemencoding().lower() == "utf-8"\n',
        "UTF8 = True\n",
        ("tests/faults/test_locale.py::test_names_outside_the_locale_are_stored[C-flat]",),
    ),
    Mutant(
        "small file named too early",
        "a disk that fills up leaves a truncated file under its final name",
        "downloader/sinks/files.py",
        "                    if _write(fd, body) == len(body):\n",
        "                    _link(str(fd), name, src_dir_fd=self.open_files, dst_dir_fd=root,"
        " follow_symlinks=True)\n"
        "                    if _write(fd, body) == len(body):\n"
        "                        return crc32(body), True\n",
        (f"{SINKS}test_a_small_file_that_cannot_be_written_has_no_name",),
    ),
    Mutant(
        "a body's rest read twice",
        "what follows a large body in one read is counted wrongly: a file gets the bytes of another",
        "downloader/lanes/reading.py",
        "            if self._left > 0:\n                taken = min(",
        "            if self._left > len(data):\n                taken = min(",
        ("tests/fuzz/test_fuzz_wire.py::test_fuzz[reader]",),
    ),
    Mutant(
        "an error whose page ends with the connection is forgotten",
        "the file comes to no end, and so the run does not",
        "downloader/lanes/pipeline.py",
        "            self._confirm()\n            self.route.closes(",
        "            self.route.closes(",
        ("tests/fuzz/test_fuzz_wire.py::test_fuzz[pipeline]",),
    ),
    Mutant(
        "a large body's beginning cut short",
        "what came of it with the headers is counted wrongly where it is left for the writer",
        "downloader/lanes/reading.py",
        "                here, self.body = len(body), _NONE\n",
        "                here, self.body = len(body) - 1, _NONE\n",
        ("tests/fuzz/test_fuzz_wire.py::test_fuzz[reader]",),
    ),
    Mutant(
        "short write taken for whole",
        "where a quota ends in the midst of a write, half a file is stored and counted",
        "downloader/sinks/files.py",
        "            while written < len(chunk):\n",
        "            while False:\n",
        (f"{SINKS}test_short_writes_and_full_disks",),
    ),
    Mutant(
        "counted before stored",
        "the journal says stored of a file that never got its name",
        "downloader/openbatch.py",
        "                if not put(job.name, body):\n",
        "                count += 1\n                if not put(job.name, body):\n",
        (f"{SOURCES}test_two_items_of_one_name",),
        more=(("                count += 1\n        except", "        except"),),
    ),
    Mutant(
        "over another",
        "of two items of one name the second replaces the first, and both count as stored",
        "downloader/core/ownership.py",
        "    return Decision.CONTESTED\n",
        "    return Decision.REPLACE\n",
        (f"{SOURCES}test_two_items_of_one_name",),
    ),
    Mutant(
        "a file that is there is trusted",
        "what lay there before, old or damaged, is taken for the download",
        "downloader/sinks/files.py",
        "            if file_matches(self._leaf, self._directory, self.size, self.crc):\n",
        "            if True:\n",
        (f"{HOST}test_what_was_there_before_is_never_trusted",),
    ),
    Mutant(
        "what is large is read",
        "a worker that finds a large file of old is taken for stuck and killed while it reads it",
        "downloader/sinks/files.py",
        "        unread = decision is Decision.REPLACE_FOREIGN and self.size > _LONG_TO_READ\n",
        "        unread = False\n",
        (f"{SINKS}test_what_is_long_to_read_is_replaced_unread_if_it_was_there_before",),
    ),
    # Who owns a name
    Mutant(
        "nothing is written down before a name appears",
        "after a kill in that instant nobody knows the file, and its name is taken for ever",
        "downloader/openbatch.py",
        "                states[index] = -3 - length\n",
        "",
        (f"{TAKEN}test_killed_between_a_file_s_name_and_its_mark[20-supervisor]",),
    ),
    Mutant(
        "nothing is written down before the name of a large file appears",
        "the same, for what takes the way of the requests lane",
        "downloader/openbatch.py",
        "        self.marks.intend(index, writer.size, writer.crc)\n",
        "",
        (f"{TAKEN}test_killed_between_a_file_s_name_and_its_mark_in_the_requests_lane",),
    ),
    Mutant(
        "a failure overwrites that a file is damaged",
        "the damaged file is never replaced: its name is taken for ever",
        "downloader/openbatch.py",
        "        self.states[index] = self.claims.get(index, UNTOUCHED)\n",
        "        self.states[index] = UNTOUCHED\n",
        (f"{TAKEN}test_a_damaged_file_is_replaced_though_the_server_failed_in_between",),
    ),
    Mutant(
        "a damaged file of an open batch is forgotten",
        "the job that was interrupted never comes to its end",
        "downloader/journal.py",
        "            self._claim(seq, row[1], dict.fromkeys((f.index for f in damaged), OWNED))\n",
        "            self._recount(seq, changed(self.marks(seq), row[1], dict.fromkeys("
        "(f.index for f in damaged), 0)))\n",
        (f"{TAKEN}test_a_damaged_file_is_known_to_be_the_item_s_own",),
    ),
    Mutant(
        "nobody is asked who owns a name",
        "a file that the user put there while the job was interrupted is in the way for ever",
        "downloader/supervisor.py",
        "        claims = self._destination.settle_names()\n",
        "        claims: dict[int, dict[int, int]] = {}\n",
        (f"{TAKEN}test_a_file_that_i_put_there_while_the_job_was_interrupted[server-replace]",),
    ),
    Mutant(
        "a name is thought to be nobody's",
        "the second item of a name replaces the first, in silence",
        "downloader/owners.py",
        "                owned.add(name)\n",
        "                pass\n",
        (f"{TAKEN}test_two_items_of_one_name_are_told_apart_in_every_run",),
    ),
    Mutant(
        "a file of the user is replaced in silence",
        "nobody is told, and nothing counts it",
        "downloader/sinks/files.py",
        "        return REPLACED if decision is Decision.REPLACE_FOREIGN else NEW\n",
        "        return NEW\n",
        (f"{TAKEN}test_a_file_of_mine_is_replaced_and_i_am_told",),
    ),
    Mutant(
        "the list of URLs is a file like any other",
        "a download overwrites the list that it came from",
        "downloader/openbatch.py",
        "        elif option := rules.reserved.get(item.name):\n",
        "        elif option := None:\n",
        (f"{TAKEN}test_a_download_named_like_the_list_of_urls",),
    ),
    Mutant(
        "a known name serves twice",
        "with --relist a second item of a name is skipped, and its bytes are nowhere",
        "downloader/known.py",
        "                if row is None or row[3:] not in ((None, None), (seq, index)):\n",
        "                if row is None:\n",
        ("tests/integration/test_relist.py::test_a_second_item_of_a_known_name_is_no_less_taken",),
    ),
    # Names
    Mutant(
        "name not checked at the door",
        "`../x` is written outside of the destination",
        "downloader/sinks/files.py",
        "        if not is_inside(path):\n",
        "        if not path:\n",
        (f"{SINKS}test_the_last_door",),
    ),
    Mutant(
        "name not escaped",
        "a server's `a/../../b`, newline or ESC becomes a path, or a line on the terminal",
        "downloader/core/naming.py",
        "        if _PLAIN(raw):\n            return SafeName(raw)\n",
        "        if raw:\n            return SafeName(raw)\n",
        ("tests/unit/test_core_naming.py::test_escape", f"{SOURCES}test_names_of_every_kind[flat]"),
    ),
    Mutant(
        "symlink followed",
        "a directory of the destination that is a link leads every file below it outside",
        "downloader/sinks/files.py",
        "                    below = os.open(segment, _DIRECTORY | os.O_NOFOLLOW, dir_fd=at)\n"
        "                except FileNotFoundError:\n",
        "                    below = os.open(segment, _DIRECTORY, dir_fd=at)\n"
        "                except FileNotFoundError:\n",
        (f"{SOURCES}test_a_directory_that_leads_outside[mirror]",),
    ),
    # Journal, cursor, ledger
    Mutant(
        "cursor ahead",
        "a killed run goes on behind names that nobody has fetched: lost, and exit 0",
        "downloader/sources/server.py",
        "            if taken < len(names):\n",
        "            if False:\n",
        (f"{PROCESSES}test_one_signal_drains[15-16]",),
    ),
    Mutant(
        "page that changed is not noticed",
        "names that came into a page between two runs are skipped",
        "downloader/sources/server.py",
        "        if taken and _crc(names[:taken], 0) != crc:\n",
        "        if False:\n",
        (f"{LISTING}test_a_page_that_changed_between_two_runs_is_handed_out_again",),
    ),
    Mutant(
        "a second ? in a listing's URL",
        "the pages behind the first are lost in silence where --list-path has a query",
        "downloader/core/listing.py",
        '    joint = "?" if "?" not in first else "" if first.endswith(("?", "&")) else "&"\n',
        '    joint = "?"\n',
        (f"{LISTING}test_a_list_path_with_a_query_loses_no_page[auto-/list?dir=a%20b/&caf%C3%A9&]",),
    ),
    Mutant(
        "half a line is a line for ever",
        "a list that a program still wrote to is never complete: its last URL was cut, and so was the next",
        "downloader/sources/lines.py",
        "        self._at = Place(end.offset, end.line, end.crc, (before.offset, before.crc))\n",
        "        self._at = end\n",
        (
            f"{RESUME}test_a_line_that_was_read_before_it_was_written_to_its_end[missing-half]",
            "tests/unit/test_lines.py::test_each_line_is_there_once_it_is_whole",
        ),
    ),
    Mutant(
        "marks believed without a look",
        "a file that was lost or changed after the ledger was written counts as stored",
        "downloader/openbatch.py",
        "        if _on_disk(sink, items[mark.index].name, mark):\n",
        "        if True:\n",
        (f"{HOST}test_what_changed_between_two_runs_is_fetched_again",),
    ),
    Mutant(
        "ledger cleared too early",
        "the supervisor is killed between an outcome and its row: the batch is fetched again",
        "downloader/ledger.py",
        "        slot.free()\n",
        "        slot.marks.clear()\n        slot.free()\n",
        ("tests/unit/test_ledger.py::test_a_reported_batch_stays_readable_until_the_slot_is_the_oldest",),
    ),
    Mutant(
        "what a drain gives back is forgotten",
        "after Ctrl-C the next run fetches all of the open batches again",
        "downloader/checkpoint.py",
        "                self._destination.keep({outcome.seq: outcome.marks})\n",
        "                pass\n",
        (f"{PROCESSES}test_one_signal_drains[15-16]",),
    ),
    Mutant(
        "sync after the journal",
        "after a power cut the journal says stored of files that are empty",
        "downloader/checkpoint.py",
        "        if came:\n            self._destination.sync()\n        done = False\n",
        "        done = False\n",
        ("tests/unit/test_checkpoint.py::test_nothing_is_counted_that_could_not_be_synced",),
        more=(
            (
                "        return done\n",
                "        if came:\n            self._destination.sync()\n        return done\n",
            ),
        ),
    ),
    Mutant(
        "a damaged row is believed",
        "a bit that turned round in the journal makes a file stored that never was",
        "downloader/rows.py",
        "                if row_sum(*row[:-1]) != row[-1]:\n",
        "                if not row:\n",
        ("tests/fuzz/test_fuzz_journal.py::test_what_was_never_written_is_not_believed",),
    ),
    Mutant(
        "lost rows are not missed",
        "a page that is lost takes batches and failures with it, and the job counts as complete",
        "downloader/journal.py",
        "        self._inspect()\n",
        "",
        ("tests/fuzz/test_fuzz_journal.py::test_what_was_never_written_is_not_believed",),
    ),
    Mutant(
        "failed files never tried again",
        "the same command again says complete and leaves out what had failed",
        "downloader/journal.py",
        '_UNFINISHED = "(done = 0 OR failed > 0)"',
        '_UNFINISHED = "(done = 0)"',
        (f"{HOST}test_retry_failed",),
    ),
    Mutant(
        "a second owner",
        "two runs write one journal and one destination",
        "downloader/destination.py",
        "fcntl.LOCK_EX | fcntl.LOCK_NB",
        "fcntl.LOCK_SH | fcntl.LOCK_NB",
        (f"{PROCESSES}test_two_runs_on_one_destination",),
    ),
    # What an answer is worth
    Mutant(
        "no length check, wire lane",
        "a body that ends early is stored as if it were whole",
        "downloader/lanes/pipeline.py",
        "        if error is None and isinstance(reader.body, FetchError):\n",
        "        if error is None and reader.answered:\n",
        (
            f"{PIPELINING}test_half_an_answer_and_then_the_end[4-End.CLOSE]",
            f"{ANSWERS}test_each_ends_as_it_must[auto-short]",
        ),
    ),
    Mutant(
        "no length check, requests lane",
        "a body that ends early is stored as if it were whole (requests does that)",
        "downloader/lanes/fetch.py",
        "                length = _length(response)\n                self._check_size(length)\n",
        "                length = _length(response)\n                self._check_size(length)\n"
        "                response.enforce_content_length = False\n",
        (f"{ANSWERS}test_each_ends_as_it_must[requests-short-large]",),
    ),
    Mutant(
        "cut gzip taken for whole",
        "a compressed body that ends early is stored, short (requests does that)",
        "downloader/lanes/fetch.py",
        "    if not inflate.eof:\n",
        "    if False:\n",
        (f"{ANSWERS}test_compressed_and_max_size",),
    ),
    Mutant(
        "no deadline",
        "a server that sends a byte now and then holds a connection for ever",
        "downloader/lanes/wire.py",
        "                if now - pipe.since > limit:\n",
        "                if False:\n",
        ("tests/faults/test_lanes.py::test_a_drip_ends_at_the_deadline",),
        25,
    ),
    # Pipelining
    Mutant(
        "re-sends lost",
        "what was asked for behind a broken answer is never fetched; the run hangs at the last percent",
        "downloader/lanes/pipeline.py",
        "        self._give_back(behind)\n        if first is not None:\n",
        "        if first is not None:\n",
        (f"{PIPELINING}test_half_an_answer_and_then_the_end[64-End.RESET]",),
        25,
    ),
    Mutant(
        "who shows where the limit is has failed",
        "a file has used up an attempt because a server closes each connection after so many",
        "downloader/lanes/pipeline.py",
        "spared = 2 if route.limit == self.served else 1",
        "spared = 1",
        ("tests/fuzz/test_fuzz_wire.py::test_fuzz[pipeline]",),
    ),
    Mutant(
        "what is answered is not charged with storing it",
        "a server that closes after so many is asked for less at a time than pays",
        "downloader/lanes/route.py",
        "debt = (owed - (stored.seconds - self._storing)) / elapsed",
        "debt = 0 * owed",
        ("tests/fuzz/test_fuzz_wire.py::test_fuzz[pipeline]",),
    ),
    Mutant(
        "answers matched from the wrong end",
        "a body is stored under another file's name",
        "downloader/lanes/reading.py",
        "            job = self.outstanding.popleft()\n        except",
        "            job = self.outstanding.pop()\n        except",
        (f"{PIPELINING}test_nothing_wrong_is_stored_by_the_wire_lane_in_order[64]",),
    ),
    Mutant(
        "an answer without a field passes for a plain one",
        "one that only the end of the connection ends fails as truncated",
        "downloader/lanes/reading.py",
        "tuple[bytes, ...] | None = None  #",
        "tuple[bytes, ...] | None = ()  #",
        ("tests/faults/test_lanes.py::test_what_is_not_a_plain_answer_is_handed_over_unharmed",),
    ),
    Mutant(
        "an answer is what the one before it was",
        "a file without a length fails as truncated; what is for the requests lane never gets there",
        "downloader/lanes/reading.py",
        "tuple(self._fields) == self._plain",
        "self._plain",
        ("tests/faults/test_lanes.py::test_each_answer_of_a_connection_is_judged_by_itself",),
    ),
    Mutant(
        "an interim answer counts as one",
        "after a 103 every answer is one file off",
        "downloader/lanes/reading.py",
        "        if self._status < 200:\n            return  # 100, 103",
        "        if self._status == 100:\n            return  # 100, 103",
        (f"{PIPELINING}test_interim_answers_are_not_answers[64]",),
    ),
    Mutant(
        "window stored before it is in step",
        "a server that gives one answer twice shifts all that follow under other names",
        "downloader/lanes/pipeline.py",
        "        if not self._deep and held:\n            self._confirm()\n",
        "        if held:\n            self._confirm()\n",
        (f"{PIPELINING}test_one_answer_too_many_is_nobodys_file[64-7-0.02]",),
    ),
    Mutant(
        "window stored although out of step",
        "the same, where it was noticed in time",
        "downloader/lanes/pipeline.py",
        "        if not self._deep:\n            self._confirm()\n        self.abandon()\n",
        "        self._confirm()\n        self.abandon()\n",
        (f"{PIPELINING}test_one_answer_too_many_is_nobodys_file[64-7-0.02]",),
    ),
    Mutant(
        "a close that is announced counts as in step",
        "one answer too many, and then a close with requests unanswered: files under other names",
        "downloader/lanes/pipeline.py",
        "            self.route.closes_early(self.served)\n            self.abandon()\n",
        "            self._confirm()\n            self.abandon()\n",
        ("tests/fuzz/test_fuzz_wire.py::test_fuzz[pipeline]",),
    ),
    Mutant(
        "all windows stored in one turn",
        "nothing is asked for meanwhile: a third of the speed",
        "downloader/lanes/turns.py",
        "        while self._line and left > 0:\n",
        "        while self._line:\n",
        ("tests/unit/test_turns.py::test_sockets_are_read_between_two_portions",),
    ),
    Mutant(
        "stores before it reads",
        "what the servers have sent lies there, and they have nothing to do: a twentieth of the speed",
        "downloader/lanes/turns.py",
        "timer(seconds, priority=loop.MINPRI)",
        "timer(seconds)",
        ("tests/unit/test_turns.py::test_sockets_are_read_between_two_portions",),
    ),
    Mutant(
        "rests without an acknowledgement",
        "the same, where the server's kernel keeps the last answer until we have acknowledged the others",
        "downloader/lanes/pipeline.py",
        "            self._stream.acknowledge()\n",
        "",
        ("tests/fuzz/test_fuzz_wire.py::test_fuzz[pipeline]",),
    ),
    Mutant(
        "waits behind a large file",
        "what was asked for behind it is answered for nobody; stored when the server closes, or never",
        "downloader/lanes/pipeline.py",
        " > self._counted or not outstanding:",
        " > self._counted:",
        ("tests/faults/test_pipelining.py::test_a_large_file_holds_nothing_up",),
    ),
    # Retries and hosts
    Mutant(
        "Retry-After unbounded",
        "a server that says 1,000,000,000 s stops the run for thirty years",
        "downloader/core/retry.py",
        "            if wait > most:\n                return most - random * most / 10\n",
        "            if wait > most:\n                return wait\n",
        (
            "tests/unit/test_core_retry.py::test_retry_after_wins_is_capped_and_spread",
            "tests/faults/test_hostile_hosts.py::test_retry_after_stops_all_workers[503-1000000000-1.0-2.5]",
        ),
        25,
    ),
    Mutant(
        "a pause of one worker alone",
        "the other workers go on asking a server that has said 429",
        "downloader/supervisor.py",
        "            self._crew.send_all(message, but=(number, FEEDER))\n",
        "            pass\n",
        ("tests/faults/test_hostile_hosts.py::test_retry_after_stops_all_workers[429-1-0.9-2.5]",),
    ),
    Mutant(
        "permanent errors retried",
        "each 404 is asked for six times",
        "downloader/core/retry.py",
        "        return retryable and attempt <= self.retries\n",
        "        return attempt <= self.retries\n",
        (f"{ANSWERS}test_none_is_asked_for_more_often_than_it_must[requests-404]",),
    ),
    # Leases
    Mutant(
        "credit leak, workers",
        "one worker is given every batch; memory grows with the number of files",
        "downloader/core/leases.py",
        "            holder.credit -= 1\n",
        "",
        (
            "tests/unit/test_core_leases.py::test_what_waits_goes_to_whoever_has_credit_the_least_loaded_first",
        ),
    ),
    Mutant(
        "credit leak, feeder",
        "the whole listing is read into memory while the first files are fetched",
        "downloader/feeder.py",
        "        self._left -= 1\n",
        "",
        (f"{LISTING}test_a_listing_is_read_no_faster_than_its_files_are_fetched",),
    ),
    Mutant(
        "suspects not alone",
        "files are set aside as poison that only were in flight beside the one that kills",
        "downloader/core/schedule.py",
        "            if self.active:\n                return None\n            self._solo.remove(solo)\n",
        "            self._solo.remove(solo)\n",
        (
            "tests/unit/test_core_schedule.py::test_suspects_go_alone",
            f"{PROCESSES}test_those_that_were_in_flight_with_it_are_not_set_aside",
        ),
    ),
    Mutant(
        "poison without end",
        "a file that kills its worker kills every worker, for ever",
        "downloader/core/leases.py",
        "                if deaths[index] >= DEATHS_TO_POISON:\n",
        "                if False:\n",
        (f"{PROCESSES}test_a_file_that_kills_its_workers_is_set_aside",),
        25,
    ),
    Mutant(
        "files read again",
        "a worker that dies after the list or the CA file was removed ends the run as a mistake of usage",
        "downloader/config.py",
        "        if self.files is None or self.files.paths != paths:\n",
        "        if True:\n",
        (f"{NAMED}test_a_worker_that_dies_after_its_files_were_removed_is_replaced",),
    ),
    Mutant(
        "OpenSSL asks for the password",
        "each worker asks at the same terminal, is killed as stuck, and leaves it without echo",
        "downloader/client_tls.py",
        "            context.load_cert_chain(cert, key, config.key_password)\n",
        "            context.load_cert_chain(cert, key)\n",
        (f"{NAMED}test_the_password_of_a_key_is_asked_for_once[PKCS#8]",),
    ),
    Mutant(
        "the last header of a name",
        "of two -H of one name the server sees one",
        "downloader/lanes/session.py",
        "            headers.add(first, value)\n",
        "            headers[first] = value\n",
        ("tests/faults/test_lanes.py::test_a_server_cannot_tell_the_lanes_apart",),
    ),
    # What is said
    Mutant(
        "exit 0 with failures",
        "the exit status lies",
        "downloader/report.py",
        "else int(failed > 0)\n",
        "else 0\n",
        ("tests/integration/test_report.py::test_failures",),
    ),
    Mutant(
        "silently short",
        "a listing that breaks off in the middle ends as complete",
        "downloader/supervisor.py",
        "        self.result.stop = self.result.stop or error\n        self._supply.give_up()\n",
        "        self._supply.give_up()\n",
        (f"{LISTING}test_a_broken_listing_ends_the_run_and_is_named[not JSON]",),
    ),
    # Secrets and safety
    Mutant(
        "imports from the current directory",
        "a downloaded json.py is run by the same command, started in DEST",
        "downloader/isolation.py",
        " if entry in own or _real(entry) not in unwanted]",
        "]",
        (f"{IMPORTS}test_download_into_the_current_directory_with_python_m",),
    ),
    Mutant(
        "PYTHONPATH handed on as it is",
        "an empty entry in it has the processes that we start run a downloaded json.py",
        "downloader/isolation.py",
        "[entry for entry in entries if os.path.isabs(entry) and _real(entry) not in unwanted]",
        "entries",
        (f"{IMPORTS}test_a_program_elsewhere_calls_download_while_it_stands_in_the_destination",),
    ),
    Mutant(
        "redirect keeps credentials",
        "Authorization, Cookie and -H headers go to whatever host a redirect names",
        "downloader/lanes/fetch.py",
        "                target = session.origin(url, bare=True)\n",
        "                target = session.origin(url)\n",
        ("tests/faults/test_hostile_tls.py::test_secrets_stay_with_the_origin_they_were_given_for",),
    ),
    Mutant(
        "secrets not redacted, URLs",
        "a token in a URL stands in the report and the failures",
        "downloader/addresses.py",
        "redact_url(item.url or self._base + item.name)",
        "(item.url or self._base + item.name)",
        ("tests/integration/test_cli.py::test_secrets_in_a_list",),
    ),
    Mutant(
        "secrets not redacted, messages",
        "a server that sends a key back in what is no HTTP has it printed, logged and written down",
        "downloader/lanes/translate.py",
        "shown(redact(_sentence(chain, code), secrets))",
        "shown(_sentence(chain, code))",
        ("tests/integration/test_cli.py::test_secrets_that_a_server_sends_back",),
    ),
    Mutant(
        "secrets in names, within the query",
        "the token of a URL within the query is in the name: on the terminal, on the disk, in the journal",
        "downloader/core/naming.py",
        '    public = without_secrets(query, query=True) if query else ""\n',
        "    public = query\n",
        (f"{SECRETS}test_a_secret_in_the_path_or_in_a_url_within_the_query_is_in_no_name[flat]",),
    ),
    Mutant(
        "secrets in names, path",
        "a session's id in the path of a URL is in the name",
        "downloader/core/naming.py",
        '    if not ("=" in raw or "%" in raw or "@" in raw):\n',
        "    if True:\n",
        (f"{SECRETS}test_a_secret_in_the_path_or_in_a_url_within_the_query_is_in_no_name[mirror]",),
    ),
    Mutant(
        "one name for all secrets",
        "of URLs that differ in a token only, the first is stored and the others fail",
        "downloader/core/naming.py",
        '    return _marked(name[:end], name[end:] + rest, f"{raw}?{query}", key)\n',
        '    return _marked(name[:end], name[end:] + rest, "", key)\n',
        (f"{SECRETS}test_urls_that_differ_in_a_secret_only_are_all_stored[mirror]",),
    ),
    Mutant(
        "a digest without its key",
        "whoever sees a name can test guesses of the secret that it stands for",
        "downloader/core/naming.py",
        "blake2b(data, digest_size=_DIGEST_BYTES, key=key)",
        "blake2b(data, digest_size=_DIGEST_BYTES)",
        ("tests/unit/test_core_naming.py::test_a_digest_stands_in_a_name_where_a_secret_stood",),
    ),
    Mutant(
        "recalled under other names than the journal's",
        "files of a job that goes on stand under names that the journal does not know; verify misses them",
        "downloader/sources/urls.py",
        "item if item.fault else msgspec.structs.replace(item, name=name)",
        "item",
        (f"{SECRETS}test_a_job_goes_on_under_the_names_that_it_began_with[flat]",),
    ),
    Mutant(
        "https to http",
        "a redirect takes what was asked for over TLS into the clear",
        "downloader/core/redirects.py",
        '    if scheme == "http" and urlsplit(url).scheme.lower() == "https":\n',
        "    if False:\n",
        ("tests/faults/test_hostile_tls.py::test_secrets_stay_with_the_origin_they_were_given_for",),
    ),
    Mutant(
        "certificates not verified",
        "anybody on the way may answer",
        "downloader/lanes/session.py",
        "    if config.insecure:\n",
        "    if True:\n",
        ("tests/integration/test_cli.py::test_certificate_that_is_not_trusted[Tls.EXPIRED]",),
    ),
    Mutant(
        "what waits is left when the disk is full",
        "half a gigabyte of temporary names stays in the destination",
        "downloader/lanes/wire.py",
        "                for _, rest in islice(held, at, None):\n                    let_go(rest)\n",
        "",
        (
            "tests/integration/test_sinks_run.py::"
            "test_nothing_is_left_of_large_files_that_wait_when_the_disk_is_full",
        ),
    ),
    Mutant(
        "waits for a large piece",
        "the end of a large file, which is a small piece, is never noticed",
        "downloader/lanes/stream.py",
        "            for least in (_WIDE, 1):\n",
        "            for least in (_WIDE,):\n",
        ("tests/faults/test_lanes.py::test_the_last_bytes_of_a_large_body_are_not_waited_for",),
    ),
    # Proxies
    Mutant(
        "tunnel's Host is the proxy",
        "through a proxy's tunnel the wrong site is asked, or none",
        "downloader/lanes/session.py",
        "            connection.set_tunnel(pool._tunnel_host, pool.port, pool.proxy_headers)\n",
        "            connection.set_tunnel(connection.host, pool.port, pool.proxy_headers)\n",
        (PROXIES + "test_a_server_behind_a_tunnel_cannot_tell_the_lanes_apart",),
    ),
    Mutant(
        "proxy's credentials to the server",
        "the password of the proxy is sent to every site",
        "downloader/lanes/session.py",
        "origin.headers\n        if origin.forwarded:\n",
        "{**origin.headers, **self._adapter.proxy_headers(origin.proxy)}\n        if origin.forwarded:\n",
        (PROXIES + "test_a_server_behind_a_tunnel_cannot_tell_the_lanes_apart",),
    ),
    Mutant(
        "past the proxy",
        "what must go through the proxy goes straight: nobody sees it, or a firewall stops it",
        "downloader/lanes/session.py",
        "        pool = self._adapter.get_connection_with_tls_context(request, True, origin.proxies)\n",
        "        pool = self._adapter.get_connection_with_tls_context(request, True)\n",
        (PROXIES + "test_a_forwarding_proxy_cannot_tell_the_lanes_apart",),
    ),
    # Diagnostics
    Mutant(
        "watch looks away while it writes",
        "what has the interpreter locked while a report is written is never told",
        "diagnostics/agent/https_agent/watch.py",
        "self._send(self._look_around)",
        "self._send()",
        (WATCH + "test_one_who_locks_the_interpreter_while_the_report_is_written_is_seen",),
    ),
)
