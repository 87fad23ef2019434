"""What reports of a check contain, whatever text the examined program has."""

from __future__ import annotations

import html.parser
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest
from report_parts import HOSTILE, NOW, outcome

from diagnostics.excerpts import excerpts_of
from diagnostics.model import Observation, Question, Target
from diagnostics.reports.chart import _ticks
from diagnostics.reports.github import commands, without_commands
from diagnostics.reports.junit import junit
from diagnostics.reports.outcome import shown
from diagnostics.reports.page import page
from diagnostics.timeline import timeline_of

# What the schema of Jenkins' xUnit plugin (junit-10.xsd) has of what is used. It refuses all else.
COUNTS = {"name", "tests", "failures", "errors", "time"}
JENKINS = {
    "testsuites": COUNTS,
    "testsuite": {*COUNTS, "skipped", "timestamp", "file"},
    "testcase": {"classname", "name", "time"},
    "failure": {"message", "type"},
}


class Reader(html.parser.HTMLParser):
    """The tags and attributes of a page, and its text."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(document)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def test_text_of_the_program_is_shown_and_is_never_markup():
    read, plain = (Reader(page(outcome(text), NOW, fixed=True).decode()) for text in (HOSTILE, "plain"))
    assert [tag for tag, _ in read.tags] == [tag for tag, _ in plain.tags]
    for _, attributes in read.tags:
        assert not any(name.startswith("on") or name in ("src", "href") for name in attributes)
    assert "<script>document.title='taken'</script>" in read.text
    assert "\\x00\\x1b[31m \\u202e \\udcff" in read.text


def test_page_loads_nothing():
    tags = Reader(page(outcome(), NOW, fixed=True).decode()).tags
    assert {tag for tag, _ in tags}.isdisjoint(
        {"script", "link", "img", "iframe", "object", "use", "image"}
    )
    policy = next(each["content"] for tag, each in tags if each.get("http-equiv"))
    assert "default-src 'none'" in policy
    assert "script-src" not in policy


def test_secrets_are_in_no_report():
    text = "requests.get('https://user:hunter2@host/?api_key=hunter2')"
    told = outcome(text)
    for report in (page(told, NOW, True), junit(told, NOW, True), "".join(commands(told, {})).encode()):
        assert b"hunter2" not in report
        assert b"***" in report


@pytest.mark.parametrize("text", ["", HOSTILE])
def test_junit_is_read_whatever_text_is_in_it(text):
    root = ElementTree.fromstring(junit(outcome(text), NOW, fixed=True))
    [case] = root.iter("testcase")
    [failure] = case
    assert (root.tag, root.attrib["failures"], root.attrib["errors"]) == ("testsuites", "1", "0")
    assert failure.tag == "failure"
    assert failure.attrib["message"].startswith("HTTPS is serialized: 10 × 0.2 s took 2.00 s")
    assert failure.attrib["message"].endswith(" at proj.py:4")
    assert "cause own-lock" in failure.text
    for each in root.iter():
        assert set(each.attrib) <= JENKINS[each.tag], each.tag


def test_junit_agrees_with_the_exit_code():
    def kinds(**changed):
        root = ElementTree.fromstring(junit(outcome(**changed), NOW, fixed=False))
        [case] = root.iter("testcase")
        return [each.tag for each in case], root.attrib["failures"], root.attrib["errors"]

    broken = replace(outcome().found, verdict="error", error="RecursionError: too deep")
    assert kinds() == (["failure"], "1", "0")
    assert kinds(exit_code=0, expected="serialized") == (["system-out"], "0", "0")
    assert kinds(exit_code=3, found=broken) == (["error"], "0", "1")
    assert kinds(exit_code=4, found=None, error="no probe") == (["error"], "0", "1")


def test_annotation_is_escaped_and_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "a,b:c%d.py"
    [command] = commands(outcome("50 %\nnext, one: ", name), {})
    assert command.startswith("::error file=a%2Cb%3Ac%25d.py,line=4,title=HTTPS is serialized%3A 10 ×")
    assert "seen 50 %25%0Anext, one: %0A" in command
    [command] = commands(outcome(HOSTILE), {})
    assert len(command.splitlines()) == 1
    assert "%250A::error::no\\r%0A::error::fake" in command


def test_annotation_is_relative_to_the_checkout(tmp_path, monkeypatch):
    (tmp_path / "service").mkdir()
    monkeypatch.chdir(tmp_path / "service")
    for variables, begins in (
        ({"GITHUB_WORKSPACE": str(tmp_path)}, "::error file=service/proj.py,line=4,"),
        ({}, "::error file=proj.py,line=4,"),
        ({"GITHUB_WORKSPACE": str(tmp_path / "other")}, "::error title="),
    ):
        [command] = commands(outcome(), variables)
        assert command.startswith(begins)


def test_annotation_of_what_was_expected_and_of_no_probe():
    [command] = commands(outcome(exit_code=0, expected="serialized"), {})
    assert command.startswith("::notice file=")
    [command] = commands(outcome(found=None, exit_code=4, error="a: 100 %\nb"), {})
    assert command == "::error title=HTTPS could not be checked::a: 100 %25%0Ab"


def test_quoted_line_is_no_command():
    plain = "FAIL  serialized\n      at x.py:1\n"
    assert without_commands(plain) == plain
    for quoted in ("   ::error::fake", "x = 1  # ##[error]fake"):
        lines = without_commands(f"{plain}{quoted}\n").splitlines()
        token = lines[0].removeprefix("::stop-commands::")
        assert len(token) == 32
        assert lines[-1] == f"::{token}::"
        assert lines[1:-1] == [*plain.splitlines(), quoted]


def test_what_cannot_be_seen_is_escaped():
    assert shown("a\tb\nc é 漢") == "a\tb\nc é 漢"
    assert shown("\x00\x7f\x9b\u200b\u202e\u2028\ufeff\ud800") == (
        r"\x00\x7f\x9b\u200b\u202e\u2028\ufeff\ud800"
    )


def observed(served=None, **changed):
    """Return an observation of two requests, of which the first held the hub."""
    timeline = {
        "began": 100.0,
        "requests": [[0, 100.0, 100.2, False], [1, 100.01, 100.4, True]],
        "holds": [[100.0, 100.2, 0, ["/w/app.py", 3, "fetch"]], [100.3, 100.35, None, None]],
        **changed,
    }
    once = {"requests": 2, "delay": 0.2, "wall": 0.4, "run": "r-1", "timeline": timeline}
    result = {"rounds": [{**once, "wall": 9.0, "timeline": None}, once]}
    return Observation(result, {}, {"cwd": "/w"}, served)


def drawn(seen):
    return timeline_of(Question(Target(), requests=2), seen, 0.4)


def test_timeline_combines_the_process_and_the_server():
    found = drawn(observed({"r-1": {"spans": [[0, 100.01, 100.19], [1, 100.22, None], [7, 100.3, 100.4]]}}))
    assert found.seconds == pytest.approx(0.4)
    first, second = found.requests
    assert (first.index, first.failed, second.failed) == (0, False, True)
    assert first.waited == [pytest.approx((0.01, 0.19))]
    assert second.waited == [pytest.approx((0.22, 0.4))]
    assert [(each.request, each.where) for each in found.holds] == [(0, "app.py:3"), (None, "")]


def test_timeline_without_a_common_clock_has_no_times_of_the_server():
    found = drawn(observed({"r-1": {"spans": [[0, 5.0, 5.2]]}}))
    assert [each.waited for each in found.requests] == [[], []]


@pytest.mark.parametrize(
    "changed",
    [
        {"requests": []},
        {"requests": "x"},
        {"began": None},
        {"holds": [["a"]]},
        {"requests": [[0, "x", 1, 0]]},
    ],
)
def test_timeline_that_is_none(changed):
    assert drawn(observed(**changed)) is None


def test_timeline_of_a_round_that_was_given_up():
    record = {"began": 5.0, "requests": [[0, 5.0, None, False]], "holds": [[5.0, 9.0, 0, None]]}
    seen = Observation({"rounds": [], "timeline": record}, {}, {})
    found = drawn(seen)
    assert (found.seconds, found.requests[0].ended) == (4.0, None)
    assert "not ended" in page(outcome(found=replace(outcome().found, timeline=found)), NOW, False).decode()


@pytest.mark.parametrize("seconds", [1e-3, 0.02, 0.2, 0.224, 1.0, 2.07, 9.99, 600.0])
def test_ticks_are_few_and_inside(seconds):
    ticks = _ticks(seconds)
    assert ticks[0] == 0
    assert 2 <= len(ticks) <= 5
    assert ticks[-1] < seconds


def test_excerpts_of_sources_in_any_encoding_and_of_none(tmp_path):
    facts = {"started": str(tmp_path), "path": []}
    (tmp_path / "latin.py").write_bytes("# coding: latin-1\nx = 'é'\n\n\n\n".encode("latin-1"))
    (tmp_path / "bytes.py").write_bytes(b"a\n\xff\xfe\x00\nc")
    (tmp_path / "long.py").write_text("x = '" + "y" * 1000 + "'\n")
    places = ["latin.py:2", "bytes.py:2", "long.py:1", "latin.py:99", "none.py:1", "<string>:1", "", ".:1"]
    held = [{"stack": []}, {"stack": [["latin.py", None, "fetch"]]}]
    found = {each.where: each for each in excerpts_of(places, held, facts)}
    assert sorted(found) == ["bytes.py:2", "latin.py:2", "long.py:1"]
    assert (found["latin.py:2"].first, found["latin.py:2"].lines) == (1, ["# coding: latin-1", "x = 'é'"])
    assert len(found["long.py:1"].lines[0]) == 200
