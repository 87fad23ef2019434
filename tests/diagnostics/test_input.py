"""Bad input: one clear line, the documented exit code, no traceback, no process left running."""

from __future__ import annotations

import socket

import pytest

PROJECT = """
    NUMBER = 1
    async def later(url): pass
    def make(): pass
    def through(session, url, times, *, wait): pass
    def page(url, number): pass
    def named(*, url): pass
    def pages(url): yield url
    class Api:
        def get(self, url): pass
"""


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["--app", "there_is_no_such_module"], 2, "No module named 'there_is_no_such_module'"),
        (["--app", "not a module"], 2, "is not MODULE or MODULE:CALLABLE"),
        (["--app", "proj:nothing"], 2, "proj has no nothing"),
        (["--app", "proj:NUMBER"], 2, "is not callable"),
        (["--app", "proj:later"], 2, "is a coroutine function"),
        (["--app", "proj:make"], 2, "proj:make takes 0 arguments; a fetch takes one, the URL"),
        (["--app", "proj:through"], 2, "proj:through takes 4 arguments"),
        (["--app", "proj:page"], 2, "proj:page takes 2 arguments; a fetch takes one, the URL"),
        (["--app", "proj:named"], 2, "proj:named takes 1 arguments (url by name); a fetch takes one"),
        (["--app", "proj:pages"], 2, "proj:pages is a generator"),
        (["--app", "proj:Api.get"], 2, "proj:Api.get is a method without its object"),
        (["--app", "broken"], 4, "importing broken failed: ZeroDivisionError: division by zero"),
        (["--app", "exits"], 4, "importing exits failed: SystemExit: 3"),
        (["--requests", "0"], 2, "'--requests'"),
        (["--requests", "-1"], 2, "'--requests'"),
        (["--requests", "many"], 2, "'--requests'"),
        (["--delay", "0"], 2, "--delay"),
        (["--delay", "soon"], 2, "'soon' is not a time"),
        (["--style", "unheard-of"], 2, "'unheard-of' is not one of"),
        (["--python", "/there/is/none"], 2, "there is no such interpreter"),
        (["--style", "requests", "--app", "proj"], 2, "give one of"),
        (["--url", "http://localhost/"], 2, "is not an https:// URL"),
        (["--no-such-option"], 2, "o such option"),
        (["--cacert", "/there/is/none"], 2, "'--cacert'"),
    ],
)
def test_bad_input(run, write, args, code, says):
    write("proj", PROJECT)
    write("broken", "1 / 0\n")
    write("exits", "raise SystemExit(3)\n")
    answer = run(*args)
    assert answer.code == code, answer
    assert says in answer.line
    assert answer.out == ""


def test_unreachable_url(run):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but does not listen
        port = taken.getsockname()[1]
        answer = run("--style", "requests", "--url", f"https://user:pass@localhost:{port}/?token=s3cret")
    assert answer.code == 4
    assert f"localhost:{port} cannot be fetched" in answer.line
    assert "s3cret" not in answer.line
    assert "pass" not in answer.line
