"""Bugs in what is done about robots.txt, responses that refuse their use, and content codings."""

from __future__ import annotations

from known.mutant import Mutant

__all__ = ["KNOWN"]

ROBOTS = "tests/integration/test_robots.py::"
RESPECT = "tests/integration/test_respect.py::"
CODING = "tests/faults/test_content_coding.py::"
RULES = "tests/unit/test_core_robots.py::"

KNOWN = (
    Mutant(
        "word that is no coding fails its file",
        "with --compressed, files of a bucket whose Content-Encoding is aws-chunked or none fail for good",
        "read_codings",
        "tuple(word for word in words if word in _REGISTERED)",
        "tuple(words)",
        (f"{CODING}test_words_that_are_no_coding[none]",),
    ),
    Mutant(
        "a robots.txt in pieces is never taken",
        "the worker computes for ever once the response to robots.txt arrives in two pieces",
        "_Batch.put_all",
        "isinstance(body, (bytes, bytearray))",
        "type(body) is bytes",
        (f"{ROBOTS}test_robots_txt_in_two_pieces[auto]",),
        25,
    ),
    Mutant(
        "redirect targets not checked",
        "what robots.txt disallows is requested after a redirect",
        "RequestsClient._open",
        "self._permit is not None and not self._permit(url, origin)",
        "False",
        (f"{ROBOTS}test_redirect_target_that_is_disallowed",),
    ),
    Mutant(
        "names of a server not checked",
        "the files of a file server are requested whatever its robots.txt says",
        "Worker.__init__",
        "gate.admit_all if config.robots else self.schedule.add_all",
        "self.schedule.add_all",
        (f"{ROBOTS}test_file_server_as_source",),
    ),
    Mutant(
        "files of a dead host fail as robots",
        "a name that does not exist is reported as a refusal",
        "outcome_of",
        "FAILURES[code].blame is Blame.HOST or code in ('bad-url', 'internal', 'poison')",
        "False",
        (f"{ROBOTS}test_hosts_that_cannot_be_reached_fail_as_without_the_option",),
    ),
    Mutant(
        "server errors allow everything",
        "a host whose robots.txt fails is read without asking",
        "outcome_of",
        "code.startswith('http-4')",
        "True",
        (f"{ROBOTS}test_each_answer_means_what_the_rfc_says",),
    ),
    Mutant(
        "cut rule counts",
        "a rule that is cut off at 500 KiB disallows more than it says",
        "parse",
        "body[:MAX_SIZE].rpartition(b'\\n')[0]",
        "body[:MAX_SIZE]",
        (f"{RULES}test_only_the_first_bytes_count", f"{ROBOTS}test_long_robots_txt"),
    ),
    Mutant(
        "held files do not count as resting",
        "a worker asks for nothing more while it waits for robots.txt",
        "Scheduler.hold",
        "self.resting += change",
        "",
        ("tests/unit/test_held_jobs.py::test_held_jobs_rest",),
    ),
    Mutant(
        "robots.txt refused by its own tag",
        "a robots.txt with X-Robots-Tag: noindex makes all files of its host fail",
        "ObservingParser.on_headers_complete",
        "task is None or task.robots_txt",
        "task is None",
        (f"{RESPECT}test_with_robots_txt_and_its_own_tag",),
    ),
    Mutant(
        "second line of X-Robots-Tag lost",
        "what the second of two fields refuses is stored",
        "_add",
        "first is not value and name.lower() in _ALL_LINES",
        "False",
        (f"{RESPECT}test_what_refuses_its_use_is_not_stored",),
    ),
    Mutant(
        "brotli without a bound",
        "a few hundred bytes fill the memory",
        "_unbrotlied",
        "decoder.process(block, output_buffer_limit=CHUNK)",
        "decoder.process(block)",
        (f"{CODING}test_decoded_bodies_keep_all_checks[br]",),
    ),
    Mutant(
        "truncated brotli counts as complete",
        "a compressed body that ends early is stored, short",
        "_unbrotlied",
        "not decoder.is_finished()",
        "False",
        (f"{CODING}test_decoded_bodies_keep_all_checks[br]",),
    ),
    Mutant(
        "truncated zstd counts as complete",
        "a compressed body that ends early is stored, short",
        "_unzstded",
        "not decoder.eof",
        "False",
        (f"{CODING}test_decoded_bodies_keep_all_checks[zstd]",),
    ),
)
