"""Make what runs without an installation: ``python -m diagnostics.pack diagnostics.pyz``.

The zip file has the diagnostics, those modules of the downloader that they import, and the packages that
both need, which must be pure Python. It runs on any Python from 3.10 on. With ``--inspection FOLDER`` it
makes a wheel of ``https_inspection.py``, for any Python from 2.7 on.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tempfile
import zipapp
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

from diagnostics import certificate

__all__ = ["main", "make_inspection", "make_zipapp"]

_ROOT = Path(__file__).resolve().parent.parent
_INSPECTION = _ROOT / "diagnostics" / "agent" / "https_agent" / "https_inspection.py"
_PACKAGES = ("click", "h11", "rich")  # pure Python, and without other packages for what is used of them
# Python 2.7 reads this, too, to say what it needs.
_MAIN = """\
import os
import sys

if sys.version_info < (3, 10):
    sys.stderr.write(
        "diagnostics: this file runs on Python 3.10 or newer, and this is %d.%d; a newer one examines it: "
        "python3 %s --python %s\\n" % (sys.version_info[:2] + (sys.argv[0], sys.executable))
    )
    sys.exit(4)
sys.path[0] = os.path.abspath(sys.path[0])  # the current directory changes
from diagnostics.__main__ import main

sys.exit(main())
"""
_SETUP = """\
[metadata]
name = https-inspection
version = {version}
description = Tell whether HTTPS is serialized under gevent in this process, by looking at it.
license = MIT

[options]
py_modules = https_inspection
python_requires = >=2.7, !=3.0.*, !=3.1.*, !=3.2.*, !=3.3.*, !=3.4.*, !=3.5.*

[bdist_wheel]
universal = 1
"""


def make_zipapp(target: Path) -> None:
    """Write the diagnostics as a zip file that Python runs to ``target``."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path in _modules():
            _put(_ROOT / path, folder / path)
        for package in _PACKAGES:
            _add_package(package, folder)
        (folder / "diagnostics" / certificate.PACKED).mkdir()
        certificate.write(folder / "diagnostics" / certificate.PACKED)()
        shutil.copy(_ROOT / "LICENSE", folder)
        (folder / "__main__.py").write_text(_MAIN)
        zipapp.create_archive(folder, target, interpreter="/usr/bin/env python3", compressed=True)


def make_inspection(folder: Path) -> Path:
    """Write a wheel that has nothing but ``https_inspection.py`` to ``folder``; return it."""
    version = next(
        ast.literal_eval(node.value)
        for node in ast.parse(_INSPECTION.read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__version__"
    )
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        source = Path(name)
        shutil.copy(_INSPECTION, source)
        (source / "setup.cfg").write_text(_SETUP.format(version=version))
        (source / "pyproject.toml").write_text(
            '[build-system]\nrequires = ["setuptools>=70.1"]\nbuild-backend = "setuptools.build_meta"\n'
        )
        command = (
            "import setuptools, sys; sys.argv[1:] = ['-q', 'bdist_wheel', '-d', 'made']; setuptools.setup()"
        )
        subprocess.run([sys.executable, "-c", command], cwd=source, check=True, capture_output=True)
        (made,) = (source / "made").glob("*.whl")
        return Path(shutil.copy(made, folder))


def _modules() -> Iterator[Path]:
    """Return the files of the diagnostics, and those of the downloader that they import, from the root."""
    waiting = [
        path.relative_to(_ROOT)
        for path in sorted((_ROOT / "diagnostics").rglob("*.py"))
        if path != Path(__file__).resolve()
    ]
    known = set(waiting)
    while waiting:
        path = waiting.pop()
        yield path
        # The agent and the scenarios run in other processes, with the downloader that is installed there.
        if not {"agent", "scenarios"} & set(path.parts[1:2]):
            found = set(_imported(_ROOT / path)) - known
            known |= found
            waiting += sorted(found)


def _imported(path: Path) -> Iterator[Path]:
    """Return the files of the downloader that a module imports, with those of the packages above them."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    # What a function of the downloader imports is for other uses of it; a test has all that is used here.
    nodes = ast.iter_child_nodes(tree) if path.is_relative_to(_ROOT / "downloader") else ast.walk(tree)
    for node in nodes:
        names = []
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
        for name in names:
            parts = name.split(".")
            if parts[0] != "downloader":
                continue
            for count in range(1, len(parts) + 1):
                module = Path(*parts[:count])
                for file in (module / "__init__.py", module.with_suffix(".py")):
                    if (_ROOT / file).is_file():
                        yield file


def _add_package(name: str, folder: Path) -> None:
    """Copy an installed package and its licence to ``folder``. Raises ValueError if it is compiled."""
    for file in distribution(name).files or ():
        if file.suffix in (".so", ".pyd"):
            raise ValueError(f"{name} is compiled: {file}")
        is_metadata = file.parts[0].endswith(".dist-info")
        if file.suffix == ".pyc" or ".." in file.parts or (is_metadata and "LICENSE" not in file.name):
            continue
        _put(Path(str(file.locate())), folder / file)


def _put(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def main(argv: list[str]) -> int:
    """Make what the arguments name; return the exit code."""
    if argv[:1] == ["--inspection"]:
        made = make_inspection(Path(*argv[1:2]))
    else:
        made = Path(*argv[:1])
        make_zipapp(made)
    sys.stdout.write(f"{made}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
