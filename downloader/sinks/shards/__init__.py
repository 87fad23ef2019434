"""Store many items in each file: tar shards that WebDataset loaders read, or parquet.

The worker appends samples to a part, a tar file under ``.downloader/``. A publisher, a process that is not
patched, turns each whole part into the files of its shard.
"""
