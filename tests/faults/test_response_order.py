"""Servers that answer several requests on one connection in another order than they came in. As many
responses come as were requested, and each looks right; still no body is stored under another's name.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest
from harness import run as run_command
from servers import Result, Unordered, download, ok, status

COUNT = 1000
NAMES = [f"file-{n}" for n in range(COUNT)]
# So many that several requests are in flight on a busy machine, too, where that has to be found worth it.
MORE = [f"file-{n}" for n in range(3 * COUNT)]
QUICK = ("--workers", "1", "--read-timeout", "5s", "--backoff", "20ms")


def same_size(name: str) -> bytes:
    return name.encode().ljust(40, b".")


def other_size(name: str) -> bytes:
    return name.encode() * (1 + int(name.rpartition("-")[2]) % 7)


def late(name: str) -> bytes:
    """Return the same body for most names, at the beginning for all."""
    number = int(name.rpartition("-")[2])
    return name.encode() if number > COUNT // 2 and number % 3 == 0 else b"the same"


def sometimes_large(name: str) -> bytes:
    return name.encode() * (40_000 if name.endswith("00") else 3)


def serve(
    body: Callable[[str], bytes],
    order: str,
    after: int = 0,
    names: Sequence[str] = NAMES,
    limit: int | None = None,
    share: int = 1,
) -> Unordered:
    return Unordered(names, lambda name: ok(body(name))[0], order, after, limit, share)  # type: ignore[arg-type, return-value]


def fetch(server: Unordered, tmp_path: Path, depth: str) -> Result:
    return download(server.url, tmp_path / "d", *QUICK, "--connections", "4", "--pipeline", depth)


def wrong(result: Result, body: Callable[[str], bytes], names: Sequence[str] = NAMES) -> list[str]:
    return [name for name in names if result.files.get(name) != body(name)]


def enough(depth: str) -> list[str]:
    return MORE if depth == "auto" else NAMES


@pytest.mark.parametrize(
    ("order", "body", "depth"),
    [
        ("completion", same_size, "auto"),
        ("completion", other_size, "16"),
        ("reverse", same_size, "auto"),
        ("last", same_size, "auto"),
        ("last", same_size, "16"),
        ("page", other_size, "auto"),
        ("page", same_size, "16"),
        ("completion", sometimes_large, "16"),
    ],
)
def test_order_is_found_before_anything_is_stored(
    order: str, body: Callable[[str], bytes], depth: str, tmp_path: Path
) -> None:
    names = enough(depth)
    with serve(body, order, names=names) as server:
        result = fetch(server, tmp_path, depth)
    # A few responses may come in order by chance, or where requests arrive one by one. That is told as soon
    # as others do not.
    chance = depth == "auto"
    doubtful = result.report["doubtful"]
    assert len(wrong(result, body, names)) <= doubtful
    assert result.exit == int(doubtful > 0)
    assert chance or not doubtful
    assert result.report["attempts_by_error"] == {}
    assert result.report["requests"] == server.asked >= len(names)
    if order != "page":  # which nothing can tell from files that change
        (stopped,) = result.report["pipeline_depth"]["stopped"]
        assert stopped == "answers are out of order" or (
            stopped == "large files" and body is sometimes_large
        )


@pytest.mark.parametrize("depth", ["auto", "16"])
def test_rare_disorder_is_told(depth: str, tmp_path: Path) -> None:
    """A few files of a window do not show it for certain, but those of several do."""
    names = enough(depth)
    with serve(same_size, "swap", names=names) as server:
        result = fetch(server, tmp_path, depth)
    assert len(wrong(result, same_size, names)) <= result.report["doubtful"]
    assert result.exit == int(result.report["doubtful"] > 0)
    assert result.report["pipeline_depth"]["stopped"] == {"answers are out of order": 1}


def test_statuses_have_an_order_too(tmp_path: Path) -> None:
    """All bodies are the same, but each third file does not exist."""
    gone = NAMES[::3]

    def respond(name: str) -> bytes:
        return (status(404) if name in gone else ok(b"the same"))[0]  # type: ignore[return-value]

    with Unordered(NAMES, respond, "completion") as server:
        result = fetch(server, tmp_path, "16")
    assert result.report["doubtful"] or result.codes == dict.fromkeys(gone, "http-404")
    assert result.report["pipeline_depth"]["stopped"] == {"answers are out of order": 1}


@pytest.mark.parametrize("order", ["kept", "completion"])
def test_order_of_equal_bodies_does_not_matter(order: str, tmp_path: Path) -> None:
    with serve(lambda name: b"the same", order) as server:
        result = fetch(server, tmp_path, "16")
    assert (result.exit, result.report["stored"]) == (0, COUNT)
    assert server.asked <= COUNT * 1.25
    assert result.report["pipeline_depth"]["median"] == 16


def test_order_of_the_others_matters_again(tmp_path: Path) -> None:
    """Nothing is wrong, but what was stored of equal bodies may have been."""
    with serve(late, "completion") as server:
        result = fetch(server, tmp_path, "16")
    assert wrong(result, late) == []
    assert result.exit == int(result.report["doubtful"] > 0)


def test_large_bodies_are_not_stored_from_a_window(tmp_path: Path) -> None:
    """They come later than others, though all small ones are in order."""
    names = [f"file-{n}" for n in range(4 * COUNT)]

    def rarely_large(name: str) -> bytes:
        return name.encode() * (40_000 if name.endswith("777") else 3)

    with serve(rarely_large, "large last", names=names) as server:
        result = fetch(server, tmp_path, "16")
    assert result.files == {name: rarely_large(name) for name in names}
    assert (result.exit, result.report["doubtful"]) == (0, 0)


def test_order_that_is_kept_is_proven(tmp_path: Path) -> None:
    with serve(same_size, "kept", names=MORE) as server:
        result = fetch(server, tmp_path, "auto")
    assert result.files == {name: same_size(name) for name in MORE}
    assert result.report["pipeline_depth"]["max"] > 1
    assert len(MORE) < result.report["requests"] == server.asked <= len(MORE) * 1.2


@pytest.mark.parametrize("order", ["kept", "completion"])
@pytest.mark.parametrize("then", ["410", "400", "302", "page"])
def test_files_that_can_be_requested_once_only_are_stored(then: str, order: str, tmp_path: Path) -> None:
    """Whether or not the server keeps the order: of such files nothing is pipelined."""
    asked: Counter[str] = Counter()
    spent = {
        "302": b"HTTP/1.1 302 Found\r\nLocation: /get/spent\r\nContent-Length: 0\r\n\r\n",
        "page": ok(b"this link was used")[0],
    }

    def respond(name: str) -> bytes:
        asked[name] += 1
        if asked[name] == 1:
            return ok(same_size(name))[0]  # type: ignore[return-value]
        return spent[then] if then in spent else status(int(then))[0]  # type: ignore[return-value]

    with Unordered(NAMES, respond, order) as server:
        result = fetch(server, tmp_path, "16")
    assert (result.exit, wrong(result, same_size)) == (0, [])
    assert result.report["pipeline_depth"]["stopped"] == {"answers differ each time": 1}
    assert result.report["requests"] < COUNT + 10


def test_bodies_in_turn_are_no_disorder(tmp_path: Path) -> None:
    """As of advertisements: what one of them had before, another one has now."""
    random = Random(5)

    def respond(name: str) -> bytes:
        is_banner = int(name.rpartition("-")[2]) % 20 == 9
        return ok(b"banner %d" % random.randrange(100) if is_banner else same_size(name))[0]  # type: ignore[return-value]

    with Unordered(MORE, respond, "kept") as server:
        result = fetch(server, tmp_path, "64")
    assert (result.exit, result.report["doubtful"], result.report["stored"]) == (0, 0, len(MORE))


def test_each_connection_is_checked(tmp_path: Path) -> None:
    """A name may have several machines behind it, one of which is out of order."""
    with serve(same_size, "reverse", share=4) as server:
        result = fetch(server, tmp_path, "16")
    assert wrong(result, same_size) == []
    assert result.exit == int(result.report["doubtful"] > 0)
    assert "answers are out of order" in result.report["pipeline_depth"]["stopped"]


@pytest.mark.parametrize("limit", [7, 30, 100])
def test_windows_are_rechecked_although_the_server_closes_connections(limit: int, tmp_path: Path) -> None:
    """The only connection would end before a recheck if windows heeded no limit."""
    with serve(same_size, "kept", limit=limit) as server:
        result = download(server.url, tmp_path / "d", *QUICK, "--connections", "1", "--pipeline", "16")
    assert wrong(result, same_size) == []
    assert result.report["attempts_by_error"] == {}
    assert result.report["pipeline_depth"]["median"] > 1
    assert server.asked <= COUNT * 1.35


def test_disorder_that_begins_later_is_told(tmp_path: Path) -> None:
    """What was stored before may be wrong: the exit code says so, too, until it is fetched again."""
    with serve(same_size, "completion", after=600) as server:
        result = fetch(server, tmp_path, "16")
        doubtful = result.report["doubtful"]
        assert (result.exit, result.report["failed"], result.report["stored"]) == (1, 0, COUNT)
        assert len(wrong(result, same_size)) <= doubtful < COUNT
        assert doubtful > 0
        assert f"out of order: {doubtful} files" in result.stderr
        assert "--restart --pipeline off" in result.stderr
        again = fetch(server, tmp_path, "16")
        assert (again.exit, again.report["doubtful"], again.report["skipped"]) == (1, doubtful, COUNT)
    for command in ("status", "verify"):
        done = run_command(command, tmp_path / "d")
        assert done.returncode == 1
        assert "--restart --pipeline off" in done.stdout
    with serve(same_size, "completion") as server:
        options = (*QUICK, "--restart", "--pipeline", "off")
        result = download(server.url, tmp_path / "d", *options)
    assert (result.exit, wrong(result, same_size)) == (0, [])


def test_bodies_that_differ_each_time_are_requested_one_at_a_time(tmp_path: Path) -> None:
    asked: list[str] = []

    def body(name: str) -> bytes:
        asked.append(name)
        return b"%s %d" % (name.encode(), len(asked))

    with serve(body, "kept") as server:
        result = fetch(server, tmp_path, "16")
    assert all(result.files[name].startswith(name.encode() + b" ") for name in NAMES)
    assert result.report["pipeline_depth"]["stopped"] == {"answers differ each time": 1}


@pytest.mark.parametrize("verifies", [True, False])
def test_files_that_a_checksum_verifies_are_not_in_doubt(verifies: bool, tmp_path: Path) -> None:
    """The order changes when hundreds of files are stored."""
    with serve(same_size, "reverse", 600) as server:
        start = server.url.removesuffix("/list")
        digests = [hashlib.sha256(same_size(name)).hexdigest() for name in NAMES]
        rows = [f"{start}/get/{name},{digest}" for name, digest in zip(NAMES, digests, strict=True)]
        listed = tmp_path / "list.csv"
        listed.write_text("\n".join(["url,sha256", *rows]))
        checksums = () if verifies else ("--checksums", "off")
        options = (*QUICK, "--connections", "4", "--pipeline", "16", *checksums)
        result = download(str(listed), tmp_path / "d", *options)
    assert not wrong(result, same_size)
    assert result.exit == int(not verifies)
    assert bool(result.report["doubtful"]) is not verifies
