"""Certificates and keys in memory that OpenSSL reads as files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from downloader.files.memory_file import as_file


@pytest.mark.parametrize("has", ["memory", "temporary files"])
def test_as_file_gives_a_path_to_bytes_in_memory(has: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if has != "memory":
        monkeypatch.delattr(os, "memfd_create", raising=False)
    content = b"-----BEGIN \x00" * 10_000
    before = set(os.listdir("/proc/self/fd"))
    with as_file(content) as path:
        # OpenSSL opens it, and some of its functions more than once.
        assert [Path(path).read_bytes(), Path(path).read_bytes()] == [content] * 2
        assert os.stat(path).st_mode & 0o077 == 0 or has == "memory"
    assert set(os.listdir("/proc/self/fd")) == before
    assert has == "memory" or not os.path.exists(path)
