"""Define ``Config``: all settings of one run, frozen, validated once.

Only the command line reads argv and the environment; a Config has the values. It survives a round trip
through JSON (``api.download`` sends it to a new process).
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from downloader.config.contradictions import (
    check_contradictions,
    check_overwrites,
    check_proxies,
    check_writable,
)
from downloader.config.extensions import check_options, value_of
from downloader.config.extras import check_extras
from downloader.config.named_files import NamedFiles, is_encrypted, read_authorities, read_netrc, read_pem
from downloader.config.option import range_problem, whole
from downloader.config.options import (
    OPTIONS,
    PATHS,
    ClusterOptions,
    HttpOptions,
    LimitOptions,
    OutputOptions,
    ReportOptions,
    SourceOptions,
)
from downloader.config.sink_kinds import SINK_KINDS, SinkForm, StoresColumns
from downloader.config.slice_context import SliceContext
from downloader.config.source_kinds import SOURCE_KINDS, SourceForm, kind_of
from downloader.config.system_authorities import SYSTEM
from downloader.core.bucket_access import BucketAccess
from downloader.core.bucket_place import local_place, place
from downloader.core.content_check import Checking
from downloader.core.echoes import Echoes, basic_login, secrets_of_headers
from downloader.core.headers import given_twice, header_problem
from downloader.core.naming import COLON, shown
from downloader.core.redact import NAMING, credentials_in, redact_url
from downloader.core.server_address import split_address
from downloader.core.urls import login_of
from downloader.errors import ConfigError

__all__ = ["Config"]


@whole
class Config(ReportOptions, ClusterOptions, HttpOptions, LimitOptions, SourceOptions, OutputOptions):
    """The settings of one run: sizes in bytes, times in seconds. The command line documents each option.

    0 for ``workers``, ``connections``, ``per_host``, ``rate``, ``pipeline``, ``min_speed``, ``max_size``,
    ``limit`` means that the option is not given. A path may also be an os.PathLike.

    Raises ConfigError when a value has the wrong type or is out of range, when two values contradict each
    other, and when a file that it names cannot be used. Those files are read here, and never again.
    """

    # Not an option: the slice of a larger job that is run.
    slice: SliceContext = SliceContext()
    # Nor this: how the paths of this job have the colon before a port (``core.naming.url_path``).
    colon: str = COLON
    # Nor this: by which rules this job makes names (``storage.records.JobSpec``).
    naming: int = NAMING
    # Nor this: the types of the kept columns of this job (``core.column_types``), as far as they are known.
    column_types: str = ""

    def __post_init__(self) -> None:
        _check_types(self)
        _validate(self)
        paths = (self.source, *(getattr(self, name) for name in PATHS))
        # Read once: a copy of this Config, in another process or with other values, keeps the content.
        if self.files is None or self.files.paths != paths:
            _check_paths(self)
            object.__setattr__(self, "files", _read_files(self, paths))

    def replace(self, **changes: Any) -> Config:
        """Return this Config with other values of some fields."""
        return dataclasses.replace(self, **changes)

    def encode(self) -> bytes:
        """Return this Config as JSON, for ``decode``."""
        # Python's own json encodes any file name, as os.fsdecode returns it.
        return json.dumps(msgspec.to_builtins(self)).encode("ascii")

    @classmethod
    def decode(cls, text: bytes) -> Config:
        """Return the Config that is ``text`` in JSON."""
        return cls(**json.loads(text))

    def __repr__(self) -> str:
        """Return a representation without secrets."""
        return f"Config(source={self.shown_source!r}, output={self.output!r}, …)"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("source", self.shown_source), ("output", self.output)]

    @property
    def bucket_access(self) -> BucketAccess:
        """Return how a DEST in a bucket is reached."""
        return self._access(self.store_option("endpoint_url"), self.store_option("region"))

    @property
    def journal_access(self) -> BucketAccess:
        """Return how a journal in a bucket is reached."""
        return self._access(self.journal_endpoint_url, self.journal_region)

    def _access(self, endpoint_url: str, region: str) -> BucketAccess:
        authorities = self.files.cacert if self.files else b""
        return BucketAccess(endpoint_url, region, self.proxies, self.no_proxy, authorities, self.insecure)

    @property
    def reads_stdin(self) -> bool:
        """Return whether the source is standard input, which cannot be read again."""
        return self.source == "-" and not self.slice

    @property
    def reads_files(self) -> bool:
        """Return whether the source is listed from files, in a process without gevent.

        What arrives on standard input is awaited, while other greenlets run.
        """
        if self.slice:
            return True
        return not self.reads_stdin and getattr(self.source_kind, "reads_files", False)

    @property
    def source_kind(self) -> SourceForm:
        """Return the kind of the source: the one given, or the one detected from the form of the source."""
        return SOURCE_KINDS.named(self.source_type) if self.source_type else kind_of(self.source)

    @property
    def kind(self) -> str:
        """Return the name of the kind of the source."""
        return self.source_kind.name

    @property
    def sink_kind(self) -> SinkForm:
        """Return the kind of the sink."""
        return SINK_KINDS.named(self.store)

    def source_option(self, name: str) -> Any:
        """Return the value of an option of the source's kind, or its default where it is not given."""
        return value_of(name, self.source_options, self.source_kind)

    def store_option(self, name: str) -> Any:
        """Return the value of an option of the sink's kind, or its default where it is not given."""
        return value_of(name, self.store_options, self.sink_kind)

    @property
    def own_files(self) -> tuple[tuple[str, str], ...]:
        """Return the files that this run reads or writes, other than those it fetches.

        Each is a pair: what the file is (for most, the option that names it), and its path.
        """
        named = (
            *(() if self.slice else self.source_kind.own_files(self)),
            *self.written_files,
            ("--cacert", "" if self.cacert == SYSTEM else self.cacert),
            ("--cert", self.cert),
            ("--key", self.key),
            ("--netrc", self.netrc),
            ("--auth-file", self.auth_file),
        )
        return tuple((what, path) for what, path in named if path)

    @property
    def hash_algorithm(self) -> str:
        """Return the algorithm of the digest that is computed of every file, "" for none."""
        return "sha256" if self.manifest_format == "SHA256SUMS" else self.hash

    @property
    def recording(self) -> bool:
        """Return whether what a manifest needs is recorded of each file."""
        return bool(self.manifest or self.hash or self.slice.keep_records)

    @property
    def checking(self) -> Checking:
        """Return what is checked and computed of every body."""
        limits = [size for size in (self.max_size, self.sink_kind.largest) if size]
        return Checking(min(limits, default=0), self.checksums, self.hash_algorithm)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the strings that must not appear in any message: header values, passwords."""
        files = self.files
        found = [value for _, value in self.headers]
        found += [value.split(None, 1)[1] for _, value in self.headers if len(value.split(None, 1)) > 1]
        if self.auth:
            found.append(self.auth[1])
        for url in (self.source, *self.proxies.values()):
            found += credentials_in(url)
        logins = files.logins.values() if files else ()
        found += {each.password: None for of_host in logins for each in of_host if each.password}
        if self.key_password:
            found.append(self.key_password)
        return tuple(found)

    @property
    def echoes(self) -> Echoes:
        """Return what finds credentials of this run in what servers send."""
        files = self.files
        logins: list[tuple[str | None, str | None]] = [self.auth] if self.auth else []
        urls = (self.source, *self.proxies.values())
        logins += [login for url in urls if "@" in url and (login := login_of(url)) is not None]
        of_hosts = files.logins.values() if files else ()
        logins += [(each.user, each.password) for found in of_hosts for each in found]
        secrets = secrets_of_headers(self.headers)
        for user, password in logins:
            secrets += [password or user or "", *basic_login(user or "", password or "")]
        return Echoes(secrets)

    @property
    def key_is_encrypted(self) -> bool:
        """Return whether the key of the client certificate needs ``key_password``."""
        return self.files is not None and is_encrypted(self.files.key or self.files.cert)


_FLAGS = {option.name: option.flag for option in OPTIONS}
_TEXTS = (
    "journal_endpoint_url",
    "journal_region",
    "no_proxy",
    "ray_address",
    "scratch",
    "colon",
    "column_types",
)


def _validate(config: Config) -> None:
    _check_source(config)
    _settle_places(config)
    _keep_columns(config)
    check_options("store_options", config.store_options, config.sink_kind)
    config.sink_kind.check(config)
    if not config.output and not config.dry_run:
        raise ConfigError("-o DEST is missing (only --dry-run does without)")
    for option in OPTIONS:
        if problem := range_problem(option, getattr(config, option.name)):
            raise ConfigError(f"{option.flag} must be {problem}")
    check_contradictions(config)
    check_extras(config)
    for name, value in config.headers:
        if problem := header_problem(name, value):
            raise ConfigError(f"-H: {problem}")
    if name := given_twice(config.headers):
        raise ConfigError(f"-H: {name} is given twice; a request has it once")
    if config.dns_server:
        try:
            split_address(config.dns_server)
        except ValueError as error:
            raise ConfigError(f"--dns-server: {error}") from None
    if re.search(r"[^\x20-\x7e]", config.user_agent):
        raise ConfigError("--user-agent is not printable ASCII")
    check_proxies(config.proxies)


# Lone surrogates, but those of os.fsdecode: of a login, too, the bytes count.
_NO_TEXT = re.compile("[\ud800-\udc7f\udd00-\udfff]").search


def _is_encodable(path: str) -> bool:
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


def _settle_places(config: Config) -> None:
    """Refuse the URL of what is a path, and write ``s3://`` in lower case where there may be a bucket.

    As a path, it would make a directory of the name of its scheme, and nobody would look there.
    """
    for name in ("output", "journal", "scratch", "report", "failures", "manifest"):
        given = getattr(config, name)
        try:
            settled = (place if name in ("output", "journal") else local_place)(given)
        except ValueError as error:
            raise ConfigError(f"{_FLAGS[name]} {shown(redact_url(given))}: {error}") from None
        if settled != given:
            object.__setattr__(config, name, settled)


def _keep_columns(config: Config) -> None:
    """Keep the columns of the list that the sink stores as well."""
    kind = config.sink_kind
    wanted = kind.columns(config) if isinstance(kind, StoresColumns) else ()
    if wanted and any(option.name == "keep_columns" for option in config.source_kind.options):
        kept = [name for name in str(config.source_option("keep_columns")).split(",") if name]
        if "all" not in kept and (more := [name for name in wanted if name not in kept]):
            options = {**config.source_options, "keep_columns": ",".join([*kept, *more])}
            object.__setattr__(config, "source_options", options)


def _check_paths(config: Config) -> None:
    """Check the paths that are looked up in the file system but not read."""
    config.source_kind.check_files(config)
    written = config.written_files
    for option, path in written:
        check_writable(option, path, config.output)
    read = [each for each in config.own_files if each not in written]
    check_overwrites(written, read, config.journal_root, stdin=config.reads_stdin)


def _read_files(config: HttpOptions, paths: tuple[str, ...]) -> NamedFiles:
    return NamedFiles(
        paths=paths,
        cacert=read_authorities(config.cacert),
        cert=read_pem("--cert", config.cert) if config.cert else b"",
        key=read_pem("--key", config.key) if config.key else b"",
        logins=read_netrc(config.netrc) if config.netrc else {},
    )


@functools.cache
def _types() -> dict[str, Any]:
    return get_type_hints(Config, localns={"NamedFiles": NamedFiles})


def _check_types(config: Config) -> None:
    """Check the type of every value, since a program may pass anything.

    Convert path-like objects where a path is expected, and lists where a tuple is.
    """
    for name, kind in _types().items():
        given = getattr(config, name)
        try:
            value = _plain(given)
        except RecursionError:
            raise ConfigError(f"Config.{name}: nested too deep") from None
        # Of others than these, the conversion says what they are.
        if get_origin(kind) is dict and not isinstance(given, (Mapping, str, bytes, list, tuple)):
            raise ConfigError(f"Config.{name}: {type(given).__name__} is no dict")
        if isinstance(given, os.PathLike) and (name == "source" or name in PATHS):
            try:
                value = os.fsdecode(given)
            except TypeError as error:
                raise ConfigError(f"Config.{name}: {error}") from None
            if name == "cacert" and value == SYSTEM:
                value = os.path.join(os.curdir, value)  # a path is never the word
        try:
            value = msgspec.convert(value, kind)
        except (msgspec.ValidationError, UnicodeEncodeError) as error:
            # Text with lone surrogates, as the names of files have, is valid as text only.
            problem = str(error) if isinstance(error, msgspec.ValidationError) else "text that is not valid"
            if isinstance(given, str) and get_origin(kind) is Literal:
                problem = f"must be one of {', '.join(map(repr, get_args(kind)))}"
            raise ConfigError(f"Config.{name}: {problem}") from None
        if value is not given:
            object.__setattr__(config, name, value)


def _plain(given: Any) -> Any:
    """Return ``given`` with each text and number as a plain one: of another class it cannot be encoded."""
    if isinstance(given, str):
        return given if type(given) is str else str.__str__(given)
    if getattr(given, "ndim", None) == 0 and hasattr(given, "item"):
        return given.item()  # of numpy
    if isinstance(given, Integral) and not isinstance(given, bool):
        return int(given)
    if isinstance(given, Real) and not isinstance(given, bool):
        return float(given)
    if type(given) in (tuple, list):
        return type(given)(map(_plain, given))
    if type(given) is dict:
        return {_plain(key): _plain(value) for key, value in given.items()}
    return given


def _check_source(config: Config) -> None:
    if not config.source:
        raise ConfigError("SOURCE is missing: a file server's URL, a list of URLs (.txt), or -")
    if "\0" in config.source + config.output:
        raise ConfigError("SOURCE or DEST has a NUL in it")
    for name in PATHS:
        if "\0" in getattr(config, name):
            raise ConfigError(f"{_FLAGS[name]}: the path has a NUL in it")
        if not _is_encodable(getattr(config, name)):
            raise ConfigError(f"{_FLAGS[name]}: no file has such a name: {shown(getattr(config, name))}")
    if not _is_encodable(config.source):
        raise ConfigError(f"SOURCE: no file has such a name: {shown(config.source)}")
    for name in _TEXTS:
        if "\0" in getattr(config, name):
            raise ConfigError(f"Config.{name} has a NUL in it")
    for name, texts in (("auth", config.auth or ()), ("key_password", (config.key_password,))):
        if any(_NO_TEXT(text) for text in texts):
            raise ConfigError(f"Config.{name}: text that is not valid")
    if config.naming not in range(NAMING + 1):
        raise ConfigError(f"Config.naming must be 0 to {NAMING}")
    kind = config.source_kind
    check_options("source_options", config.source_options, kind)
    kind.check(config)
