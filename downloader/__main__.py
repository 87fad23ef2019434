"""``python -m downloader``."""

from __future__ import annotations

import sys

from downloader.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
