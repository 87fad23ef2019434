"""Provide the fixtures of ``harness`` to every test."""

from harness import dev_server, run_downloader, start

__all__ = ["dev_server", "run_downloader", "start"]
