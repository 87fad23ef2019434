"""Check that the packages are installed which an option needs, before anything is started."""

from __future__ import annotations

from typing import Any, NamedTuple

from downloader.core.bucket_place import is_bucket
from downloader.core.digests import HASHES, PACKAGES
from downloader.core.extras import install_command, is_installed
from downloader.errors import ConfigError

__all__ = ["Extra", "check_extras", "require"]


class Extra(NamedTuple):
    """An option that needs a package, and the extra that installs it."""

    option: str
    module: str
    name: str


_ENGINES = {"ray": Extra("--engine ray", "ray", "ray")}


def check_extras(config: Any) -> None:
    """Raise ConfigError if ``config``, a Config, has an option whose package is not installed."""
    needed = [extra for engine, extra in _ENGINES.items() if engine == config.engine]
    if config.hash and config.hash not in HASHES:
        raise ConfigError(f"--hash {config.hash[:40]!r} is not one of {', '.join(HASHES)}")
    if config.hash in PACKAGES:
        needed.append(Extra(f"--hash {config.hash}", PACKAGES[config.hash], config.hash))
    if config.manifest_format == "parquet":
        needed.append(Extra("a --manifest in Parquet", "pyarrow", "parquet"))
    for option, path in (("-o", config.output), ("--journal", config.journal)):
        if is_bucket(path):
            needed += [Extra(f"{option} s3://…", module, "s3") for module in ("obstore", "boto3")]
    for extra in needed:
        require(extra)


def require(extra: Extra) -> None:
    """Raise ConfigError if the package of ``extra`` is not installed."""
    if not is_installed(extra.module):
        raise ConfigError(
            f"{extra.option} needs the package {extra.module}, which is not installed: "
            + install_command(extra.name)
        )
