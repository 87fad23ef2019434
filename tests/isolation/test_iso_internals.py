"""The private parts of libraries that the downloader uses: in one module, and there in these versions."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from downloader.process.private_parts import OVERRIDDEN

ROOT = Path(__file__).resolve().parents[2]
ADAPTER = ROOT / "downloader" / "process" / "private_parts.py"
# Each is taken away in a fresh process; the sentence must name it.
TAKEN = {
    "urllib3.connection.HTTPConnection": (
        "import urllib3.connection as m; del m.HTTPConnection._new_conn",
        "_new_conn",
    ),
    "urllib3.connectionpool.HTTPConnectionPool": (
        "import urllib3.connectionpool as m; del m.HTTPConnectionPool._get_conn",
        "_get_conn",
    ),
    "http.client.HTTPResponse": (
        "import http.client as m; del m.HTTPResponse._read_status",
        "_read_status",
    ),
    "requests.adapters.HTTPAdapter": (
        "import requests.adapters as m; del m.HTTPAdapter.proxy_headers",
        "proxy_headers",
    ),
    "gevent.socket.socket": (
        "import gevent.socket as m; m.socket = type('socket', (), {'close': lambda self: None})",
        "_sock",
    ),
}
TELL = "from downloader.process.private_parts import missing; print('\\n'.join(missing()))"


def told(before: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{before}\n{TELL}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=ROOT,
    )
    return done.stdout.splitlines()


def test_these_versions_have_all_of_them() -> None:
    assert [line for line in told("") if line] == []


@pytest.mark.parametrize("place", TAKEN)
def test_one_that_a_new_version_has_moved_is_named(place: str) -> None:
    change, attribute = TAKEN[place]
    (line,) = told(change)
    assert line.startswith(f"{place} (")
    assert line.endswith(f"has no {attribute}, on which this program relies")


def test_each_method_that_is_overridden_would_be_missed() -> None:
    taken_in_turn = """
import importlib
from downloader.process.private_parts import OVERRIDDEN, missing
for place, names in OVERRIDDEN.items():
    module, _, kind = place.partition(":")
    for name in names:
        owners = [c for c in getattr(importlib.import_module(module), kind).__mro__ if name in vars(c)]
        kept = [vars(owner)[name] for owner in owners]
        for owner in owners:
            delattr(owner, name)
        assert any(f"has no {name}," in line for line in missing()), (place, name)
        for owner, method in zip(owners, kept):
            setattr(owner, name, method)
"""
    assert [line for line in told(taken_in_turn) if line] == []


def test_nothing_else_touches_a_private_part_of_another_object() -> None:
    """``x._name`` where x is not self: of our own classes at most, which are named here."""
    # The first four are documented in spite of their names.
    ours = {
        "_replace",
        "_fields",
        "_field_defaults",
        "_getframe",
        "_lane_origin",
        "_want_more",
        "_grant_credit",
        "_pulse",
        "_make_heartbeat",
        "_exit",
    }
    overridden = {name for names in OVERRIDDEN.values() for name in names}
    found: dict[str, set[str]] = {}
    for path in (ROOT / "downloader").rglob("*.py"):
        if path == ADAPTER:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Attribute) or not node.attr.startswith("_"):
                continue
            if node.attr.startswith("__") or node.attr in ours:
                continue
            of_super = isinstance(node.value, ast.Call) and getattr(node.value.func, "id", "") == "super"
            of_self = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if of_super and node.attr in overridden:
                continue
            if not of_self and not _is_of_this_module(path, node.attr):
                found.setdefault(str(path.relative_to(ROOT)), set()).add(node.attr)
    assert found == {}


def _is_of_this_module(path: Path, name: str) -> bool:
    """Whether a class or function of the same file defines ``name``."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
            return True
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(each, ast.Attribute) and each.attr == name for each in targets):
                return True
    return False
