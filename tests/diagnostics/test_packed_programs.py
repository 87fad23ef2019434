"""Programs that a packer (pex, shiv) starts: its code is nobody's, and the remedy is in the package."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile

import pytest
from carried_out import carry_out
from harness import environment
from meeting import meeting, said

from diagnostics.environments import Unavailable, prepare

__all__ = ["meeting", "said"]

AGAIN = ", then pack the program again"
MAIN = "import pkg.late\n\ndef main():\n    pkg.late.work()\n"
# Its own code is what pex runs as the main module.
RUN = f'{MAIN}\nif __name__ == "__main__":\n    main()\n'
LATE = """\
import os, requests
import gevent
from gevent import monkey
monkey.patch_all()

def work():
    url, many = os.environ.get("URL", "https://localhost:9"), int(os.environ.get("REQUESTS", "1"))
    gevent.joinall([gevent.spawn(requests.get, url, timeout=30) for _ in range(many)])
"""
# Where what was packed is unpacked, as pex and shiv have it in a cache, and what starts it from there.
CACHE = {"pex": "wheels/pkg-1-py3-none-any.whl", "shiv": "cache/site-packages"}
STARTS = {
    "function": "sys.exit(importlib.import_module('pkg.main').main())",
    "module": "runpy.run_module('pkg.main', run_name='__main__', alter_sys=True)",
    "script": "runpy.run_path(os.path.join(where, 'bin', 'app'), run_name='__main__')",
}
BOOT = "import importlib, os, runpy, site, sys\n\ndef bootstrap():\n    where = {!r}\n"
BOOT += "    sys.path.insert(0, where)\n    site.addsitedir(where)\n    {}\n"


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """Return an interpreter without any package."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder / "bin" / "python"


def put(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def pack(tool, folder, start):
    """Write what ``tool`` makes of ``pkg``, as far as it matters here; return what is to be started."""
    packages = folder / CACHE[tool]
    put(packages / "pkg" / "__init__.py", "")
    put(packages / "pkg" / "main.py", RUN)
    put(packages / "pkg" / "late.py", LATE)
    put(packages / "bin" / "app", "import sys\nfrom pkg.main import main\nsys.exit(main())\n")
    put(packages / "needs.pth", f"{sysconfig.get_path('purelib')}\n")
    boot = BOOT.format(str(packages), STARTS[start])
    if tool == "pex":
        put(folder / "app" / "PEX-INFO", "{}")
        put(folder / "app" / ".bootstrap" / "pex" / "pex.py", boot)
        main = "import os, sys\nsys.path.insert(0, os.path.join(os.path.dirname(__file__), '.bootstrap'))\n"
        put(folder / "app" / "__main__.py", f"{main}from pex import pex\npex.bootstrap()\n")
        return "app/__main__.py"
    with zipfile.ZipFile(folder / "app.shiv", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("environment.json", "{}")
        archive.writestr("_bootstrap/environment.py", "")
        archive.writestr("_bootstrap/__init__.py", boot)
        archive.writestr("__main__.py", "import _bootstrap\n_bootstrap.bootstrap()\n")
    return "app.shiv"


@pytest.mark.parametrize("outside", [False, True], ids=["", "gevent-outside"])
@pytest.mark.parametrize(
    ("tool", "start"), [("pex", "function"), ("pex", "module"), ("shiv", "function"), ("shiv", "script")]
)
def test_cause_and_remedy_are_in_the_packed_package(run, tmp_path, bare, tool, start, outside):
    python = sys.executable if outside else bare
    answer = run("--json", "--fix", "--", python, pack(tool, tmp_path, start))
    assert answer.cause == ("patched-too-late", "pkg/late.py:1"), answer
    remedies = answer.json["remedies"]
    assert [each["where"] for each in remedies] == [f"the first line of pkg/main.py{AGAIN}"], answer
    assert remedies[0]["verdict"] == "concurrent"


@pytest.mark.parametrize("tool", CACHE)
def test_gevent_from_outside_of_the_pack_is_no_remedy(run, tmp_path, tool):
    start = pack(tool, tmp_path, "function")
    with open(tmp_path / CACHE[tool] / "needs.pth", "a") as file:
        file.write("import requests\n")  # before any line of the package
    answer = run("--json", "--fix", "--", sys.executable, start)
    assert (answer.cause[0], answer.json["remedies"]) == ("patched-too-late", []), answer


def test_main_of_another_archive_is_the_users(run, tmp_path):
    main = f"{LATE}\nfrom _bootstrap import end\nwork()\nend()\n"
    with zipfile.ZipFile(tmp_path / "app.pyz", "w") as archive:
        archive.writestr("__main__.py", main)
        archive.writestr("_bootstrap/__init__.py", "def end():\n    pass\n")
    answer = run("--json", "--fix", "--", sys.executable, "app.pyz")
    assert answer.cause == ("patched-too-late", "app.pyz/__main__.py:1"), answer
    assert answer.json["remedies"][0]["where"] == "the first line of app.pyz/__main__.py"


SETUP = "from setuptools import setup\n"
SETUP += "setup(name='pkg', version='1', packages=['pkg'], "
SETUP += "entry_points={'console_scripts': ['app=pkg.main:main']})"
NEEDS = ["gevent", "requests"]
TOOLS = {
    "pex": ["pex", *NEEDS, "./source", "-e", "pkg.main:main", "-o", "packed"],
    "pex-module": ["pex", *NEEDS, "./source", "-m", "pkg.main", "-o", "packed"],
    "pex-venv": ["pex", *NEEDS, "./source", "-c", "app", "--venv", "-o", "packed"],
    "pex-sources": ["pex", *NEEDS, "-D", "source", "-e", "pkg.main:main", "-o", "packed"],
    "shiv": ["shiv", "-q", "-e", "pkg.main:main", "-o", "packed", *NEEDS, "./source"],
    "shiv-script": ["shiv", "-q", "-c", "app", "-o", "packed", *NEEDS, "./source"],
}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", TOOLS)
def test_packed_by_the_tool_and_the_remedy_as_printed(said, meeting, tmp_path, monkeypatch, bare, way):
    try:
        tools = prepare(
            sys.executable, ["pex", "shiv", "setuptools", "wheel", "gevent", "requests"], lambda text: None
        )
    except Unavailable as error:
        pytest.skip(str(error))
    for name in ("PEX_ROOT", "SHIV_ROOT"):
        monkeypatch.setenv(name, str(tmp_path / "root"))
    for name, text in {"setup": SETUP, "pkg/__init__": "", "pkg/main": RUN, "pkg/late": LATE}.items():
        put(tmp_path / "source" / f"{name}.py", text)
    tool, *options = TOOLS[way]
    argv = [os.path.join(os.path.dirname(tools), tool), *options]

    def packed():
        for left in ("build", "pkg.egg-info"):
            subprocess.run(["rm", "-rf", tmp_path / "source" / left], check=True)
        made = subprocess.run(
            argv, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
        )
        if made.returncode:
            pytest.skip(f"{tool} made nothing: {made.stderr[-300:]}")

    packed()
    # pex looks for an interpreter itself, and has the one that has made it.
    start = [bare, "packed"] if tool == "shiv" else ["./packed"]
    answer = said(start, 0, "--fix")
    assert answer.cause == ("patched-too-late", "pkg/late.py:1"), answer
    remedy = answer.json["remedies"][0]
    assert remedy["where"] == f"the first line of pkg/main.py{AGAIN}"
    assert carry_out(tmp_path / "source", remedy["line"], remedy["where"]) == []
    packed()
    assert meeting.of(3, start, tmp_path) == 3
