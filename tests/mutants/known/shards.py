"""Bugs in shards and in their numbers."""

from __future__ import annotations

from known.mutant import Mutant

__all__ = ["KNOWN"]

PARTS = "tests/unit/test_part_recovery.py::"
NUMBERS = "tests/unit/test_shard_numbers.py::"
RUN = "tests/integration/test_shards_run.py::"
KILLS = "tests/faults/test_shard_kills.py::"

KNOWN = (
    Mutant(
        "torn sample counts as whole",
        "after a power cut a shard has a sample with the bytes of nothing",
        "_checked",
        "(content.size, digest.hexdigest()) == (stated.size, stated.sha256)",
        "True",
        (f"{PARTS}test_damaged_sample_is_taken_out",),
    ),
    Mutant(
        "torn tail of a part is kept",
        "after a kill, samples are appended behind a torn one, and no reader finds them",
        "recover",
        "os.ftruncate(fd, end)",
        "pass",
        (f"{PARTS}test_torn_tail_is_cut_wherever_it_is_torn",),
    ),
    Mutant(
        "published further shard used again",
        "a second --retry-failed replaces the shard of the first",
        "ShardNumbers.finish",
        "self._rows.put('shard', row[0], seq, 1)",
        "pass",
        (
            f"{NUMBERS}test_further_shards_are_behind_all_others_and_used_until_they_are_published",
            f"{RUN}test_what_has_failed_goes_into_a_further_shard_with_its_own_keys",
        ),
    ),
    Mutant(
        "name of a shard counts as the shard",
        "after a power cut, a shard whose bytes are lost counts as published",
        "ShardSink._is_published",
        "stats is not None and are_whole(root, stats.files)",
        "True",
        (f"{KILLS}test_published_shard_without_an_outcome_counts_only_if_it_is_whole",),
    ),
    Mutant(
        "failed items before the rest of the source",
        "after a kill the rest of the list comes into other shards than without it",
        "BatchQueue.__init__",
        "self._recalls = journal.unsettled()",
        "self._recalls = journal.unfinished()",
        (f"{RUN}test_failures_and_kills_move_nothing_to_another_shard",),
    ),
)
