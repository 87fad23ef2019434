"""Give content a path, for libraries that read from files only."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator

__all__ = ["as_file"]


@contextlib.contextmanager
def as_file(content: bytes) -> Iterator[str]:
    """Yield the path of a file with ``content``: OpenSSL and obstore read certificates from files only.

    It is a file in memory if the system supports that, else a temporary file that only its owner may read.
    """
    try:
        memory = os.memfd_create("pem")
    except (AttributeError, OSError):
        memory = -1
    path = f"/proc/self/fd/{memory}"
    if memory >= 0 and not os.path.exists(path):  # no /proc
        os.close(memory)
        memory = -1
    if memory < 0:
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name
        return
    with open(memory, "wb") as file:
        file.write(content)
        file.flush()
        yield path
