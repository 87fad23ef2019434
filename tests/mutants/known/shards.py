"""Bugs in shards and in their numbers."""

from __future__ import annotations

from known.mutant import Mutant

__all__ = ["KNOWN"]

PARTS = "tests/unit/test_part_recovery.py::"
NUMBERS = "tests/unit/test_shard_numbers.py::"
RUN = "tests/integration/test_shards_run.py::"
KILLS = "tests/faults/test_shard_kills.py::"
COLUMNS = "tests/integration/test_hostile_columns.py::"
SLICES = "tests/cluster/test_slice_shards.py::"
BESIDE = "tests/integration/test_shard_destinations.py::"
SCHEMAS = "tests/integration/test_shard_schemas.py::"

KNOWN = (
    Mutant(
        "each shard chooses its own types",
        "a column without a value in one shard is text there: readers refuse the dataset, or read it wrong",
        "BatchQueue._types",
        "self.types if self._shards else ''",
        "''",
        (f"{SCHEMAS}test_types_are_those_that_the_list_declares[tar]",),
    ),
    Mutant(
        "the types of columns are chosen in each run",
        "a file that is added to a list of JSON gives further shards another schema",
        "Destination.settle_types",
        "self.journal.begin(self.job)",
        "pass",
        (f"{SCHEMAS}test_types_of_json_are_those_of_its_beginning[tar]",),
    ),
    Mutant(
        "values of another type than the column's are lost",
        "0.5 in a column of whole numbers is null in Parquet shards, and nowhere else",
        "fitted.set_aside",
        "others.setdefault(row, {})[name] = value",
        "pass",
        (f"{SCHEMAS}test_types_of_json_are_those_of_its_beginning[parquet]",),
    ),
    Mutant(
        "slices that try again do not know the types",
        "shards of items that failed in a job over many machines have another schema",
        "plan_again",
        "next((head.types for head in heads.values() if head.types), '')",
        "''",
        (f"{SCHEMAS}test_slices_have_the_types_of_their_job",),
    ),
    Mutant(
        "binary members are Base64 in quotes",
        "`--member npy=array` stores what no reader of .npy can read",
        "_member",
        "isinstance(value, bytes)",
        "False",
        (f"{SCHEMAS}test_types_are_those_that_the_list_declares[tar]",),
    ),
    Mutant(
        "the query of a URL gives the extension",
        "`a.jpg?w=300` becomes .bin and `a?v=1.2` .2: loaders find no image",
        "extension_of",
        "split_query(name, url)[0]",
        "name",
        (f"{RUN}test_members_have_the_extension_of_the_path_or_of_the_media_type",),
    ),
    Mutant(
        "index.html is the name of a picture",
        "the picture at a URL that ends in a slash becomes .html: loaders find no image",
        "extension_of",
        "extension == 'html' and is_invented(name, url)",
        "False",
        (f"{RUN}test_members_have_the_extension_of_the_path_or_of_the_media_type",),
    ),
    Mutant(
        "torn sample counts as whole",
        "after a power cut a shard has a sample with the bytes of nothing",
        "is_stated",
        "(size, sha256()) == (stated.size, stated.sha256)",
        "True",
        (f"{PARTS}test_damaged_sample_is_taken_out",),
    ),
    Mutant(
        "sample with another CRC-32 counts as whole",
        "with --digests crc32, after a power cut a shard has a sample with the bytes of nothing",
        "is_stated",
        "(size, crc) == (stated.size, stated.crc32)",
        "True",
        (f"{PARTS}test_damaged_sample_is_taken_out",),
    ),
    Mutant(
        "shard without an MD5 counts as whole",
        "with --digests crc32, after a power cut, a shard whose bytes are lost counts as published",
        "_is_whole",
        "crc_of(content.fileno()) == file.crc32",
        "True",
        (f"{KILLS}test_published_shard_without_an_outcome_counts_only_if_it_is_whole[zeros-crc32]",),
    ),
    Mutant(
        "shard of a batch for each of its items",
        "a manifest names a shard that does not have the file, after --retry-failed",
        "ShardLocator.locate",
        "len(shards) == 1",
        "True",
        ("tests/integration/test_shard_manifest.py::test_manifest_names_shard_and_key[name]",),
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
        "self.settle(seq, row[0])",
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
        "stats is not None and are_whole(directory, stats.files)",
        "True",
        (f"{KILLS}test_published_shard_without_an_outcome_counts_only_if_it_is_whole",),
    ),
    Mutant(
        "shards of another dataset are replaced",
        "a run in a directory with a dataset overwrites that",
        "_dataset_in",
        "min((entry.name for entry in entries if IS_OURS(entry.name)), default='')",
        "''",
        (f"{BESIDE}test_shards_of_another_job_are_never_replaced",),
    ),
    Mutant(
        "indexes without the last shards",
        "after a run has published further shards, shards.json lacks them",
        "Indexed.has",
        "self._read() == self._text(shards)",
        "bool(self._read())",
        (f"{BESIDE}test_indexes_are_written_when_they_lack_a_shard",),
    ),
    Mutant(
        "value that Parquet cannot have",
        "a file of 2 GiB stops the run when its shard is published",
        "Config.checking",
        "(self.max_size, self.sink_kind.largest)",
        "(self.max_size,)",
        (f"{COLUMNS}test_value_that_parquet_cannot_have_fails_alone",),
    ),
    Mutant(
        "column that is no field of a struct",
        "a kept column with a line break in its name stops the run",
        "Reader._prepare",
        "ValueError",
        "ZeroDivisionError",
        (f"{COLUMNS}test_columns_of_every_name_and_type_are_kept[tar]",),
    ),
    Mutant(
        "integers of any size",
        "an integer in a list that 64 bits cannot hold stops the run",
        "ItemMaker._packed",
        "Exception",
        "UnicodeEncodeError",
        (f"{COLUMNS}test_values_of_json_that_no_format_has",),
    ),
    Mutant(
        "rows of failed items without their columns",
        "what the list says about an item is lost where the item fails",
        "ShardBatch._failed",
        "items[each.index].columns",
        "b''",
        (f"{COLUMNS}test_row_that_fails_keeps_its_columns",),
    ),
    Mutant(
        "--key index is a file",
        "scripts that name the keys of samples as the contract has it end with 2",
        "_settle_key",
        "given['cert'] or given['key'] not in SAMPLE_KEYS",
        "True",
        (f"{RUN}test_key_of_samples_has_two_spellings",),
    ),
    Mutant(
        "failed items before the rest of the source",
        "after a kill the rest of the list comes into other shards than without it",
        "BatchQueue.__init__",
        "self._recalls = journal.unsettled()",
        "self._recalls = journal.unfinished()",
        (f"{RUN}test_failures_and_kills_move_nothing_to_another_shard",),
    ),
    # Slices of a job over many machines
    Mutant(
        "shards of every slice from 0",
        "with --engine ray the slices replace each other's shards",
        "Destination._open",
        "self.journal.shards.begin_slice(config.first_shard)",
        "self.journal.shards.begin_slice(0)",
        (f"{SLICES}test_slices_have_the_shards_of_a_local_run[tar]",),
    ),
    Mutant(
        "attempts publish in one place",
        "two attempts at a slice mix their shards, whose checksums are then those of neither",
        "NodeShards.stage",
        "output = staging_path(root, name)",
        "output = root",
        (f"{SLICES}test_attempts_that_overlap_publish_one_dataset[two nodes]",),
    ),
    Mutant(
        "names are given once",
        "a job whose driver or node dies while shards get their names cannot be completed",
        "StagingDirectory._move",
        "target.size() == size",
        "False",
        (f"{SLICES}test_kill_while_shards_get_their_names[1]",),
    ),
    Mutant(
        "what shards replace over many machines is not counted",
        "the only copy of something is lost under the name of a shard, and nobody is told",
        "StagingDirectory.move",
        "self._move(staging / file.name, root / file.name, file.size, ours)",
        "0 * self._move(staging / file.name, root / file.name, file.size, ours)",
        (f"{SLICES}test_kill_while_shards_get_their_names[1]",),
    ),
    Mutant(
        "a slice tries again what has failed",
        "a further shard of one slice replaces the first one of the next",
        "BatchQueue.__init__",
        "journal.shards.of_slice",
        "False",
        (f"{SLICES}test_what_fails_in_an_attempt_that_is_killed_is_left_to_another_slice",),
    ),
    Mutant(
        "what is fetched again has keys of its own",
        "samples of --retry-failed have other keys than their rows",
        "ShardKeys.__init__",
        "[item.earlier.key if item.earlier else '' for item in self.items]",
        "name_keys(item.name for item in self.items)",
        (f"{SLICES}test_what_failed_gets_further_shards_with_the_keys_of_its_rows",),
    ),
)
