"""--respect x-robots-tag: what refuses its use is not stored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from servers import Answer, Server, download, ok, redirect, status
from servers.rows import head

LANES = pytest.mark.parametrize("lane", ["auto", "requests"])
OPTIONS = ("--respect", "x-robots-tag", "--workers", "1", "--retries", "1", "--backoff", "20ms")
BODY = b"hello"
LARGE = b"x" * 3_000_000

REFUSED: dict[str, Answer] = {
    "noai": ok(BODY, "X-Robots-Tag: noai"),
    "small-letters": ok(BODY, "x-robots-tag: NOIMAGEAI"),
    "second-line": ok(BODY, "X-Robots-Tag: nofollow", "X-Robots-Tag: noindex"),
    "other-spelling": ok(BODY, "X-Robots-Tag: nofollow", "x-robots-tag: noindex"),
    "third-of-three": ok(BODY, "X-Robots-Tag: a: b", "X-Robots-Tag: c: d", "X-Robots-Tag: noimageindex"),
    "for-us": ok(BODY, "X-Robots-Tag: mass-downloader: noai"),
    "reserved": ok(BODY, "TDM-Reservation: 1"),
    "empty": ok(b"", "X-Robots-Tag: noai"),
    "large": ok(LARGE, "X-Robots-Tag: noai"),
    "chunked": [head("X-Robots-Tag: noai", "Transfer-Encoding: chunked"), b"5\r\nhello\r\n0\r\n\r\n"],
    "until-the-end": [head("X-Robots-Tag: noai", "Connection: close"), BODY],
    "elsewhere": redirect("/get/noai"),
}
STORED: dict[str, Answer] = {
    "plain": ok(BODY),
    "nofollow": ok(BODY, "X-Robots-Tag: nofollow"),
    "for-another": ok(BODY, "X-Robots-Tag: otherbot: noindex, noai"),
    "not-reserved": ok(BODY, "tdm-reservation: 0"),
    # What the redirect says is not about the target.
    "hop": status(302, "Location: /get/plain", "X-Robots-Tag: noindex"),
}


@LANES
@pytest.mark.parametrize("depth", ["off", "16"])
def test_what_refuses_its_use_is_not_stored(lane: str, depth: str, tmp_path: Path) -> None:
    with Server(files={**REFUSED, **STORED}) as server:
        options = (*OPTIONS, "--lane", lane, "--pipeline", depth, "--connections", "2")
        result = download(server.url, tmp_path / "d", *options)
        # Nothing is tried again.
        assert len(server.seen("/get/noai")) <= (2 if lane == "requests" else 4)
    assert result.codes == dict.fromkeys(REFUSED, "opted-out")
    assert set(result.files) == set(STORED)
    assert result.failures["second-line"]["detail"] == "X-Robots-Tag: noindex"
    assert result.failures["reserved"]["detail"] == "tdm-reservation: 1"
    assert {failure["attempts"] for failure in result.failures.values()} == {1}


@LANES
def test_without_the_option_everything_is_stored(lane: str, tmp_path: Path) -> None:
    files = {name: answer for name, answer in REFUSED.items() if name != "until-the-end"} | STORED
    with Server(files=files) as server:
        result = download(server.url, tmp_path / "d", "--workers", "1", "--lane", lane)
    assert (result.exit, set(result.files)) == (0, set(files))


def test_an_error_is_an_error(tmp_path: Path) -> None:
    with Server(files={"a": status(404, "X-Robots-Tag: noindex")}) as server:
        result = download(server.url, tmp_path / "d", *OPTIONS)
    assert result.codes == {"a": "http-404"}


def test_connections_are_kept_and_pipelined(tmp_path: Path) -> None:
    """A server that refuses every other file is not slower for it than one connection allows."""
    files: dict[str, Answer] = {
        f"f{n}": ok(BODY, "X-Robots-Tag: noai" if n % 2 else "X-Robots-Tag: all") for n in range(1000)
    }
    with Server(files=files) as server:
        options = (*OPTIONS, "--connections", "2", "--pipeline", "8")
        result = download(server.url, tmp_path / "d", *options)
        assert server.connections <= 2 + 2  # and those of the listing
        assert 1000 < len(server.requests) <= 1 + 1000 * 1.4  # with those that check the order
    assert len(result.files) == 500
    assert result.report["lanes"]["requests"] == 0


@LANES
def test_with_robots_txt_and_its_own_tag(lane: str, tmp_path: Path) -> None:
    """Many servers say noindex of robots.txt itself; it is for that purpose that it is there."""
    rules = ok(b"User-agent: *\nDisallow: /get/b\n", "X-Robots-Tag: noindex")
    with Server({"/robots.txt": rules}, files={"a": ok(), "b": ok(), **REFUSED}) as server:
        result = download(server.url, tmp_path / "d", *OPTIONS, "--robots", "--lane", lane)
        assert len(server.seen("/robots.txt")) == 1
    assert result.codes == {"b": "robots", **dict.fromkeys(REFUSED, "opted-out")}
    assert set(result.files) == {"a"}


def test_unknown_words_are_refused(tmp_path: Path) -> None:
    result = download("-", tmp_path / "d", "--respect", "x-robots-tag,robots", stdin="")
    assert result.exit == 2
    assert "'robots' is not known; what can be respected is x-robots-tag" in result.stderr


def test_from_python() -> None:
    from downloader import Config, ConfigError

    config = Config(source="-", output="x", respect=["x-robots-tag"])
    assert config.respect == ("x-robots-tag",)
    with pytest.raises(ConfigError, match="respect"):
        Config(source="-", output="x", respect=["other"])
    assert json.dumps(config.respect) == '["x-robots-tag"]'
