"""The idle connections of a host that is down: those are kept that serve again."""

from __future__ import annotations

from time import monotonic
from typing import Any

from servers import Request, Server, Step, ok, status

from downloader.config.config import Config
from downloader.http.connection_pool import pool_classes
from downloader.http.session import HttpSession


def test_idle_connections_that_serve_again_are_kept() -> None:
    def answer(request: Request) -> list[Step]:
        return ok(b"") if request.target == "/good" else status(503)

    budget = HttpSession(Config(source="http://h", output="d")).budget
    pools = pool_classes(budget)["http"]
    with Server(default=answer) as server, pools("127.0.0.1", server.port, maxsize=4) as pool:
        connections: list[Any] = [pool._get_conn() for _ in range(3)]
        before, refuses, again = connections
        for connection, target in ((before, "/good"), (refuses, "/bad"), (again, "/bad")):
            pool._make_request(connection, "GET", target).read()
        down = monotonic()
        pool._make_request(again, "GET", "/good").read()
        for connection in connections:
            pool._put_conn(connection)
        budget.leave_idle(("127.0.0.1", server.port), down)
        assert [each.sock is None for each in connections] == [True, True, False]
        assert list(budget.idle) == [again]
