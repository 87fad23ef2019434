"""Our dependencies, and what we never do with data from others."""

from __future__ import annotations

import ast
import configparser
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Versions below these have known vulnerabilities that concern us; a floor in setup.cfg must not be lower.
FLOORS = {
    "requests": "2.32.4",  # CVE-2024-47081: netrc credentials for a crafted URL
    "urllib3": "2.6.0",  # CVE-2025-50181, -66418, -66471: redirects, decompression chains and bombs
    "gevent": "23.9.0",  # CVE-2023-41419: WSGI server, request smuggling
    "h11": "0.16.0",  # CVE-2025-43859: malformed chunked bodies
    "gunicorn": "22.0.0",  # CVE-2024-1135, -6827: request smuggling
}
# Code that runs because of data that is read: from a server, a file, another process.
REFUSED = {"eval", "exec", "compile", "__import__"}
UNSAFE = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle"}
SOURCES = sorted((ROOT / "downloader").rglob("*.py"))


def version(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)))


def requirements() -> dict[str, str]:
    """Return name and floor of all requirements in setup.cfg."""
    config = configparser.ConfigParser(comment_prefixes=("#",), inline_comment_prefixes=None)
    config.read(ROOT / "setup.cfg")
    lines = config["options"]["install_requires"].split("\n")
    for extra in config["options.extras_require"].values():
        lines += extra.split("\n")
    found: dict[str, str] = {}
    for line in filter(None, map(str.strip, lines)):
        name, _, floor = line.partition(";")[0].partition(">=")
        key = name.strip().lower()
        least = floor.split(",")[0].strip()
        # The lowest of several counts.
        found[key] = min(found.get(key, least), least, key=version)
    return found


@pytest.mark.parametrize("package", FLOORS)
def test_no_floor_is_below_a_known_vulnerability(package: str) -> None:
    asked = requirements()
    if package in asked:
        assert version(asked[package]) >= version(FLOORS[package])
    else:
        assert package == "gunicorn"  # used by tests only


def test_runtime_requirements_have_floors() -> None:
    asked = requirements()
    for package in (
        "gevent",
        "requests",
        "urllib3",
        "httptools",
        "msgspec",
        "click",
        "rich",
        "trustme",
        "h11",
    ):
        assert asked[package], package


def imported(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def called(tree: ast.AST) -> set[str]:
    return {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_eval_and_no_pickle(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert not imported(tree) & UNSAFE
    # Pickles under another name: queues, pools and pipes of multiprocessing.
    assert "multiprocessing" not in imported(tree)
    assert not called(tree) & REFUSED
    shells = [
        keyword
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "shell"
    ]
    assert not shells


def test_unsafe_imports_and_calls_are_detected() -> None:
    tree = ast.parse("from pickle import loads\nimport marshal as m\nexec('x')\neval(y)")
    assert imported(tree) & UNSAFE == {"pickle", "marshal"}
    assert called(tree) & REFUSED == {"exec", "eval"}
