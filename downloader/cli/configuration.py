"""Make the Config of a run from the values of the command line."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from downloader.cli import credentials
from downloader.cli.params import SOURCE_OPTION, STORE_OPTION
from downloader.config.extensions import Extension, Extensions
from downloader.config.options import OPTIONS
from downloader.config.sink_kinds import SINK_KINDS
from downloader.config.source_kinds import SOURCE_KINDS, kind_of
from downloader.core.bucket_place import is_bucket
from downloader.errors import ConfigError
from downloader.files.below import is_closed
from downloader.sinks.shards.options import SAMPLE_KEYS

if TYPE_CHECKING:
    from downloader.config.config import Config
    from downloader.core.bucket_access import BucketAccess

__all__ = ["bucket_access", "config_of"]

_BUCKET: Final = ("endpoint_url", "region")


def config_of(given: dict[str, Any]) -> Config:
    """Return the Config of the options ``given``. Raises ConfigError."""
    from downloader.config.config import Config

    if given["source"] == "-" and sys.stdin is None:
        raise ConfigError("SOURCE is -, but standard input is closed")
    if given.get("as_json") and is_closed(1):
        raise ConfigError("--json: standard output is closed")
    for option in ("report", "failures", "manifest"):
        if given[option] == "":
            raise ConfigError(f"--{option}: the name is empty; name a file, or leave the option out")
    by_scheme, no_proxy = credentials.proxies(given["proxies"])
    journal = is_bucket(given["journal"] or "")
    source = given["source_type"] or (kind_of(given["source"]).name if given["source"] else "server")
    _settle_key(given)
    _refuse_others(SINK_KINDS, "--store", given["store"], STORE_OPTION, given, also=journal)
    values = {row.name: given[row.name] for row in OPTIONS if given.get(row.name) is not None}
    values |= {
        "source": given["source"],
        "source_options": _options_of(SOURCE_KINDS.find(source), SOURCE_OPTION, given),
        "store_options": _options_of(SINK_KINDS.find(given["store"]), STORE_OPTION, given),
        "journal_endpoint_url": (given[f"{STORE_OPTION}endpoint_url"] or "") if journal else "",
        "journal_region": (given[f"{STORE_OPTION}region"] or "") if journal else "",
        "headers": tuple(credentials.header(line) for line in given["headers"]),
        "netrc": credentials.netrc_path() if given["netrc"] else "",
        "auth": credentials.auth_from(given["auth_file"]) if given["auth_file"] else None,
        "proxies": by_scheme,
        "no_proxy": no_proxy,
        "restart": not given["resume"],
    }
    return Config(**values)


def bucket_access(
    endpoint_url: str, region: str, proxy: str | None, cacert: str, insecure: bool
) -> BucketAccess:
    """Return how a command without a Config reaches a bucket. Raises ConfigError."""
    from downloader.config.contradictions import check_proxies
    from downloader.config.named_files import read_authorities
    from downloader.core.bucket_access import BucketAccess

    by_scheme, no_proxy = credentials.proxies(proxy)
    check_proxies(by_scheme)
    return BucketAccess(endpoint_url, region, by_scheme, no_proxy, read_authorities(cacert), insecure)


def _settle_key(given: dict[str, Any]) -> None:
    """Replace the values of --key, which has two meanings, by the one path that ``Config.key`` has.

    With a store that has keys of samples, and without --cert, ``index`` and ``name`` are such keys.
    """
    keys = given["key"]
    if len(keys) > 1:
        raise ConfigError(
            "--key is given twice; for the keys of samples beside a --cert write --sample-key"
        )
    given["key"] = keys[0] if keys else ""
    if given["cert"] or given["key"] not in SAMPLE_KEYS:
        return
    word, option = given["key"], STORE_OPTION + "sample_key"
    kind = SINK_KINDS.find(given["store"])
    if kind is None or not any(each.name == "sample_key" for each in kind.options):
        raise ConfigError(
            f"--key {word}, a key of samples, is for --store tar or parquet; for a file of that name write "
            f"--cert FILE --key ./{word}"
        )
    if given[option] not in (None, word):
        raise ConfigError(f"--key {word} and --sample-key {given[option]} contradict each other; give one")
    given["key"], given[option] = "", word


def _refuse_others(
    kinds: Extensions[Any], option: str, name: str, prefix: str, given: dict[str, Any], *, also: bool
) -> None:
    """Raise ConfigError where an option is given that is one of other kinds, and not of the kind ``name``.

    ``also``: those of a bucket are options of the journal, too.
    """
    own = kinds.find(name)
    known = {each.name for each in (own.options if own else ())} | (set(_BUCKET) if also else set())
    for each in (each for kind in kinds for each in kind.options if each.name not in known):
        if given[prefix + each.name] not in (None, (), each.default):
            having = " or ".join(kind.name for kind in kinds if each in kind.options)
            raise ConfigError(f"{each.flag} is for {option} {having}, and not for {name}; leave it out")


def _options_of(kind: Extension | None, prefix: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the values of the options of ``kind``, without those of other kinds."""
    values = {option: given[prefix + option.name] for option in (kind.options if kind else ())}
    return {
        option.name: ",".join(value) if option.repeatable else (option.default if value is None else value)
        for option, value in values.items()
    }
