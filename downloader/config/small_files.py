"""Read whole files that the user names and that are small: certificates, keys, logins."""

from __future__ import annotations

import errno
import os

__all__ = ["read_small"]

_LARGEST = 64 << 20  # the CAs of all systems together are 1 MiB


def read_small(path: str | os.PathLike[str]) -> bytes:
    """Return the content of ``path``. Raises OSError, also where it is longer: a device has no end."""
    with open(path, "rb") as file:
        content = file.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise OSError(errno.EFBIG, f"it has more than {_LARGEST >> 20} MiB", path)
    return content
