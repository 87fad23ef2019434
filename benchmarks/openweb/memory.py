"""Measure the worker's memory over the number of hosts, one URL for each."""

from __future__ import annotations

import json

from benchmarks.clients import CLIENTS
from benchmarks.job import Job
from benchmarks.openweb.namespace import Unavailable, unavailable
from benchmarks.openweb.origin import open_web
from benchmarks.origin import nginx_installed
from benchmarks.rounds import scratch
from benchmarks.running import cores, run

__all__ = ["memory"]


def memory(quick: bool) -> list[dict[str, str]]:
    """Measure the worker's peak RSS at 5,000, 10,000 and 100,000 hosts, over HTTP and HTTPS."""
    if why := "needs nginx" if not nginx_installed() else unavailable():
        raise Unavailable(why)
    rows = []
    for tls in (False, True):
        least = 0.0
        for hosts in (100, 200) if quick else (5_000, 10_000, 100_000):
            peak, seconds = _peak(hosts, tls)
            least = least or peak
            rows.append(
                {
                    "what": f"{'HTTPS' if tls else 'HTTP'}, {hosts:,} hosts, a file from each",
                    "figure": f"worker's peak RSS {peak:.1f} MB",
                    "beside": f"{seconds:.1f} s",
                    "ratio": f"{peak / least:.2f}",
                }
            )
    return rows


def _peak(hosts: int, tls: bool) -> tuple[float, float]:
    """Return the worker's peak RSS in MB, and the seconds of the run."""
    with scratch() as room, scratch() as where, open_web(hosts, hosts, tls, room, cores("origin")) as web:
        urls = where / "urls.txt"
        urls.write_text("".join(f"{url}\n" for url in web.urls(hosts)))
        destination = where / "files"
        job = Job(web.url, urls, hosts, destination, 32, web.cafile, where)
        with web.surrounding(where) as surroundings:
            argv = surroundings.inside(CLIENTS["downloader, list"].argv(job))
            ended = run(argv, cores("client"), timeout=120 + hosts / 50)
        if ended.exit_code != 0:
            raise RuntimeError(f"exit code {ended.exit_code}: {ended.stderr[-2000:]}")
        outcome = web.outcome(hosts, destination)
        if outcome.wrong or outcome.said["missing"]:
            raise RuntimeError(f"{hosts} hosts: {outcome}")
    return json.loads(ended.stdout)["peak_rss_mb"]["worker"], ended.seconds
