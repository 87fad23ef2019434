"""Bugs that let one thing hold a hub: a slow disk, a host, a list."""

from __future__ import annotations

from syntax import Replacement

from known.mutant import Mutant

__all__ = ["KNOWN"]

DISK = "tests/faults/test_slow_disk.py::"
COPIED = f"{DISK}test_large_contents_are_copied_into_a_shard_while_others_are_appended"
COMPARED = f"{DISK}test_large_files_are_compared_while_others_are_stored"
LONG = "tests/faults/test_long_work.py::"
PARTS = "tests/unit/test_part_recovery.py::"

KNOWN = (
    Mutant(
        "content copied in the hub",
        "a body of 2 GB on a slow disk silences its worker; it is killed three times, and a good file lost",
        "Part.copy",
        "in_thread(_copy, source, at, target, room.content + at, min(PIECE, room.size - at))",
        "_copy(source, at, target, room.content + at, min(PIECE, room.size - at))",
        (COPIED,),
        120,
    ),
    Mutant(
        "room not reserved",
        "a small sample is written over the large one that is being copied",
        "Part.reserve",
        "self._end = room.end",
        "",
        (f"{PARTS}test_content_of_a_file_is_copied_while_others_are_appended",),
    ),
    Mutant(
        "room that is given up stays",
        "a copy that fails makes a damaged shard of the part",
        "Part.mend",
        "in_thread(recover, self._path, {})",
        "",
        (f"{PARTS}test_room_that_is_given_up_is_gone_in_the_end",),
    ),
    Mutant(
        "temporary file stays open",
        "a shard of large files takes a descriptor, and its bytes on the disk twice, for each of them",
        "SampleWriter.publish",
        "self.abort()",
        "",
        (f"{DISK}test_no_more_is_fetched_than_can_be_stored[requests]",),
        120,
    ),
    Mutant(
        "large file closed in the hub",
        "a body of 2 GB that is refused, copied or replaced: nothing else is stored while it is freed",
        "close_file",
        "size <= PIECE",
        "True",
        (f"{DISK}test_large_files_are_removed_while_others_are_stored[files]", COPIED),
        120,
    ),
    Mutant(
        "more fetched than stored",
        "large files are fetched into temporary files as long as there are any, until none can be opened",
        "PipelinedClient._store",
        "self._owner.occupy(task.host)",
        "",
        (f"{DISK}test_no_more_is_fetched_than_can_be_stored[auto]",),
        120,
        more=(
            Replacement(
                "PipelinedClient.next_tasks", "len(self._storing.greenlets) >= self.connections", "False"
            ),
            Replacement("PipelinedClient._store_later", "owner.release(task.host)", ""),
        ),
    ),
    Mutant(
        "standing file compared in the hub",
        "a large file that has the name is read while everything else waits",
        "_crc_in_pieces",
        "in_thread(crc_of, fd, crc, PIECE)",
        "crc_of(fd, crc, PIECE)",
        (COMPARED,),
        120,
    ),
    Mutant(
        "stored file verified in the hub",
        "after a kill, large files are read while everything else waits",
        "_on_disk",
        "sink.verify(written) if written.size <= READ_AT_ONCE else in_thread(sink.verify, written)",
        "sink.verify(written)",
        (COMPARED,),
        120,
    ),
    Mutant(
        "body that never waits holds the hub",
        "a server that is faster than the disk lets no other file go on until its body has ended",
        "RequestsClient._stream",
        "slow = monotonic() - began > BUSY",
        "slow = False",
        (COPIED, COMPARED),
        120,
        more=(Replacement("RequestsClient._stream", "pause()", ""),),
    ),
    Mutant(
        "path compared with every rule",
        "a robots.txt of wildcards and long URLs take seconds for each URL, and other hosts wait",
        "_Patterns._candidates",
        "for size in self._grams:\n"
        "    grams = {path[at:at + size] for at in range(len(path) - size + 1)}\n"
        "    for gram in grams & self._by_gram.keys():\n"
        "        yield from self._by_gram[gram]",
        "for rules in self._by_gram.values():\n    yield from rules",
        (f"{LONG}test_robots_txt_of_wildcards_and_long_urls",),
        120,
        more=(Replacement("_Patterns.why_not", "_MOST_WORK", "10 ** 18"),),
    ),
    Mutant(
        "unbounded comparison with rules",
        "a host that chooses rules and paths takes seconds for each URL",
        "_Patterns.why_not",
        "_MOST_WORK",
        "10 ** 18",
        ("tests/unit/test_core_robots.py::test_rules_are_found_by_what_a_path_contains",),
    ),
    Mutant(
        "page of long URLs in one go",
        "the feeder is silent while it names them, is killed for that, and the list ends there",
        "ItemMaker._names",
        "pause()",
        "",
        (f"{LONG}test_list_of_long_urls",),
        120,
    ),
    Mutant(
        "feeder without a hub works in silence",
        "it is killed where a page takes long, and the list ends there",
        "give_way",
        "_alone[0]()",
        "pass",
        (f"{LONG}test_list_of_long_urls_in_a_process_without_a_hub",),
        120,
    ),
    Mutant(
        "names numbered in one go",
        "the feeder is silent while it numbers items of one name",
        "Duplicates._all_settled",
        "pause()",
        "",
        (f"{LONG}test_many_items_of_one_name",),
        120,
    ),
)
