"""Find extensions: kinds of sources and sinks, with options of their own.

An extension is an object that a module names: a module of this package, or one of an installed package that
has an entry point in the group (``downloader.sources``, ``downloader.sinks``). Modules are imported by name
when they are needed, since they belong to higher layers.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar, cast

from downloader.config.option import Option, one_of
from downloader.core.naming import shown
from downloader.errors import ConfigError

__all__ = ["Extension", "Extensions", "Option", "check_options", "one_of", "value_of"]


class Extension(Protocol):
    """The common interface of kinds of sources and sinks.

    The command line and the journal identify one by ``name``.
    """

    name: str
    options: tuple[Option, ...]


E = TypeVar("E", bound=Extension)


class Extensions(Generic[E]):
    """The extensions of one entry point ``group``, which ``option`` names on the command line.

    ``built_in`` maps our names to module:attribute.
    """

    def __init__(self, group: str, option: str, built_in: Mapping[str, str]) -> None:
        self._group = group
        self._option = option
        self._built_in = built_in
        self._loaded: dict[str, E] = {}
        self._installed: tuple[E, ...] | None = None

    def __iter__(self) -> Iterator[E]:
        """Yield the built-in extensions, then those of installed packages in the order of their names.

        Raises ConfigError where one cannot be loaded, or where two have the same name.
        """
        for name in self._built_in:
            yield self._own(name)
        if self._installed is None:
            self._installed = tuple(self._load())
        yield from self._installed

    def names(self) -> list[str]:
        """Return the names of all extensions."""
        return [each.name for each in self]

    def find(self, name: str) -> E | None:
        """Return the extension ``name``, or None if there is none.

        Installed packages are not searched for the name of a built-in extension.
        """
        if name in self._built_in:
            return self._own(name)
        return next((each for each in self if each.name == name), None)

    def named(self, name: str) -> E:
        """Return the extension ``name``. Raises ConfigError if there is none."""
        found = self.find(name)
        if found is None:
            raise ConfigError(f"{self._option} {name[:40]!r} is not one of {', '.join(self.names())}")
        return found

    def _own(self, name: str) -> E:
        if name not in self._loaded:
            module, _, attribute = self._built_in[name].partition(":")
            self._loaded[name] = cast(E, getattr(importlib.import_module(module), attribute))
        return self._loaded[name]

    def _load(self) -> Iterator[E]:
        from importlib import metadata

        seen = set(self._built_in)
        for entry in sorted(metadata.entry_points(group=self._group), key=lambda each: each.name):
            package = entry.dist.name if entry.dist else entry.value
            try:
                found = cast(E, entry.load())
                name = found.name
            except Exception as error:
                raise ConfigError(
                    f"{entry.name!r} ({self._group}) of the installed package {package} cannot be loaded: "
                    f"{type(error).__name__}: {error}; mend or uninstall that package"
                ) from error
            if name in seen:
                raise ConfigError(
                    f"{name!r} ({self._group}) of the installed package {package} is there already; "
                    "uninstall one of the packages that have it"
                )
            seen.add(name)
            yield found


def check_options(field: str, given: Mapping[str, Any], extension: Extension) -> None:
    """Raise ConfigError where ``given``, a field of a Config, is not what ``extension`` has as options."""
    known = {option.name: option for option in extension.options}
    for name, value in given.items():
        if name not in known:
            raise ConfigError(
                f"Config.{field}: {name!r} is no option of {extension.name!r}, which has "
                f"{', '.join(known) or 'none'}"
            )
        if problem := _problem(known[name], value):
            raise ConfigError(f"Config.{field}: {name!r} is {shown(repr(value))}, {problem}")


def _problem(option: Option, value: Any) -> str:
    """Return what is wrong with ``value`` of ``option``, "" if nothing is: its type, and a NUL."""
    default = option.default
    if isinstance(default, bool):
        return "" if isinstance(value, bool) else "and must be True or False"
    if isinstance(default, (int, float)):
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        whole = isinstance(value, int) or isinstance(default, float)
        return "" if number and whole and math.isfinite(value) else "which is not a number for it"
    if option.type is str and not isinstance(value, str):
        return "which is not text"
    if value is None or isinstance(value, bytes):
        return "which is no value for it"
    return "which has a NUL in it" if isinstance(value, str) and "\0" in value else ""


def value_of(name: str, given: Mapping[str, Any], extension: Extension) -> Any:
    """Return the value of option ``name``: the one ``given``, or its default."""
    if name in given:
        return given[name]
    return next(option.default for option in extension.options if option.name == name)
