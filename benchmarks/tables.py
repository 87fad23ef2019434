"""Make tables and sentences from the results; nothing is measured here."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.cells import Cell, of_group
from benchmarks.markdown import figure, markdown
from benchmarks.openweb import tables as openweb
from benchmarks.published import BILLION, MILLION, SESSIONS
from benchmarks.results import Results, Run

__all__ = ["CURL", "all_tables", "cell_table", "insert", "measured_on", "median_rate", "summary"]

CURL: Final = "curl --parallel"
_HOURS: Final = 1e9 / 3600
_LARGE: Final = 10_000  # file size in bytes from which bytes per second are of interest
_MAIN: Final = "http-100B"
_BEGIN: Final = "<!-- benchmarks: begin -->"
_END: Final = "<!-- benchmarks: end -->"


def _median(runs: Iterable[Run], of: Callable[[Run], float | None]) -> float | None:
    found = [value for run in runs if (value := of(run)) is not None]
    return statistics.median(found) if found else None


def _said(key: str) -> Callable[[Run], float | None]:
    """Return what gets the figure ``key`` of a run, None where its client did not give it."""
    return lambda run: run.said.get(key)


def _surely_said(key: str) -> Callable[[Run], float]:
    """Return what gets the figure ``key`` of a run; it raises KeyError where its client did not give it."""
    return lambda run: run.said[key]


def median_rate(results: Results, cell: str, client: str) -> float | None:
    """Return files per second: the median of the rounds in which all files were right."""
    return _median(_good(results.of(cell, client)), lambda run: run.rate)


def _good(runs: Iterable[Run]) -> list[Run]:
    return [run for run in runs if run.seconds is not None and not run.wrong and not run.failure]


def _correct(runs: Sequence[Run], compared: bool) -> str:
    """Return how many files of all rounds were right, as text."""
    wrong, hung = sum(run.wrong for run in runs), sum(run.hung for run in runs)
    files = sum(run.files for run in runs)
    failed = sum(bool(run.failure) for run in runs)
    parts = [
        f"{wrong:,} of {files:,} wrong" if wrong else f"{files:,} {'right' if compared else 'counted'}"
    ]
    parts += [f"{failed} failed"] if failed else []
    parts += [f"{hung} hung"] if hung else []
    return ", ".join(parts)


def cell_table(results: Results, cell: Cell) -> str:
    """Return all columns for the clients of one cell; empty where nothing was measured."""
    curl = median_rate(results, cell.name, CURL)
    large = cell.size >= _LARGE
    rows = []
    for name in results.clients(cell.name, cell.clients):
        runs = results.of(cell.name, name)
        good = _good(runs)
        checked = _correct(runs, cell.where != "null")
        if not good:
            rows.append([f"`{name}`", "—", *[""] * (6 if large else 5), checked])
            continue
        rates = sorted(run.rate or 0.0 for run in good)
        middle = statistics.median(rates)
        rows.append(
            [
                f"`{name}`",
                figure(middle),
                f"{figure(rates[0])}–{figure(rates[-1])}",
                *([f"{middle * cell.size / 1e6:,.0f}"] if large else []),
                f"{middle / curl:.2f}" if curl else "—",
                f"{statistics.median(run.cpu_seconds / run.files * 1e6 for run in good):,.0f}",
                _memory(good),
                _hours(middle),
                checked,
            ]
        )
    header = ["client", "files/s", "least–most", *(["MB/s"] if large else [])]
    header += ["× curl", "µs CPU a file", "peak MB", "h for 10⁹", "files"]
    return markdown(header, rows) if rows else ""


def _memory(runs: Iterable[Run], unit: str = "") -> str:
    """Return the maximum of all rounds; a client can end before the first sample."""
    most = max(run.memory_mb for run in runs)
    return f"{most:,.0f}{unit}" if most else "—"


def _hours(rate: float) -> str:
    hours = _HOURS / rate
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.1f}"


def matrix(results: Results, titles: Sequence[str] = ()) -> str:
    """Return files per second for every cell of the first group (or of ``titles``), and the multiple of
    curl's."""
    cells = [
        cell
        for cell in of_group("speed")
        if cell.name != "workers" and (not titles or cell.title in titles)
    ]
    columns = ["downloader", CURL, "pycurl multi", "aiohttp + uvloop", "wget2", "aria2"]
    rows = []
    for cell in cells:
        rates = [median_rate(results, cell.name, name) for name in columns]
        if not any(rates):
            continue
        own, curl = rates[:2]
        figures = [figure(rate) if rate else "—" for rate in rates]
        rows.append([cell.title, *figures, f"{own / curl:.2f}" if own and curl else "—"])
    header = ["files/s", *(f"`{name}`" for name in columns), "× curl"]
    return markdown(header, rows) if rows else ""


def depth(results: Results) -> str:
    """Return the adaptive depth beside fixed ones, files discarded: files per second."""
    cells = of_group("depth")
    names = [name for name in cells[0].clients if name != "downloader"]
    rows = []
    for cell in cells:
        own = median_rate(results, cell.name, "downloader")
        fixed = [median_rate(results, cell.name, name) for name in names]
        if own is None or not any(fixed):
            continue
        best = max(rate for rate in fixed if rate)
        shown = [figure(rate) if rate else "—" for rate in (own, *fixed)]
        rows.append([f"{cell.title}, {cell.files:,} files", *shown, f"{own / best:.2f}"])
    header = ["files/s", "adapts", *(f"`{name.partition(' ')[2]}`" for name in names), "÷ best fixed"]
    return markdown(header, rows) if rows else ""


def connections(results: Results) -> str:
    """Return files per second for each number of connections, files discarded."""
    cells = of_group("connections")
    rows = []
    for cell in cells:
        rates = [median_rate(results, cell.name, name) for name in cell.clients]
        if any(rates):
            title = f"{cell.title}, {cell.files:,} files"
            *fixed, auto = rates
            best = max((rate for rate in fixed if rate), default=None)
            share = f"{auto / best:.2f}" if auto and best else "—"
            rows.append([title, *(figure(rate) if rate else "—" for rate in rates), share])
    header = ["files/s", *(f"`{name.partition(' ')[2]}`" for name in cells[0].clients), "auto ÷ best"]
    return markdown(header, rows) if rows else ""


def million(results: Results) -> str:
    """Return the table of "Making 1 million requests with python-aiohttp", with ours beside it."""
    rows = []
    for cell in of_group("million"):
        at_once = cell.delay == "0"
        for name in results.clients(cell.name, cell.clients):
            good = _good(results.of(cell.name, name))
            if not good:
                continue
            theirs = MILLION.get(good[0].files) if at_once else None
            seconds = _median(good, lambda run: run.seconds)
            connections = f"{cell.connections:,}"
            memory = f"{theirs.memory_mb:,.0f} MB" if theirs and theirs.memory_mb else "—"
            rows.append(
                [
                    f"{good[0].files:,}, {'answered at once' if at_once else 'each after 0–3 s'}",
                    connections,
                    f"{theirs.seconds:,.0f} s" if theirs else "—",
                    memory,
                    f"`{name}`",
                    f"{seconds:,.1f} s",
                    _memory(good, " MB"),
                ]
            )
    header = [
        "requests",
        "connections",
        "aiohttp, as published",
        "its memory",
        "measured here",
        "time",
        "memory",
    ]
    return markdown(header, rows) if rows else ""


def sessions(results: Results) -> str:
    """Return the figures of "requests vs httpx vs aiohttp", with ours beside them."""
    rows = []
    for name, one in SESSIONS.items():
        figures = [
            f"{one.total:.2f}",
            "—",
            *(f"{x * 1000:.1f}" for x in (one.mean, one.median, one.deviation)),
        ]
        rows.append(["a public server, as published", name.partition(": ")[2], *figures])
    measured = 0
    for cell in of_group("sessions"):
        for name in results.clients(cell.name, cell.clients):
            good = _good(results.of(cell.name, name))
            if not good:
                continue
            measured += 1
            totals = [run.said["seconds"] for run in good]
            single = {
                key: _median(good, _said(key)) for key in ("mean", "median", "deviation", "latency_ms_p50")
            }
            middle = single["median"]
            rows.append(
                [
                    f"{cell.title}, measured here",
                    name.partition(": ")[2] or f"`{name}`",
                    f"{statistics.median(totals):.2f}",
                    f"{statistics.pstdev(totals):.3f}",
                    _ms(single["mean"], 1000),
                    _ms(middle, 1000) if middle is not None else _ms(single["latency_ms_p50"], 1),
                    _ms(single["deviation"], 1000),
                ]
            )
    header = ["server", "client", "total s", "its deviation", "mean ms", "median ms", "deviation ms"]
    return markdown(header, rows) if measured else ""


def _ms(value: float | None, factor: float) -> str:
    return "—" if value is None else f"{value * factor:.1f}"


def billion(results: Results) -> str:
    """Return the talk's table in seconds per request, with what the same strategies and ours take here."""
    rows = []
    (cell,) = of_group("billion")
    for name in results.clients(cell.name, cell.clients):
        published = BILLION.get(name)
        rate = median_rate(results, cell.name, name)
        rows.append(
            [
                name if published else f"`{name}`",
                *(["—", "—"] if published is None else [f"{published:.3g}", _days(published)]),
                *(["—", "—"] if rate is None else [f"{1 / rate:.3g}", _days(1 / rate)]),
                _correct(results.of(cell.name, name), True),
            ]
        )
    header = [
        "strategy",
        "s a request, as published",
        "days for 10⁹",
        "s, measured here",
        "days for 10⁹",
        "files",
    ]
    return markdown(header, rows) if rows else ""


def _days(seconds: float) -> str:
    return f"{seconds * 1e9 / 86400:.2f}"


def latency(results: Results) -> str:
    """Return percentiles at a constant rate; each line says from when latency is measured."""
    rows = []
    for cell in of_group("latency"):
        for name in results.clients(cell.name, cell.clients):
            good = _good(results.of(cell.name, name))
            for prefix, since in (
                ("latency_ms", "the scheduled start"), ("due", "the scheduled start"), ("sent", "sending"),
            ):  # fmt: skip
                if not good or f"{prefix}_p50" not in good[0].said:
                    continue
                kept = [_median(good, lambda run: run.files / run.said["seconds"])]
                figures = [
                    _median(good, _surely_said(f"{prefix}_{p}")) for p in ("p50", "p90", "p99", "p999")
                ]
                rows.append(
                    [
                        f"`{name}`, from {since}",
                        f"{cell.rate:,.0f}",
                        f"{kept[0]:,.0f}",
                        *(f"{one:.2f}" for one in figures),
                    ]
                )
    header = ["client, latency", "asked for /s", "kept /s", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms"]
    return markdown(header, rows) if rows else ""


def reports(results: Results) -> str:
    """Return the scenarios of ``main_job``."""
    rows = [
        [row["what"], row["figure"], row["beside"], row["ratio"]]
        for report in results.reports.values()
        for row in report
    ]
    return markdown(["what", "measured", "beside it", "ratio"], rows) if rows else ""


def measured_on(found: dict[str, Any]) -> str:
    """Return the machine and the versions, in one paragraph."""
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    return (
        f"Measured on {found['processor']}, {found['cores']} cores, {found['memory_gb']} GB, "
        f"{found['system']}, {found['date']}; {versions}. "
        "The origin on one core and the client on another where nothing else is said."
    )


_IN_README: Final = (
    "HTTP, 100 B",
    "HTTPS, 100 B",
    "HTTP, 10 kB",
    "HTTPS, 10 kB",
    "HTTP, 1 MB",
    "HTTP, one file of 1 GB",
)


def summary(results: Results) -> str:
    """Return what the README shows."""
    found = results.measured_on
    where = f"Measured on {found['processor']}, {found['cores']} cores, {found['date']}."
    return f"{matrix(results, _IN_README)}\n\n{where}"


def all_tables(results: Results, chart: str = "") -> str:
    """Return every table, with headings; ``chart`` first."""
    parts = [("Sizes, TLS, disk (medians)", "\n\n".join(part for part in (chart, matrix(results)) if part))]
    for cell in of_group("speed"):
        where = ", into memory" if cell.where == "memory" else ""
        parts.append((f"{cell.title}{where}, {cell.connections} connections", cell_table(results, cell)))
    for cell in of_group("shards"):
        parts.append((f"{cell.title}, into memory", cell_table(results, cell)))
    parts += [
        ("Depth of the pipeline", depth(results)),
        ("Number of connections", connections(results)),
        ("A billion files: the talk's strategies", billion(results)),
        ("A million requests: the article's counts", million(results)),
        ("Ten sessions, 1,000 requests", sessions(results)),
        ("Latency at a constant rate", latency(results)),
        ("The open web: 20,000 URLs of 5,000 hosts", openweb.table(results)),
        ("The main job", reports(results)),
    ]
    shown = [f"## {title}\n\n{table}" for title, table in parts if table]
    elsewhere = [
        f"{', '.join(cells)}: measured on {place}." for place, cells in results.elsewhere().items()
    ]
    return "\n\n".join([*shown, measured_on(results.measured_on), *elsewhere])


def insert(page: Path, text: str) -> None:
    """Put ``text`` between the marks in ``page``. Raise ValueError where it has none."""
    before, begin, rest = page.read_text().partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        raise ValueError(f"{page}: no line {_BEGIN}, or none {_END} after it")
    page.write_text(f"{before}{_BEGIN}\n{text}\n{_END}{after}")
