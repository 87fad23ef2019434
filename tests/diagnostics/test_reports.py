"""Reports for pipelines and people, by real runs."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree

import pytest
from program_parts import INJECT

# Shows that it ran: a file in its folder.
MARKS = "from pathlib import Path\nPath('ran').touch()\nimport requests\n"


def test_all_reports_of_the_classic_trap(run, write, tmp_path):
    (tmp_path / "service").mkdir()
    (tmp_path / "service" / "proj.py").write_text(INJECT)
    options = [
        "--requests",
        "5",
        "--fix",
        "--json",
        "--github",
        "--junit",
        "out.xml",
        "--report",
        "out.html",
    ]
    variables = {"PYTHONPATH": str(tmp_path / "service"), "GITHUB_WORKSPACE": str(tmp_path)}
    answer = run("--app", "proj", *options, env=variables)
    assert answer.code == 1
    # Standard output is the JSON alone; the runner reads the other stream, too.
    assert json.loads(answer.out)["verdict"] == "serialized"
    assert not {"timeline", "excerpts"} & set(answer.json)
    [command] = [line for line in answer.err.splitlines() if line.startswith("::")]
    assert command.startswith("::error file=service/proj.py,line=4,title=HTTPS is serialized%3A 5 × 0.2 s")
    assert "fix: from gevent import monkey; monkey.patch_all()" in command
    [suite] = ElementTree.parse(tmp_path / "out.xml").getroot()
    [[failure]] = suite
    assert suite.attrib["file"] == "service/proj.py"
    assert failure.attrib["type"] == "pyopenssl-unpatched-select"
    assert failure.attrib["message"].endswith("at service/proj.py:4")
    text = (tmp_path / "out.html").read_text()
    for part in (
        "The server had at most 1 of them at once.",
        "urllib3.contrib.pyopenssl.inject_into_urllib3()  # &lt;- where",
        "return poll_obj.poll(t)",
    ):
        assert part in text
    rows = text.partition('class="timeline"')[2].partition("</table>")[0]
    assert rows.count("held the hub") >= 5  # each request held it while it waited
    assert rows.count(": at the server</title>") == 5
    assert text.count('<rect class="after"') == len(answer.json["remedies"]) == 4
    umask = (tmp_path / "service" / "proj.py").stat().st_mode & 0o777
    for name in ("out.xml", "out.html"):
        assert (tmp_path / name).stat().st_mode & 0o777 == umask & 0o666
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.html", "out.xml", "service"]


def test_concurrent_process_has_a_test_that_passes_and_no_annotation(run, tmp_path):
    (tmp_path / "out.xml").write_text("of an earlier run")
    answer = run("--style", "requests", "--github", "--junit", "out.xml", "--report", "out.html")
    assert (answer.code, answer.err) == (0, "")
    assert "::" not in answer.out
    root = ElementTree.parse(tmp_path / "out.xml").getroot()
    assert (root.attrib["tests"], root.attrib["failures"], root.attrib["errors"]) == ("1", "0", "0")
    text = (tmp_path / "out.html").read_text()
    assert text.count(": at the server</title>") == 10
    assert "What held the hub" not in text


def test_line_of_a_program_is_no_command_of_a_workflow(run, write):
    text = """
        from time import sleep
        from gevent import monkey; monkey.patch_all()
        import requests

        def fetch(url):
            sleep(0.1)  # ##[error]fake
            return requests.get(url)
    """
    answer = run("--app", write("proj", text) + ":fetch", "--github", "--requests", "4")
    assert answer.code == 1
    first, *between, last, command = answer.out.splitlines()
    assert any("##[error]fake" in line for line in between)
    assert first == f"::stop-commands::{last.strip(':')}"
    # Only the older form of a command begins within a line, and not within one of the newer form.
    assert command.startswith("::error file=proj.py,line=7,")


def test_what_cannot_be_probed_is_an_error_in_every_report(run, write, tmp_path):
    (tmp_path / "out.xml").write_text("<testsuites/>")
    name = write("proj", "import os\n\nos.environ['THERE_IS_NO_SUCH']\n")
    answer = run("--app", name, "--github", "--junit", "out.xml", "--report", "out.html")
    assert answer.code == 4
    assert "THERE_IS_NO_SUCH" in answer.line
    assert answer.out.startswith(
        "::error title=HTTPS could not be checked::importing proj failed: KeyError"
    )
    [case] = ElementTree.parse(tmp_path / "out.xml").iter("testcase")
    assert case[0].tag == "error"
    assert "THERE_IS_NO_SUCH" in case[0].attrib["message"]
    assert "THERE_IS_NO_SUCH" in (tmp_path / "out.html").read_text()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--junit", "no/out.xml"], "--junit: no/out.xml: there is no directory"),
        (["--report", "."], "--report: . is a directory"),
        (["--report", "/proc/out.html"], "--report: /proc/out.html cannot be written"),
        (["--junit", "a", "--report", "./a"], "--junit and --report: both name ./a"),
    ],
)
def test_path_that_cannot_be_written_ends_it_before_anything_is_started(
    run, write, tmp_path, options, told
):
    answer = run("--app", write("proj", MARKS), *options)
    assert answer.code == 2
    assert answer.line.startswith(f"diagnostics: {told}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["proj.py"]


def test_report_that_cannot_be_written_at_the_end(run, write, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out.xml").write_text("of an earlier run")
    text = "import os\nos.rmdir('out')\nfrom gevent import monkey; monkey.patch_all()\nimport requests\n"
    answer = run("--app", write("proj", text), "--report", "out/a.html", "--junit", "out.xml")
    assert answer.code == 4
    assert answer.out.startswith("OK ")
    assert "out/a.html cannot be written: No such file or directory" in answer.line
    assert ElementTree.parse(tmp_path / "out.xml").getroot().attrib["failures"] == "0"


def test_reports_to_a_stream(run):
    answer = run("--style", "requests", "--junit", "/dev/stdout", "--report", "/dev/null")
    assert answer.code == 0
    assert ElementTree.fromstring(answer.out[answer.out.index("<testsuites") :]).tag == "testsuites"
