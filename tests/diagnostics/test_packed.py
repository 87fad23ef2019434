"""The diagnostics as they are installed or copied: a wheel in a fresh environment, a zip file, a module."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from harness import environment

from diagnostics.environments import Unavailable, find, prepare
from diagnostics.pack import make_inspection, make_zipapp

ROOT = Path(__file__).parents[2]
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
OLDER = {
    "2.7": ["gevent==1.4.0", "greenlet==0.4.16", "grequests==0.3.0", "requests==2.21.0", "urllib3==1.24.1"],
    "3.8": ["gevent==24.2.1", "requests"],
}
OLDER |= dict.fromkeys(("3.6", "3.7"), OLDER["2.7"]) | dict.fromkeys(("3.9", "3.10"), OLDER["3.8"])
HEALTHY = "from gevent import monkey\nmonkey.patch_all()\nimport requests\n"
NOT_PATCHED = "import gevent\nimport requests\n"
LATE = "import requests\nfrom gevent import monkey\nmonkey.patch_all()\n"


def done(argv, cwd, **env):
    """Run a command to its end; return its exit code, output and errors."""
    env = {**environment(), "PYTHONPATH": "", **env}  # not the tree
    found = subprocess.run(
        list(map(str, argv)), cwd=cwd, env=env, capture_output=True, text=True, check=False
    )
    return found.returncode, found.stdout, found.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel of the tree, which is copied, so that nothing is built in it."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("diagnostics", "downloader"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    code, out, said = done(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "-q",
            "--no-deps",
            "--no-build-isolation",
            "-w",
            "made",
            ".",
        ],
        folder,
    )
    assert code == 0, (out, said)
    (found,) = (folder / "made").glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The interpreter of a fresh environment that has the wheel; other packages are those of this one."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "-q", "--python", python]
    assert done([*pip, "install", "--no-deps", "--no-index", wheel], folder)[0] == 0
    (packages,) = folder.glob("lib/python*/site-packages")
    # A line that is a path adds it, and executes none of the .pth files there: this tree is not found.
    (packages / "requirements.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    assert (
        f"{packages}{os.sep}" in done([python, "-c", "import diagnostics; print(diagnostics)"], folder)[1]
    )
    return python


def test_the_wheel_has_every_module(wheel):
    there = {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".py")}
    ours = {
        str(path.relative_to(ROOT))
        for name in ("diagnostics", "downloader")
        for path in (ROOT / name).rglob("*.py")
    }
    assert there == ours


def rows(argv, cwd):
    code, out, said = done(argv, cwd)
    assert out, said
    found = json.loads(out)["scenarios"]
    return code, {each["name"]: each for each in found}


def test_scenarios_of_the_wheel_are_as_in_the_checkout(installed, tmp_path):
    # A place in the application, and one in a folder on its path.
    names = ("pool_of_one", "injected_at_startup")
    only = [each for name in names for each in ("--only", name)]
    code, found = rows([installed, "-m", "diagnostics", "scenarios", "--json", *only], tmp_path)
    assert {name: each["outcome"] for name, each in found.items()} == dict.fromkeys(names, "as expected"), (
        found
    )
    assert code == 0


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_scenario_of_the_wheel_is_as_in_the_checkout(installed, tmp_path):
    code, found = rows([installed, "-m", "diagnostics", "scenarios", "--json", "--offline"], tmp_path)
    assert {
        name: each for name, each in found.items() if each["outcome"] not in ("as expected", "skipped")
    } == {}
    assert len([each for each in found.values() if each["outcome"] == "as expected"]) > 40
    assert code == 0


@pytest.fixture(scope="module")
def pyz(tmp_path_factory):
    """The diagnostics as a zip file."""
    path = tmp_path_factory.mktemp("zip") / "diagnostics.pyz"
    make_zipapp(path)
    return path


def bare(version):
    """Return the start of a command of that version to which no installed package is available."""
    python = find(version)
    if python is None:
        pytest.skip(f"there is no Python {version}")
    return [python, "-I", "-S"]


def put(folder, **files):
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)


def checked(start, pyz, folder, *arguments):
    """Return exit code and diagnosis of a check by the zip file."""
    code, out, said = done([*start, pyz, *arguments, "--json"], folder)
    assert out, said
    return code, json.loads(out)


def other():
    """Return another version than this one, if there is one."""
    own = "{}.{}".format(*sys.version_info)
    return next((each for each in PYTHONS if each != own and find(each)), own)


def test_zip_file_needs_no_installation(pyz, tmp_path):
    # What is beside it, or on its path, is not taken for what it brings.
    broken = "raise SystemError('of the project')\n"
    put(tmp_path, proj=LATE, click=broken, h11=broken, diagnostics=broken)
    start, target = bare(other()), ["--python", sys.executable, "--app", "proj"]
    before = set(os.listdir(pyz.parent))
    code, found = checked(start, pyz, tmp_path, *target, "--fix")
    assert (code, found["verdict"]) == (3, "error")
    assert [found["causes"][0][each] for each in ("code", "where")] == ["patched-too-late", "proj.py:1"]
    assert "patch-all-first" in [each["code"] for each in found["remedies"]]
    assert set(os.listdir(pyz.parent)) == before
    command = [*start, pyz, "watch", "--", sys.executable, "-c", "import proj"]
    code, _, said = done(command, tmp_path)
    assert (code, "watch: nothing held a hub" in said or "no hub" in said) == (0, True), said


def test_zip_file_has_the_scenarios(pyz, tmp_path):
    names = ("serial_server",)  # which has a certificate of the zip file
    argv = [*bare(other()), pyz, "scenarios", "--json", "--python", sys.executable, "--only", *names]
    _, found = rows(argv, tmp_path)
    assert {name: each["outcome"] for name, each in found.items()} == dict.fromkeys(names, "as expected"), (
        found
    )


def test_zip_file_of_a_user_has_what_shadows_it_on_the_path(pyz, tmp_path):
    put(tmp_path, proj=HEALTHY)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    put(elsewhere, click="raise SystemError\n", h11="raise SystemError\n", rich="raise SystemError\n")
    argv = [sys.executable, pyz, "--app", "proj", "--json"]
    code, out, said = done(argv, tmp_path, PYTHONPATH=str(elsewhere))
    assert (code, json.loads(out)["verdict"]) == (0, "concurrent"), said


def test_zip_file_has_no_downloader_to_check(pyz, tmp_path):
    code, _, said = done([*bare(other()), pyz], tmp_path)
    assert (code, said.count("\n")) == (2, 1), said
    assert "--app" in said


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.9"])
def test_zip_file_says_on_which_python_it_runs(pyz, tmp_path, version):
    code, _, said = done([*bare(version)[:1], pyz, "--app", "proj"], tmp_path)
    assert (code, said.count("\n")) == (4, 1)
    assert f"3.10 or newer, and this is {version}" in said


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", PYTHONS)
def test_zip_file_on_each_python(pyz, tmp_path, version):
    put(tmp_path, healthy=HEALTHY, serial=NOT_PATCHED)
    start = bare(version)
    for app, code in (("healthy", 0), ("serial", 1)):
        assert checked(start, pyz, tmp_path, "--python", sys.executable, "--app", app)[0] == code
    command = ["--python", sys.executable, "--", "python", "healthy.py"]
    assert done([*start, pyz, *command], tmp_path)[0] == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", ["2.7", "3.6", "3.7", "3.8", "3.9", *PYTHONS])
def test_zip_file_examines_environments_of_each_python(pyz, tmp_path, version):
    target = bare(version)[0]
    try:
        target = prepare(target, OLDER.get(version, ["gevent", "requests"]), lambda text: None)
    except Unavailable as error:
        pytest.skip(str(error))
    put(tmp_path, healthy=HEALTHY, serial=NOT_PATCHED)
    start = bare("3.12" if version != "3.12" else "3.10")
    assert checked(start, pyz, tmp_path, "--python", target, "--app", "healthy")[0] == 0
    code, found = checked(start, pyz, tmp_path, "--python", target, "--app", "serial")
    assert (code, found["causes"][0]["code"]) == (1, "not-patched")
    assert found["facts"]["python"].startswith(f"{version}.")


def test_wheel_of_the_one_module_is_for_every_python(tmp_path):
    made = make_inspection(tmp_path)
    assert re.fullmatch(r"https_inspection-[\d.]+-py2\.py3-none-any\.whl", made.name)
    with zipfile.ZipFile(made) as opened:
        names = [each for each in opened.namelist() if ".dist-info/" not in each]
        assert names == ["https_inspection.py"]
        assert (
            opened.read(names[0])
            == (ROOT / "diagnostics/agent/https_agent/https_inspection.py").read_bytes()
        )
        (metadata,) = (each for each in opened.namelist() if each.endswith("/METADATA"))
        assert b"Requires-Dist" not in opened.read(metadata)
