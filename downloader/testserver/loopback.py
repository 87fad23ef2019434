"""Find the address of this machine that a server for it alone listens at."""

from __future__ import annotations

import socket

__all__ = ["loopback"]


def loopback() -> str:
    """Return 127.0.0.1, or ::1 where there is only that."""
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            with socket.socket(family) as tried:
                tried.bind((host, 0))
        except OSError:
            continue
        return host
    return "127.0.0.1"  # whoever listens there says why it cannot
