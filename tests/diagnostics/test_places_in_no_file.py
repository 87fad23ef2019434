"""A place is one that a person can open; what is in no file is shown by its text, or is said what it is."""

from __future__ import annotations

import compileall
import json
import re
import shlex
import sys
import zipapp

import pytest
from carried_out import carry_out_in
from meeting import meeting, said
from program_parts import INJECT, PATCH

from diagnostics.environments import Unavailable, prepare

__all__ = ["meeting", "said"]

pytestmark = pytest.mark.timeout(300)
SLOW = pytest.mark.slow  # one of each kind runs every time

WORK = """\
import os

import gevent
import requests

def fetch():
    requests.get(os.environ["URL"], timeout=30)

def work():
    number = int(os.environ["REQUESTS"])
    gevent.joinall([gevent.spawn(fetch) for _ in range(number)], raise_error=True)
"""
SERIAL = "pyopenssl-unpatched-select"
LATE = (
    "import json; import requests; from gevent import monkey; monkey.patch_all(); import work; work.work()"
)


# python -c


def test_statement_of_a_command_and_its_remedy_as_printed(said, write):
    write("work", WORK)
    answer = said([sys.executable, "-c", LATE], 0, "--fix")
    code, where = answer.cause
    assert code == "patched-too-late"
    assert re.fullmatch(r"python -c, line 1: (import requests|import json; import requests; .*)", where)
    assert "<string>" not in answer.out
    [remedy] = answer.json["remedies"]
    assert remedy["where"] == "the first line of python -c"
    said([sys.executable, "-c", carry_out_in(LATE, remedy["line"], remedy["where"])], 3)


@SLOW
def test_line_of_a_command_of_several(said, write):
    write("work", WORK)
    text = f"{INJECT}def main():\n    import work\n    work.work()\nmain()\n"
    answer = said([sys.executable, "-W", "ignore", "-c", text], 1, "--fix")
    shown = "urllib3.contrib.pyopenssl.inject_into_urllib3()  # <- where"
    assert answer.cause == (SERIAL, f"python -c, line 4: {shown}")
    assert answer.json["remedies"]
    for each in answer.json["remedies"]:
        if "front of" in each["where"] or "first line" in each["where"]:
            said([sys.executable, "-c", carry_out_in(text, each["line"], each["where"])], 3)


@SLOW
def test_healthy_command(said, write):
    write("work", WORK)
    said([sys.executable, "-c", f"{PATCH}import work; work.work()"], 3)


def test_children_of_multiprocessing_are_no_commands_of_the_users(said, write):
    # Their `python -c` is written by the standard library.
    write("work", WORK)
    text = """\
import multiprocessing

if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    import other
    child = multiprocessing.Process(target=other.begin)
    child.start()
    child.join()
"""
    write("other", f"{INJECT}import work\n\ndef begin():\n    work.work()\n")
    write("app", text)
    answer = said([sys.executable, "app.py"], 1)
    assert answer.cause == (SERIAL, "other.py:4")


@SLOW
def test_program_on_standard_input(said, write, tmp_path):
    write("work", WORK)
    write("program", f"{INJECT}import work; work.work()\n")
    start = ["sh", "-c", f"{shlex.quote(sys.executable)} < program.py"]
    answer = said(start, 1, "--fix")
    assert answer.cause == (SERIAL, "standard input, line 4")
    [remedy] = answer.json["remedies"]
    assert remedy["where"] == "the first line of standard input"
    text = (tmp_path / "program.py").read_text()
    write("program", carry_out_in(text, remedy["line"], remedy["where"]))
    said(start, 3)


# notebooks

PATCH_CELL = "# gevent\n\nfrom gevent import monkey\nmonkey.patch_all(thread=False)"
CELLS = {
    "late": ["import json\nimport requests", PATCH_CELL],
    "healthy": [PATCH_CELL, "import requests"],
}
PACKAGES = ("gevent", "ipykernel", "nbconvert", "pytest", "requests", "requests-mock")


@pytest.fixture(scope="session")
def python():
    """Return an interpreter that has ``PACKAGES``."""
    try:
        return prepare(sys.executable, PACKAGES, lambda text: None)
    except Unavailable as error:
        pytest.skip(str(error))


def notebook(folder, name, cells):
    """Write a notebook; return the argv that executes it."""
    made = [
        {"cell_type": "code", "id": f"c{n}", "source": text, "metadata": {}, "outputs": []}
        | {"execution_count": None}
        for n, text in enumerate([*cells, "import work\nwork.work()"])
    ]
    kernel = {"name": "python3", "display_name": "Python", "language": "python"}
    whole = {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}, "cells": made}
    (folder / f"{name}.ipynb").write_text(json.dumps(whole))
    return ["-m", "nbconvert", "--to", "notebook", "--execute", "--stdout", f"{name}.ipynb"]


@SLOW
def test_cells_of_a_notebook_and_the_remedy_as_printed(said, write, tmp_path, python):
    write("work", WORK)
    argv = notebook(tmp_path, "late", CELLS["late"])
    answer = said([python, *argv], 0, "--fix")
    assert answer.cause == ("patched-too-late", "In [1], line 2: import requests")
    assert "ipykernel_" not in " ".join(answer.json["causes"][0]["evidence"])
    [remedy] = answer.json["remedies"]
    assert remedy["where"] == "the first line of In [1]"
    changed = [carry_out_in(CELLS["late"][0], remedy["line"], remedy["where"]), CELLS["late"][1]]
    said([python, *notebook(tmp_path, "changed", changed)], 3)


@SLOW
def test_healthy_notebook(said, write, tmp_path, python):
    write("work", WORK)
    said([python, *notebook(tmp_path, "healthy", CELLS["healthy"])], 3)


# files that are elsewhere, or not there


def test_code_that_exec_runs_is_told_at_the_line_that_runs_it(said, write):
    write("work", WORK)
    write(
        "app", f"text = '''{INJECT}'''\nexec(compile(text, 'rules.py', 'exec'))\nimport work; work.work()\n"
    )
    answer = said([sys.executable, "app.py"], 1)
    assert answer.cause == (SERIAL, f"app.py:{len(INJECT.splitlines()) + 2}")


@SLOW
@pytest.mark.parametrize(
    "runner", [("-m", "doctest"), ("-m", "pytest", "-q", "--doctest-modules")], ids=" ".join
)
def test_examples_of_a_docstring(said, write, runner):
    write("work", WORK)
    inject = "".join(f"    >>> {line}\n" for line in INJECT.splitlines() if line)
    write("doc", f'def f():\n    """Examples.\n\n{inject}    >>> import work; work.work()\n    """\n')
    answer = said([sys.executable, *runner, "doc.py"], 1)
    assert answer.cause == (SERIAL, "doc.py:6")


@SLOW
def test_module_found_relative_to_a_directory_that_was_changed_to(said, write, tmp_path):
    (tmp_path / "inner").mkdir()
    write("work", WORK)
    write("inner/late", INJECT)
    begins = "import os, sys\nsys.path[:0] = ['.', os.getcwd()]\nos.chdir('inner')\n"
    write("app", f"{begins}import late, work\nwork.work()\n")
    assert said([sys.executable, "app.py"], 1).cause == (SERIAL, "inner/late.py:4")


@SLOW
def test_checkout_behind_a_link_and_a_program_elsewhere(said, write, tmp_path):
    for name in ("real", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("real")
    write("real/work", WORK)
    write("real/app", f"{INJECT}import work; work.work()\n")
    assert said([sys.executable, "link/app.py"], 1).cause == (SERIAL, "link/app.py:4")
    script = f"cd elsewhere && exec {shlex.quote(sys.executable)} ../link/app.py"
    assert said(["sh", "-c", script], 1).cause == (SERIAL, "link/app.py:4")


@SLOW
def test_module_without_its_source(said, write, tmp_path):
    write("work", WORK)
    write("late", INJECT)
    assert compileall.compile_file(tmp_path / "late.py", legacy=True, quiet=2)
    (tmp_path / "late.py").unlink()
    write("app", "import late\nimport work; work.work()\n")
    answer = said([sys.executable, "app.py"], 1)
    assert answer.cause == (SERIAL, "late.pyc, line 4 (its source is not there)")


@SLOW
def test_archive_and_the_remedy_in_it_as_printed(said, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "work.py").write_text(WORK)
    late = f"import requests\n{PATCH}import work\n\nwork.work()\n"
    (source / "__main__.py").write_text(late)
    zipapp.create_archive(source, tmp_path / "app.pyz")
    answer = said([sys.executable, "app.pyz"], 0, "--fix")
    assert answer.cause == ("patched-too-late", "app.pyz/__main__.py:1")
    [remedy] = answer.json["remedies"]
    assert remedy["where"] == "the first line of app.pyz/__main__.py"
    (source / "__main__.py").write_text(f"{remedy['line']}\n{late}")
    zipapp.create_archive(source, tmp_path / "app.pyz")
    said([sys.executable, "app.pyz"], 3)


# compiled code


def test_compiled_code_is_no_place_of_the_users(run, write):
    # What fails in gevent's compiled code has its names in the traceback: src/gevent/….
    fails, gets = "gevent.joinall([gevent.spawn(int)], count=object())", "requests.get(url)"
    text = f"{PATCH}\nimport gevent\nimport requests\n\ndef fetch(url):\n"
    write("app", f"{text}    {fails}\n    {gets}\n")
    answer = run("--json", "--app", "app:fetch")
    assert "src/gevent" not in answer.json["causes"][0]["where"]
    assert answer.json["causes"][0]["where"].startswith("app.py:"), answer
    write("app", f"{text}    {gets}\n    {fails}\n")
    answer = run("--json", "--app", "app:fetch")
    assert answer.code == 4
    assert "(app.py:8)" in answer.line
