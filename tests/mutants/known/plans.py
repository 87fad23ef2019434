"""Known bugs of the plan of a job over many machines."""

from __future__ import annotations

from known.mutant import Mutant

__all__ = ["KNOWN"]

BUCKET = "tests/cluster/test_plan_bucket.py::"

KNOWN = (
    Mutant(
        "a kept file is the item's own to a slice that fetches it again",
        "with --existing keep a file of the user that is edited later is overwritten, after a `verify`",
        "_again",
        "damaged.state == UNOWNED",
        "False",
        ("tests/cluster/test_slice_kept_files.py::test_kept_file_is_edited[mine]",),
    ),
    Mutant(
        "an answer of a bucket that was lost",
        "a slice removes the failures and rows that its own record names",
        "BucketFiles.create",
        "self.put_if(name, content, '') is not None or self.read(name) == content",
        "self.put_if(name, content, '') is not None",
        (f"{BUCKET}test_files_of_a_plan[moto]",),
    ),
    Mutant(
        "an owner that was taken over goes on",
        "two drivers run one plan in a bucket",
        "BucketLock._beat",
        "self._lost = 'another has taken it over'",
        "pass",
        (f"{BUCKET}test_owner_that_is_gone_is_taken_over[moto]",),
    ),
    Mutant(
        "a store that ignores conditions",
        "two attempts at a slice both count",
        "BucketFiles.check",
        "self.put_if(name, other, '') is None and self.put_if(name, other, '\"0\"') is None",
        "True",
        (f"{BUCKET}test_store_that_ignores_conditions_is_refused",),
    ),
    Mutant(
        "slice files of two drivers",
        "the record of a slice has the items of another driver",
        "PlanDirectory.__init__",
        "f'.{os.urandom(4).hex()}' if self.files.contended else ''",
        "''",
        (f"{BUCKET}test_attempt_at_a_slice[moto]",),
    ),
    Mutant(
        "an engine begins a journal beside a plan",
        "verify writes down damage in the plan, and the command that goes on reads the journal: exit 0",
        "Destination._open",
        "not config.slice and not config.restart",
        "False",
        ("tests/cluster/test_slice_shards.py::test_an_engine_refuses_the_record_of_the_other",),
    ),
)
