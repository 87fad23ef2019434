"""Define the report of a run."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["Report"]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a run; its JSON form is a contract (docs/report.md)."""

    version: int = 1
    source: str
    destination: str
    complete: bool
    listed: int
    stored: int
    skipped: int
    failed: int
    unverified: int
    bytes: int
    seconds: float
    files_per_second: float
    requests: int
    retries: int
    attempts_by_error: dict[str, int]
    failed_by_error: dict[str, int]
    latency_ms: dict[str, float]
    lanes: dict[str, int]
    pipeline_depth: dict[str, Any]
    connection_limit: dict[str, Any]
    connections_peak: int
    workers: int
    worker_deaths: int
    cpu_seconds: float
    cpu_by_role: dict[str, float]
    peak_rss_mb: dict[str, float]
    resumed: bool
    replaced: int
    encoded: int = 0
    doubtful: int = 0
    complete_since: str | None = None
    versions: dict[str, str]
    preflight: str
    exit_code: int
    stopped_by: str | None = None
    nodes: int = 0
    slices: dict[str, int] = {}
