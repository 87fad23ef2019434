"""A file with several URLs waits for no host as long as another one of them can be asked."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from threading import Event

import pytest
from harness import Job
from servers import (
    CLOSE,
    HANG,
    Answer,
    Forever,
    Pause,
    Request,
    Server,
    Step,
    download,
    ok,
    redirect,
    status,
)

BODY = b"hello"
FILES = 120
# Longer than a test may take: whoever waits for this fails.
ASKED = ("Retry-After: 100",)
OPTIONS = ("--list-format", "aria2", "--workers", "2", "--backoff", "100ms", "--connections", "16")


def entries(*urls: str, files: int = FILES) -> str:
    return "".join("\t".join(f"{url}/{n}" for url in urls) + f"\n out={n}\n" for n in range(files))


def first(answers: int, answer: Answer, then: Answer) -> Answer:
    """Return what gives the first requests, to any path, one answer, and the others another one."""
    number = count()
    return lambda request: answer if next(number) < answers else then


CLIENTS = ((), ("--pipeline", "off"))


TRICKLE: Answer = [b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", Forever(b"x", 1.0)]


def paused(*behind: Step) -> Answer:
    return [*status(503, *ASKED), *behind]


@pytest.mark.parametrize("options", CLIENTS, ids=["pipelined", "requests"])
@pytest.mark.parametrize(
    "answer",
    [paused(), paused(CLOSE), status(429, *ASKED), status(503, "Retry-After: 1000000")],
    ids=["503", "503 closed", "429", "longer than it may be"],
)
def test_files_behind_a_paused_host_go_to_a_mirror(
    answer: Answer, options: tuple[str, ...], tmp_path: Path
) -> None:
    with Server(default=answer) as busy, Server(default=ok(BODY)) as mirror:
        listed = entries(busy.url, mirror.url)
        result = download("-", tmp_path / "d", *OPTIONS, *options, stdin=listed)
        assert len({request.target for request in mirror.requests}) == FILES
    assert (result.exit, result.report["stored"], len(result.files)) == (0, FILES, FILES)


def test_queue_of_a_host_that_pauses_in_the_middle(tmp_path: Path) -> None:
    """Thousands wait for it by then, and its responses have come in windows of many."""
    with Server(default=first(500, ok(BODY), paused(CLOSE))) as busy, Server(default=ok(BODY)) as mirror:
        listed = entries(busy.url, mirror.url, files=3000)
        result = download("-", tmp_path / "d", *OPTIONS, stdin=listed)
        assert mirror.requests
    assert (result.exit, result.report["stored"], len(result.files)) == (0, 3000, 3000)


def test_pause_that_another_worker_is_asked_for(tmp_path: Path) -> None:
    """The host is paused in a worker that has sent it nothing."""
    with Server(default=paused()) as busy, Server(default=ok(BODY)) as mirror:
        listed = entries(busy.url, mirror.url, files=2000)
        argv = (*OPTIONS, "--workers", "4")
        result = download("-", tmp_path / "d", *argv, stdin=listed)
        assert busy.count() < 200
    assert (result.exit, result.report["stored"]) == (0, 2000)


def test_the_mirror_that_opens_first_is_waited_for(tmp_path: Path) -> None:
    soon = first(4, status(503, "Retry-After: 1"), ok(BODY))
    with (
        Server(default=paused()) as one,
        Server(default=soon) as two,
        Server(default=paused()) as three,
    ):
        listed = entries(one.url, two.url, three.url, files=40)
        result = download("-", tmp_path / "d", *OPTIONS, stdin=listed)
    assert (result.exit, result.report["stored"]) == (0, 40)


@pytest.mark.parametrize("code", [404, 500])
def test_host_that_was_left_out_is_asked_at_last(code: int, tmp_path: Path) -> None:
    """No attempt is charged for it."""
    busy = first(1, status(503, "Retry-After: 2"), ok(BODY))
    with Server(default=busy) as one, Server(default=status(code)) as two:
        listed = entries(one.url, two.url, files=20)
        argv = (*OPTIONS, "--retries", "1", "--workers", "1", "--connections", "4")
        result = download("-", tmp_path / "d", *argv, stdin=listed)
        assert max(len(two.seen(f"/{n}")) for n in range(20)) <= 3
    assert (result.exit, result.report["stored"]) == (0, 20)


@pytest.mark.parametrize("robots", [(), ("--robots",)], ids=["", "robots"])
def test_all_mirrors_lead_to_a_host_that_is_paused(robots: tuple[str, ...], tmp_path: Path) -> None:
    """As those of a redirector do. Each file waits; no mirror is asked again and again meanwhile."""
    store_of = first(8, status(503, "Retry-After: 3"), ok(BODY))
    with Server({"/robots.txt": status(404)}, default=store_of) as store:

        def lead(request: Request) -> list[Step]:
            return status(404) if request.target == "/robots.txt" else redirect(store.url + request.target)

        with Server(default=lead) as one, Server(default=lead) as two:
            listed = entries(one.url, two.url, files=20)
            result = download("-", tmp_path / "d", *OPTIONS, *robots, stdin=listed)
            assert one.count() + two.count() < 200
    assert (result.exit, result.report["stored"]) == (0, 20)


@pytest.mark.parametrize("answer", [[HANG], paused()], ids=["hangs", "paused"])
def test_redirects_to_an_origin_whose_robots_txt_does_not_come(answer: Answer, tmp_path: Path) -> None:
    with Server({"/robots.txt": answer}, default=ok(BODY)) as store, Server(default=ok(BODY)) as mirror:
        mirror.routes["/robots.txt"] = status(404)

        def lead(request: Request) -> list[Step]:
            return status(404) if request.target == "/robots.txt" else redirect(store.url + request.target)

        with Server(default=lead) as entry:
            listed = entries(entry.url, mirror.url)
            argv = (*OPTIONS, "--robots", "--read-timeout", "1s", "--retries", "2")
            result = download("-", tmp_path / "d", *argv, stdin=listed)
    assert (result.exit, result.report["stored"]) == (0, FILES)


@pytest.mark.parametrize("options", CLIENTS, ids=["pipelined", "requests"])
@pytest.mark.parametrize(
    "answer",
    [[HANG], TRICKLE, status(503), [CLOSE]],
    ids=["hangs", "trickles", "503", "closed"],
)
def test_robots_txt_that_does_not_come(answer: Answer, options: tuple[str, ...], tmp_path: Path) -> None:
    """It has all of its retries; the files do not wait for them."""
    with Server({"/robots.txt": answer}, default=ok(BODY)) as one, Server(default=ok(BODY)) as mirror:
        mirror.routes["/robots.txt"] = status(404)
        argv = (*OPTIONS, *options, "--robots", "--backoff", "30s")
        result = download("-", tmp_path / "d", *argv, stdin=entries(one.url, mirror.url))
        assert one.count() < 10
    assert (result.exit, result.report["stored"]) == (0, FILES)


@pytest.mark.parametrize("answer", [[HANG], paused()], ids=["hangs", "paused"])
def test_robots_txt_that_is_redirected_to_a_host_that_does_not_answer(
    answer: Answer, tmp_path: Path
) -> None:
    with Server(default=answer) as store, Server(default=ok(BODY)) as mirror:
        mirror.routes["/robots.txt"] = status(404)
        with Server(default=lambda request: redirect(store.url + request.target)) as entry:
            listed = entries(entry.url, mirror.url)
            result = download("-", tmp_path / "d", *OPTIONS, "--robots", stdin=listed)
    assert (result.exit, result.report["stored"]) == (0, FILES)


def test_robots_txt_that_is_redirected_to_a_host_that_was_paused_before(tmp_path: Path) -> None:
    """Its redirect is put off before it is followed: no request fails, of which others could be told."""
    is_paused = Event()

    def serve(request: Request) -> list[Step]:
        if request.target.startswith("/early"):
            is_paused.set()  # they were to be had from the host that is paused now
        return ok(BODY)

    with Server(default=paused()) as store, Server(default=serve) as mirror:
        mirror.routes["/robots.txt"] = status(404)

        def lead(request: Request) -> list[Step]:
            is_paused.wait(20)
            return redirect(store.url + request.target)

        with Server(default=lead) as entry:
            early = "".join(f"{store.url}/early{n}\t{mirror.url}/early{n}\n" for n in range(8))
            listed = early + entries(entry.url, mirror.url)
            argv = (*OPTIONS, "--workers", "1", "--robots")
            result = download("-", tmp_path / "d", *argv, stdin=listed)
        assert is_paused.is_set()
    assert (result.exit, result.report["stored"]) == (0, FILES + 8)


def test_redirects_to_a_host_that_hangs(tmp_path: Path) -> None:
    with Server(default=[HANG]) as store, Server(default=ok(BODY)) as mirror:

        def lead(request: Request) -> list[Step]:
            return redirect(store.url + request.target)

        with Server(default=lead) as entry:
            listed = entries(entry.url, mirror.url, files=300)
            argv = (*OPTIONS, "--read-timeout", "1s", "--retries", "2")
            result = download("-", tmp_path / "d", *argv, stdin=listed)
        assert store.count() < 150
    assert (result.exit, result.report["stored"]) == (0, 300)


def test_mirror_that_trickles_is_left_for_a_faster_one(tmp_path: Path) -> None:
    """Its requests are preempted, as others wait; they go on at the other mirror, not at the same."""
    slow = [b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nh", Pause(25), CLOSE]
    with Server(default=slow) as trickles, Server(default=ok(BODY)) as mirror:
        listed = entries(trickles.url, mirror.url, files=60)
        others = "".join(f"{mirror.url}/other{n}\n" for n in range(2000))
        argv = (*OPTIONS, "--read-timeout", "10s", "--workers", "1")
        result = download("-", tmp_path / "d", *argv, stdin=listed + others)
        assert trickles.count() <= 70
    assert (result.exit, result.report["stored"]) == (0, 2060)


@pytest.mark.parametrize("options", CLIENTS, ids=["pipelined", "requests"])
def test_mirror_that_trickles_is_left_though_slots_are_free(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    with Server(default=TRICKLE) as trickles, Server(default=ok(BODY)) as mirror:
        listed = entries(trickles.url, mirror.url, files=10)
        argv = (*OPTIONS, *options, "--workers", "1", "--connections", "64")
        result = download("-", tmp_path / "d", *argv, stdin=listed)
        assert max(len(trickles.seen(f"/{n}")) for n in range(10)) == 1
    assert (result.exit, result.report["stored"]) == (0, 10)


def test_queue_of_a_mirror_that_trickles(tmp_path: Path) -> None:
    """Once the other one has answered, what has not been requested goes there."""
    with Server(default=TRICKLE) as trickles, Server(default=ok(BODY)) as mirror:
        listed = entries(trickles.url, mirror.url, files=400)
        result = download("-", tmp_path / "d", *OPTIONS, "--workers", "1", stdin=listed)
        assert trickles.count() < 100
    assert (result.exit, result.report["stored"]) == (0, 400)


def test_mirrors_that_are_all_slow_are_left_once_each(tmp_path: Path) -> None:
    """Each file takes four seconds, whichever of them it is had from."""
    slow = [b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nh", Pause(4), b"ello"]
    with Server(default=slow) as one, Server(default=slow) as two:
        listed = entries(one.url, two.url, files=8)
        argv = (*OPTIONS, "--workers", "1", "--connections", "64")
        result = download("-", tmp_path / "d", *argv, stdin=listed)
        for server in (one, two):
            assert max(len(server.seen(f"/{n}")) for n in range(8)) <= 1
    assert (result.exit, result.report["stored"]) == (0, 8)


def test_mirror_whose_file_is_too_large(tmp_path: Path) -> None:
    """The size is of one mirror's answer."""
    huge = [b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n", CLOSE]
    with Server(default=huge) as one, Server(default=ok(BODY)) as two:
        listed = entries(one.url, two.url, files=5)
        result = download("-", tmp_path / "d", *OPTIONS, "--max-size", "1M", stdin=listed)
    assert (result.exit, result.report["stored"]) == (0, 5)


@pytest.mark.parametrize(("retries", "asked"), [(0, 3), (1, 4)])
def test_each_mirror_is_asked_once_before_retries_count(retries: int, asked: int, tmp_path: Path) -> None:
    with Server(default=status(500)) as server:
        text = "\t".join(f"{server.url}/{n}" for n in range(3)) + "\n out=x\n"
        argv = (*OPTIONS, "--retries", str(retries))
        result = download("-", tmp_path / "d", *argv, stdin=text)
        assert server.count() == asked
    assert result.codes == {"x": "http-500"}


def test_list_is_read_on_while_a_host_hangs(start: Callable[..., Job], tmp_path: Path) -> None:
    """Its files are not work that could start: thousands of another host come after them."""
    with Server(default=[HANG], record=False) as silent, Server(default=ok(BODY)) as good:
        (tmp_path / "list.txt").write_text(
            "".join(f"{(good if n % 4 else silent).url}/{n}\n" for n in range(4000))
        )
        options = ("--workers", "1", "--read-timeout", "2s", "--connections", "8", "--progress", "none")
        job = start(tmp_path / "list.txt", "-o", tmp_path / "d", *options)
        job.until(lambda: good.count() >= 3000, within=40)


def test_redirects_to_a_host_that_is_paused(tmp_path: Path) -> None:
    with Server(default=paused()) as store, Server(default=ok(BODY)) as mirror:

        def lead(request: Request) -> list[Step]:
            return redirect(store.url + request.target)

        with Server(default=lead) as entry:
            listed = entries(entry.url, mirror.url)
            result = download("-", tmp_path / "d", *OPTIONS, "--connections", "4", stdin=listed)
        assert store.count() < 20
    assert (result.exit, result.report["stored"]) == (0, FILES)


@pytest.mark.parametrize("answer", [paused(), [HANG]], ids=["503", "nothing"])
def test_files_that_wait_for_robots_txt_of_a_paused_host(answer: Answer, tmp_path: Path) -> None:
    routes = {"/robots.txt": answer}
    with Server(routes, default=ok(BODY)) as busy, Server(default=ok(BODY)) as mirror:
        mirror.routes["/robots.txt"] = status(404)
        listed = entries(busy.url, mirror.url)
        argv = (*OPTIONS, "--robots", "--read-timeout", "1s", "--retries", "2")
        result = download("-", tmp_path / "d", *argv, stdin=listed)
        assert len({request.target for request in mirror.requests}) == FILES + 1
    assert (result.exit, result.report["stored"]) == (0, FILES)


def test_host_that_hangs_is_not_asked_for_each_file(tmp_path: Path) -> None:
    with Server(default=[HANG]) as silent, Server(default=ok(BODY)) as mirror:
        listed = entries(silent.url, mirror.url, files=400)
        argv = (*OPTIONS, "--read-timeout", "1s", "--retries", "2", "--connections", "16")
        result = download("-", tmp_path / "d", *argv, stdin=listed)
        assert silent.count() < 100
    assert (result.exit, result.report["stored"]) == (0, 400)
