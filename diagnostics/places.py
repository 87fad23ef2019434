"""Files and lines as a person looks them up."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["is_own", "line_of", "source_line", "where"]

Spot = Sequence[Any]  # file, line, function


def where(spot: Spot | None, facts: dict[str, Any]) -> str:
    """``file:line``, relative to the current directory, else to the folder of packages that it is in."""
    if not spot:
        return ""
    return f"{short(str(spot[0]), facts)}:{spot[1]}"


def short(path: str, facts: dict[str, Any]) -> str:
    """The file as it is shown."""
    if path.startswith("<"):
        return path
    full = os.path.abspath(path)
    roots = [facts["cwd"] if "cwd" in facts else os.getcwd(), *facts.get("path", [])]
    packages = [root for root in roots if "-packages" in root]
    # The current directory may have the virtual environment in it: packages first.
    for root in [*sorted(packages, key=len, reverse=True), *roots]:
        if root and full.startswith(root.rstrip(os.sep) + os.sep):
            return os.path.relpath(full, root)
    return full


def is_own(spot: Spot, facts: dict[str, Any]) -> bool:
    """Whether ``spot`` is in code of the user: neither a package's nor the library's."""
    path = str(spot[0])
    if path.startswith("<") or "-packages" in path:
        return False
    library = os.path.dirname(os.path.dirname(os.path.abspath(facts.get("executable") or "")))
    for root in (facts.get("library"), os.path.join(library, "lib")):
        if root and os.path.abspath(path).startswith(root + os.sep):
            return False
    return True


def source_line(spot: Spot) -> str:
    """The text of the line, or nothing."""
    try:
        with open(spot[0], encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                if number == spot[1]:
                    return line.strip()
    except OSError:
        pass
    return ""


def line_of(files: Iterable[str], pattern: str) -> Spot | None:
    """The first line of ``files`` that matches."""
    for file in files:
        try:
            with open(file, encoding="utf-8", errors="replace") as lines:
                for number, line in enumerate(lines, 1):
                    if re.search(pattern, line):
                        return (file, number, "")
        except OSError:
            continue
    return None
