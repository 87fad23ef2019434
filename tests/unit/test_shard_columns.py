"""The names of kept columns in the tables beside shards, as docs/usage.md has them."""

from __future__ import annotations

from downloader.core.column_types import ColumnTypes
from downloader.sinks.shards.jobs import METADATA
from downloader.sinks.shards.publisher.columns import INFORMATION, table_kinds


def names(*kept: str) -> list[str]:
    return list(table_kinds(ColumnTypes(dict.fromkeys(kept, "text"), False, "all")))


def test_kept_columns_with_the_names_of_ours() -> None:
    assert names("caption", "size", "url") == ["caption", "list.size", "list.url"]
    assert names(*METADATA) == [f"list.{name}" for name in METADATA]
    assert names("bytes", "error", "error_message", "file", "member") == [
        "bytes_",
        "error_",
        "error_message_",
        "file_",
        "member_",
    ]
    assert {*INFORMATION} == {"error", "error_message", "file", "member"}
    assert names("file", "file_") == ["file__", "file_"]
