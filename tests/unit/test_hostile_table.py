"""The table in tests/faults/README.md: each row names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
TABLE = (TESTS / "faults" / "README.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TABLE.split("## Long runs")[0].splitlines()
    if line.startswith("| ") and not line.startswith("| row")
]


def there() -> set[str]:
    """Return every test function, as ``file::function``."""
    found = set()
    for path in TESTS.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found.add(f"{path.name}::{node.name}")
    return found


def test_every_row_names_tests_that_exist() -> None:
    known = there()
    for row, lanes, tests, result in ROWS:
        assert re.fullmatch(r"-|wire|requests|both( \+TLS)?", lanes), row
        named = tests.split(", ") if tests != "none" else []
        assert named or result.startswith("**not**"), row
        assert not set(named) - known, row


def test_the_count_is_that_of_the_rows() -> None:
    short = sum(result.startswith("**not**") for *_, result in ROWS)
    counted = f"{len(ROWS)} rows: {len(ROWS) - short} held, {short} not or not wholly"
    assert counted in TABLE, counted
