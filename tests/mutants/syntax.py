"""Find statements and expressions in the syntax trees of a package, and replace them.

A place is a definition's qualified name (``Class.method``, ``function``, or a variable that a module or a
class assigns), in any module, and the source of what is in it: an expression, or consecutive statements.
Comments and line breaks do not matter, so a place survives a move or a new format.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["NotOnce", "Replacement", "Sources"]

_DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class NotOnce(Exception):
    """The source to be replaced is missing, or occurs more than once."""


@dataclass(frozen=True)
class Replacement:
    """A replacement: in the definition ``at``, ``old`` becomes ``new``; an empty ``new`` removes
    statements."""

    at: str
    old: str
    new: str


class Sources:
    """The modules of ``packages`` under ``root``."""

    def __init__(self, root: Path, packages: Sequence[str]) -> None:
        self._root = root
        self._defined: dict[str, set[Path]] = {}
        for path in (path for package in packages for path in _modules(root / package)):
            for name, _ in _definitions(ast.parse(path.read_text())):
                self._defined.setdefault(name, set()).add(path)

    def replaced(self, replacements: Sequence[Replacement]) -> dict[Path, str]:
        """Return the modules that ``replacements`` change, with the changes and without comments.

        Raise NotOnce, and SyntaxError for invalid source.
        """
        changed: dict[Path, ast.Module] = {}
        for each in replacements:
            paths = self._defined.get(each.at, set())
            trees = {path: changed.get(path) or ast.parse(path.read_text()) for path in paths}
            found = [
                (path, place)
                for path, tree in trees.items()
                for name, node in _definitions(tree)
                if name == each.at
                for place in _places(node, each.old)
            ]
            if len(found) != 1:
                where = (
                    ", ".join(sorted(str(path.relative_to(self._root)) for path in paths)) or "no module"
                )
                raise NotOnce(f"{each.old!r} is {len(found)} times in {each.at} of {where}")
            path, place = found[0]
            place.put(each.new)
            changed[path] = trees[path]
        texts = {path: ast.unparse(ast.fix_missing_locations(tree)) for path, tree in changed.items()}
        for path, text in texts.items():
            compile(text, str(path), "exec")
        return texts


def _definitions(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Yield each definition's qualified name and node; of an assignment, its target and the statement."""
    todo: list[tuple[str, ast.AST]] = [("", tree)]
    while todo:
        prefix, parent = todo.pop()
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, _DEFINES):
                name = prefix + node.name
                yield name, node
                todo.append((f"{name}.", node))
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                if isinstance(parent, ast.Module | ast.ClassDef):
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    for target in targets:
                        if isinstance(target, ast.Name):
                            yield prefix + target.id, node
            elif isinstance(node, ast.stmt):
                todo.append((prefix, node))


@dataclass
class _Statements:
    """``count`` statements of a block, from ``first`` on."""

    block: list[ast.stmt]
    first: int
    count: int

    def put(self, new: str) -> None:
        """Replace them by ``new``."""
        body = ast.parse(new).body
        self.block[self.first : self.first + self.count] = body
        if not self.block:
            self.block.append(ast.Pass())


@dataclass
class _Expression:
    """A field of a node, or an element of a field that is a list."""

    parent: ast.AST
    field: str
    index: int | None

    def put(self, new: str) -> None:
        """Replace it by ``new``."""
        node = ast.parse(new, mode="eval").body
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


def _places(node: ast.AST, old: str) -> Iterator[_Statements | _Expression]:
    """Yield the places of ``old`` in ``node``, except in the definitions inside it."""
    wanted = ast.parse(old).body
    dumps = [ast.dump(each) for each in wanted]
    only = wanted[0] if len(wanted) == 1 else None
    expression = ast.dump(only.value) if isinstance(only, ast.Expr) else ""
    for parent in _inner(node):
        for field, value in ast.iter_fields(parent):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                for first in range(len(value) - len(dumps) + 1):
                    if [ast.dump(each) for each in value[first : first + len(dumps)]] == dumps:
                        yield _Statements(value, first, len(dumps))
            elif isinstance(parent, ast.Expr):
                continue  # a statement: found above
            elif isinstance(value, list):
                for index, each in enumerate(value):
                    if isinstance(each, ast.expr) and ast.dump(each) == expression:
                        yield _Expression(parent, field, index)
            elif isinstance(value, ast.expr) and ast.dump(value) == expression:
                yield _Expression(parent, field, None)


def _inner(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _DEFINES):
            yield from _inner(child)


def _modules(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*.py")) if "scenarios" not in path.parts)
