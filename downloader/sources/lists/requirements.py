"""Check that the packages are installed that a list needs; imports none of them."""

from __future__ import annotations

from downloader.core.checksum import has_crc32c
from downloader.core.content_check import CRC32C_MISSING
from downloader.core.extras import ZSTD, install_command, is_installed
from downloader.core.naming import shown
from downloader.errors import ConfigError
from downloader.sources.lists.files import BINARY, ListFile

__all__ = ["require", "require_crc32c"]


def require(file: ListFile) -> None:
    """Raise ConfigError if ``file`` cannot be read for want of a package."""
    if file.path.lower().endswith(".zst") and not is_installed(ZSTD):
        raise ConfigError(_missing(file, "backports.zstd", "zstd"))
    if file.form in BINARY and not is_installed("pyarrow"):
        raise ConfigError(_missing(file, "pyarrow", "parquet"))


def require_crc32c(where: str) -> None:
    """Raise ConfigError if CRC-32C cannot be computed."""
    if not has_crc32c():
        raise ConfigError(f"{where}: {CRC32C_MISSING}")


def _missing(file: ListFile, package: str, extra: str) -> str:
    return (
        f"{shown(file.path)}: reading it needs the package {package}; "
        f"install it with: {install_command(extra)}"
    )
