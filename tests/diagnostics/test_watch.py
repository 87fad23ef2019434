"""What holds a hub is found and reported, in whichever process; what does not is not reported."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from watching import PATCHED, Starter, Writer, free_port, get, program, until, watch

from diagnostics.agent.https_agent.holds import Hold
from diagnostics.hold_report import Held, News, Seen, headline, table

__all__ = ["program", "watch"]

SERVER = (
    PATCHED
    + """
from gevent.pywsgi import WSGIServer

def application(environ, answer):
    {"/block": block, "/compute": compute}.get(environ["PATH_INFO"], lambda: None)()
    answer("200 OK", [("Content-Type", "text/plain")])
    return [b"hello " + str(os.getpid()).encode()]

if __name__ == "__main__":
    server = WSGIServer(("127.0.0.1", int(sys.argv[1])), application, log=None)
    server.serve_forever()
"""
)

# Opening the file of a report creates the file `begun`, and continues a tenth of a second later.
SLOW_REPORT = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>
#define OPEN(name) \
int name(const char *path, int flags, ...) { \
    va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest); \
    int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, #name); \
    int found = real(path, flags, mode); \
    if (strstr(path, ".part") && !strstr(path, "python")) { \
        close(real("begun", O_CREAT | O_WRONLY, 0600)); usleep(100000); \
    } \
    return found; \
}
OPEN(open)
OPEN(open64)
"""


@pytest.mark.parametrize(
    ("call", "doing"), [("block()", "waiting"), ("compute()", "computing")], ids=["sleep", "cpu"]
)
def test_hub_holder_is_named(watch: Starter, program: Writer, call: str, doing: str) -> None:
    job = watch(
        *program(
            PATCHED
            + f"\ndef guilty():\n    {call}\n\ngevent.spawn(guilty).join()\nprint('said')\nsys.exit(7)\n"
        )
    )
    assert job.wait() == 7
    assert job.out == "said\n"
    name = call.removesuffix("()")
    assert re.search(r"watch: a hub was held once longer than 100 ms, .*; 1 gevent process\n", job.err), (
        job.err
    )
    assert re.search(rf"^ +1 .* {doing} +app\.py:\d+ in {name}: ", job.err, re.MULTILINE), job.err


def test_a_verbose_summary_has_the_whole_stack(watch: Starter, program: Writer) -> None:
    source = "\ndef inner():\n    block()\n\ndef outer():\n    inner()\n\ngevent.spawn(outer).join()\n"
    job = watch("-v", *program(PATCHED + source))
    assert job.wait() == 0
    spots = re.findall(r"app\.py:\d+ in (\w+)", job.err.partition("longest")[2])
    assert spots == ["block", "inner", "outer"], job.err


def test_the_same_place_is_counted_not_repeated_and_a_line_comes_once_a_second(
    watch: Starter, program: Writer
) -> None:
    began = time.monotonic()
    source = """
def run():
    for _ in range(15):
        block(0.2)
        gevent.sleep(0.2)  # long enough to be seen on a busy machine: else two blocks are one

gevent.spawn(run).join()
"""
    job = watch(*program(PATCHED + source))
    assert job.wait() == 0
    took = time.monotonic() - began
    lines = job.err.count("watch: pid ")
    assert 2 <= lines <= took + 1, job.err
    assert "a hub was held 15 times" in job.err
    assert len(re.findall(r" waiting +app\.py", job.err)) == 1, job.err


def test_endless_hold_is_reported_before_it_ends(watch: Starter, program: Writer) -> None:
    job = watch(*program(PATCHED + "\ngevent.spawn(block, 1000).join()\n"))
    until(lambda: "so far (waiting) at app.py" in job.err, job)
    job.kill(signal.SIGTERM)
    assert job.wait() == -signal.SIGTERM
    job.alone(10)
    assert "a hub was held once" in job.err


def test_code_holding_the_interpreter_lock_is_reported(watch: Starter, program: Writer) -> None:
    source = "\ndef locked():\n    return sum(range(30_000_000))\n\ngevent.spawn(locked).join()\n"
    job = watch(*program(PATCHED + source))
    assert job.wait() == 0
    assert re.search(r"computing +app\.py:\d+ in locked: return sum", job.err), job.err


def test_interpreter_lock_held_during_a_report_is_reported(
    watch: Starter, program: Writer, tmp_path: Path
) -> None:
    """Writing releases the interpreter's lock; here the first step of it takes until another thread has the
    lock."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    (tmp_path / "slow.c").write_text(SLOW_REPORT)
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", "slow.so", "slow.c", "-ldl"], cwd=tmp_path, check=True
    )
    source = """
def locked():
    while not os.path.exists("begun"):
        real(0)
    return sum(range(30_000_000))

gevent.spawn(locked).join()
"""
    job = watch(*program(PATCHED + source), env={"LD_PRELOAD": str(tmp_path / "slow.so")})
    assert job.wait() == 0
    assert re.search(r"computing +app\.py:\d+ in locked: return sum", job.err), job.err


def test_many_ready_greenlets_are_no_hold(watch: Starter, program: Writer) -> None:
    """The event loop runs all of them before its next timer: the stamp is old, but no greenlet held the hub
    long."""
    source = """
from gevent.socket import wait_read
pipes = [os.pipe() for _ in range(40)]

def one(pipe):
    wait_read(pipe)
    compute(0.01)

crowd = [gevent.spawn(one, pipe) for pipe, _ in pipes]
gevent.sleep(0.05)
for _, pipe in pipes:
    os.write(pipe, b"x")
gevent.joinall(crowd)
"""
    job = watch(*program(PATCHED + source))
    assert job.wait() == 0
    assert job.err == "watch: nothing held a hub longer than 100 ms; 1 gevent process\n"


def test_a_busy_server_is_healthy(watch: Starter, program: Writer) -> None:
    port = free_port()
    job = watch(*program(SERVER), port)
    get(port, "/")
    with ThreadPoolExecutor(8) as clients:
        assert all(body.startswith(b"hello") for body in clients.map(lambda _: get(port, "/"), range(2000)))
    job.kill(signal.SIGTERM)
    assert job.wait() == -signal.SIGTERM
    assert job.err == "watch: nothing held a hub longer than 100 ms; 1 gevent process\n"


def test_the_workers_of_gunicorn_are_watched(watch: Starter, program: Writer) -> None:
    program(SERVER, "site_.py")
    port = free_port()
    gunicorn = ("-m", "gunicorn", "-k", "gevent", "-w", 2, "-b", f"127.0.0.1:{port}", "site_:application")
    job = watch("--", sys.executable, *gunicorn)
    worker = get(port, "/block").split()[1].decode()
    assert worker != str(job.pid)
    until(lambda: f"pid {worker}: hub held" in job.err, job)
    job.kill(signal.SIGTERM)
    assert job.wait() == 0
    job.alone(10)
    assert re.search(r"waiting +site_\.py:\d+ in block: real\(seconds\)$", job.err, re.MULTILINE), job.err
    assert "2 gevent processes" in job.err


def test_fork_of_a_process_with_a_running_hub_is_watched(watch: Starter, program: Writer) -> None:
    source = """
gevent.sleep(0.2)
child = os.fork()
gevent.sleep(0.2)
if not child:
    gevent.spawn(block).join()
    os._exit(0)
os.waitpid(child, 0)
"""
    job = watch(*program(PATCHED + source))
    assert job.wait() == 0
    assert re.search(r"^ +1 .* waiting +app\.py:\d+ in block: ", job.err, re.MULTILINE), job.err
    assert "once longer than 100 ms" in job.err
    assert "2 gevent processes" in job.err


# decisions


def held(count: int = 1, seconds: float = 0.3, name: str = "block", **more: object) -> Held:
    spots = ((f"/nowhere/{name}.py", 3, name, "user"),)
    return Held(spots, 3, count, seconds, seconds, seconds, 0.0, **more)  # type: ignore[arg-type]


def test_each_line_has_only_new_information() -> None:
    news = News()
    assert news.line({"1": Seen(1, [held()], [])}, False).startswith(
        "pid 1: hub held 0.30 s (waiting) at /now"
    )
    assert news.line({"1": Seen(1, [held()], [])}, False) == ""
    line = news.line({"1": Seen(1, [held(3, 0.9), held(name="other")], [])}, False)
    assert line.startswith(
        "pid 1: hub held 2 times, 0.60 s in all, (waiting) at /nowhere/block.py:3 in block"
    )
    assert line.endswith("(and at 1 other place)")


def test_lasting_hold_is_reported_each_time_it_doubles() -> None:
    news = News()
    told = [
        bool(news.line({"1": Seen(1, [], [held(1, seconds)])}, False)) for seconds in (0.5, 1, 1.5, 2, 3, 4)
    ]
    assert told == [False, True, False, True, False, True]


def test_processes_are_summed() -> None:
    seen = [Seen(1, [held(2, 0.6)], []), Seen(2, [held()], [held()]), Seen(3, [], [], "OSError()")]
    assert headline(seen, True, 0.1) == (
        "a hub was held 4 times longer than 100 ms, 1.20 s in all; 3 gevent processes; "
        "watching pid 3 failed: OSError()"
    )
    assert table(seen, False).row_count == 1


def test_hold_place_is_where_most_samples_agree() -> None:
    def outer() -> None: ...
    def inner() -> None: ...
    def other() -> None: ...

    codes = [each.__code__ for each in (outer, inner, other)]
    hold = Hold(0.0, 1, ((codes[0], 1), (codes[1], 5)), 0.1, 0.0)
    for line in (5, 6, 7):
        hold.seen(((codes[0], 1), (codes[1], line)))
    hold.seen(((codes[0], 2), (codes[2], 9)))
    stack, lines = hold.place()
    assert stack == [(codes[0], 1), (codes[1], 5)]
    assert lines == {5: 2, 6: 1, 7: 1}
