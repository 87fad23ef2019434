"""Give other interpreters files of this package, which may be in a zip file (``make diagnostics.pyz``)."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Traversable

__all__ = ["agent_in", "is_packed", "scenarios_in"]

_HERE = Path(__file__).parent


def is_packed() -> bool:
    """Return whether this package is in a zip file."""
    return not _HERE.is_dir()


def agent_in(folder: Path) -> Path:
    """Return the folder of the agent: its own, or a copy in ``folder``, readable for every user."""
    return _real("agent", folder)


def scenarios_in(folder: Path) -> Path:
    """Return the folder of the scenarios: its own, or a copy in ``folder``."""
    return _real("scenarios", folder)


def _real(name: str, folder: Path) -> Path:
    if not is_packed():
        return _HERE / name
    target = folder / name
    if not target.exists():
        _copy(files("diagnostics") / name, target)
    return target


def _copy(source: Traversable, target: Path) -> None:
    if source.is_dir():
        target.mkdir()
        target.chmod(0o755)  # a worker of another user imports from here
        for each in source.iterdir():
            _copy(each, target / each.name)
    else:
        target.write_bytes(source.read_bytes())
        target.chmod(0o644)
