"""Define ``Option``: one row of the table of options, from which parsing, range, help and field come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from downloader.core.limits import LARGEST_INTEGER

__all__ = ["Option", "one_of", "option", "part", "range_problem", "rows", "whole"]

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**how):
        return lambda function: function


_Value = TypeVar("_Value")
_Part = TypeVar("_Part", bound=type)
_ROW = "option"


class Option(NamedTuple):
    """A command line option: ``--`` and ``name`` with hyphens, or what ``written`` says.

    ``type`` converts text to the value, which must survive a round trip through JSON; it raises ValueError
    with a sentence for the user. An option whose default is False has no value: it is True where given.
    ``shown``: the default as a person writes it, for the help.
    One that is ``repeatable`` has a list with commas, and may be given several times: the lists are joined.

    The rest is for the options of a run, the fields of a Config. ``section``: of the help. ``words``: all
    values. ``later``: words that a later version will have. ``minimum``, ``above``, ``maximum``: of a
    number that is given; 0, where it is the default, means that none is. ``is_path``: it names a file.
    ``is_flag``: it has no value on the command line, which finds one. ``is_count``: the value is how often
    it is given.
    """

    name: str
    help: str
    metavar: str = "TEXT"
    default: Any = ""
    type: Callable[[str], Any] = str
    repeatable: bool = False
    shown: str = ""
    section: str = ""
    written: str = ""
    words: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    minimum: float | None = None
    above: float | None = None
    maximum: float | None = None
    is_path: bool = False
    is_flag: bool = False
    is_count: bool = False

    @property
    def flag(self) -> str:
        """Return the option as it is written on the command line."""
        return self.written.split()[0] if self.written else f"--{self.name.replace('_', '-')}"


def option(*, default: _Value, how: dict[str, Any] | None = None, **row: Any) -> _Value:
    """Return the field of a dataclass of options; ``how`` and ``row``: see ``Option``."""
    row |= how or {}
    made: Any = field(default=default, metadata={_ROW: row})
    if isinstance(default, dict):
        made = field(default_factory=dict, metadata={_ROW: row})
    return made  # type: ignore[no-any-return]


# To a type checker, they are not those of dataclasses: of a field that is read as another type than it is
# set to, these have the latter.
@dataclass_transform(kw_only_default=True, field_specifiers=(option, field))
def part(made: _Part) -> _Part:
    """Make a class a frozen dataclass of options, which is part of another one."""
    return dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)(made)  # type: ignore[return-value]


@dataclass_transform(kw_only_default=True, field_specifiers=(option, field))
def whole(made: _Part) -> _Part:
    """Make a class a frozen dataclass of the options of its parts."""
    return dataclass(frozen=True, kw_only=True, repr=False)(made)  # type: ignore[return-value]


def rows(of: type) -> Iterator[Option]:
    """Yield the options among the fields of the dataclass ``of``, in their order."""
    for each in fields(of):
        if _ROW in each.metadata:
            default = {} if each.default is MISSING else each.default
            yield Option(name=each.name, default=default, **each.metadata[_ROW])


def range_problem(option: Option, value: Any) -> str:
    """Return what a number must be for ``option``, "" if ``value`` is that, or no number is wanted."""
    minimum, above, maximum = option.minimum, option.above, option.maximum
    if maximum is None or (minimum and value == option.default == 0):
        return ""
    if above is not None:
        within = above < value <= maximum
        return "" if within else f"more than {above:.0f}, and at most a year"
    assert minimum is not None
    if minimum <= value <= maximum:
        return ""
    if maximum == LARGEST_INTEGER:
        return f"at least {minimum}, and finite"
    return f"{minimum} to {maximum:,.0f}"


def one_of(words: Sequence[str]) -> Callable[[str], str]:
    """Return the type of an option that is one of ``words``."""

    def convert(text: str) -> str:
        if text not in words:
            raise ValueError(f"{text[:40]!r} is not one of {', '.join(words)}")
        return text

    return convert
