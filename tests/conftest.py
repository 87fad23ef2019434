"""The fixtures of ``harness``, for every test."""

from harness import dev_server, run_downloader, start

__all__ = ["dev_server", "run_downloader", "start"]
