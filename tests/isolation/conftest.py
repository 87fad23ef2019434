"""Run one fresh process for each import order, and a TLS server in another that counts overlapping
requests.

Run as a script, this file is that server: it writes its CA to the path given and prints its port.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]

# `refusal`: the message of the UnsafeProcess that a call raised, or None. `fetch`: n GETs at once, each
# held by the server until all n have arrived or `hold` seconds went by.
PREAMBLE = """
import json, os, sys

def tell(**facts):
    print(json.dumps(facts), flush=True)

def refusal(call):
    from downloader.errors import UnsafeProcess
    try:
        call()
    except UnsafeProcess as error:
        return str(error)

def fetch(n, hold):
    import gevent, requests
    url = f"{os.environ['TLS_URL']}/?token={os.getpid()}-{n}-{hold}&n={n}&hold={hold}"
    get = lambda: requests.get(url, verify=os.environ["TLS_CA"], timeout=60)
    jobs = [gevent.spawn(get) for _ in range(n)]
    gevent.joinall(jobs)
    answers = [job.get() for job in jobs]
    good = sum(answer.status_code == 200 for answer in answers)
    return {"ok": good, "peak": max(int(answer.text) for answer in answers)}
"""

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function: ``run(script, files={...}, **environment)`` gives the facts that ``script``
    printed, in one dict.

    ``files`` are importable; those under ``lib/site-packages`` look like installed packages.
    """

    def start(script: str, files: dict[str, str] | None = None, **extra: str) -> dict[str, Any]:
        packages = tmp_path / "lib/site-packages"
        packages.mkdir(parents=True, exist_ok=True)
        for name, text in (files or {}).items():
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        foreign = ("_PROXY", "_CA_BUNDLE", "SSL_CERT", "PYTHON", "GEVENT")
        kept = {k: v for k, v in os.environ.items() if not any(f in k.upper() for f in foreign)}
        paths = os.pathsep.join(map(str, (tmp_path, packages, ROOT)))
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", PREAMBLE + script],
            env={**kept, **extra, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        facts: dict[str, Any] = {}
        for line in done.stdout.splitlines():
            facts.update(json.loads(line))
        return facts

    return start


@pytest.fixture(scope="session")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Return the environment that ``fetch`` needs; the server runs as long as the session."""
    ca = tmp_path_factory.mktemp("tls") / "ca.pem"
    with subprocess.Popen(
        [sys.executable, __file__, str(ca)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        yield {"TLS_URL": f"https://localhost:{port}", "TLS_CA": str(ca)}
        server.stdin.close()  # it ends when its standard input closes, hence with this process


def serve(ca_file: str) -> None:
    import ssl

    import trustme

    ca = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    ca.cert_pem.write_to_path(ca_file)

    changed = threading.Condition()
    waiting: Counter[str] = Counter()
    peaks: Counter[str] = Counter()

    class Handler(BaseHTTPRequestHandler):
        def setup(self) -> None:
            self.request = context.wrap_socket(self.request, server_side=True)
            super().setup()

        def do_GET(self) -> None:
            query = {key: values[0] for key, values in parse_qs(urlsplit(self.path).query).items()}
            token, wanted, hold = query["token"], int(query["n"]), float(query["hold"])
            with changed:
                waiting[token] += 1
                peaks[token] = max(peaks[token], waiting[token])
                changed.notify_all()
                changed.wait_for(lambda: peaks[token] >= wanted, timeout=hold)
            time.sleep(0.3)  # all have arrived: a response still takes a while
            with changed:
                waiting[token] -= 1
                body = str(peaks[token]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    serve(sys.argv[1])
