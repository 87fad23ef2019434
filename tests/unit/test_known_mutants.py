"""Every known bug still has its place in the sources, and tests that can catch it."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "mutants"))
from known import KNOWN, Mutant
from syntax import NotOnce, Replacement, Sources


@pytest.fixture(scope="module")
def sources() -> Sources:
    """Return the packages of the project."""
    return Sources(ROOT, ("downloader", "diagnostics"))


@pytest.fixture(scope="module")
def functions() -> dict[str, set[str]]:
    """Return the names of the tests of each file."""
    files = {each.split("::")[0] for mutant in KNOWN for each in mutant.tests}
    return {
        file: {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        for file in files
        if (tree := ast.parse((ROOT / file).read_text()))
    }


@pytest.mark.parametrize("mutant", KNOWN, ids=lambda each: each.name)
def test_mutant_changes_one_place(mutant: Mutant, sources: Sources):
    for path, text in sources.replaced(mutant.replacements).items():
        assert text != ast.unparse(ast.parse(path.read_text()))


@pytest.mark.parametrize("mutant", KNOWN, ids=lambda each: each.name)
def test_tests_of_each_mutant_exist(mutant: Mutant, functions: dict[str, set[str]]):
    for test in mutant.tests:
        file, function = test.split("::")
        assert function.split("[")[0] in functions[file]


MODULE = """
class Reader:
    # A comment.
    def feed(self, data):
        if data:
            self.left = len(data)  # another
            self.body = [each for each in data]
        self.left = len(data)


def feed(data):
    return data
"""


REPLACED = """
class Reader:
    def feed(self, data):
        if data:
            self.left = 0
        self.left = len(data)


def feed(data):
    return None
"""


def package(tmp_path: Path) -> Path:
    """Return a package of one module."""
    path = tmp_path / "package" / "module.py"
    path.parent.mkdir()
    path.write_text(MODULE)
    return path


def test_statements_and_expressions_are_replaced_in_the_definition_named(tmp_path):
    path = package(tmp_path)
    statements = Replacement(
        "Reader.feed", "self.left = len( data )\nself.body = [each for each in data]", "self.left = 0"
    )
    changes = [statements, Replacement("feed", "data", "None")]
    changed = Sources(tmp_path, ["package"]).replaced(changes)
    assert changed == {path: ast.unparse(ast.parse(REPLACED))}


@pytest.mark.parametrize(
    ("at", "old"),
    [
        ("Reader.feed", "self.left = len(data)"),
        ("Reader.feed", "self.right = 0"),
        ("Reader.read", "data"),
        ("Reader", "data"),
    ],
)
def test_place_not_found_exactly_once_is_an_error(tmp_path, at, old):
    package(tmp_path)
    with pytest.raises(NotOnce):
        Sources(tmp_path, ["package"]).replaced([Replacement(at, old, "0")])
