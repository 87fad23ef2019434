"""Cut secrets from text: those that ``downloader.core.redact`` sees, and the values of secret variables.

A program may say in its error what it had in its environment, under whatever name.
"""

from __future__ import annotations

import functools
import os

from downloader.core import redact as shared

__all__ = ["redact"]

_SHORTEST = 6  # shorter values may be words, as `true`


def redact(text: str) -> str:
    """Return ``text`` without its secrets, see ``downloader.core.redact``. Never raises."""
    return shared.redact(text, _values())


@functools.cache
def _values() -> tuple[str, ...]:
    """Return the values of the variables of this process that are named like secrets. Paths are none."""
    return tuple(
        sorted(
            value
            for name, value in os.environ.items()
            if len(value) >= _SHORTEST and not value.startswith("/") and shared.is_secret_param(name)
        )
    )
