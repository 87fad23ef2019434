"""Find the Python that runs this program."""

from __future__ import annotations

import os
import sys

from downloader.errors import BootError

__all__ = ["interpreter"]


def interpreter() -> str:
    """Return the path of this Python, also in a server that has it embedded, as uWSGI and mod_wsgi do.

    There ``sys.executable`` is the server, which would be started with our arguments, or it is empty. What
    is no Python by its name is not run to find out what it is. Raises BootError.
    """
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    library = os.path.dirname(os.path.dirname(os.path.dirname(os.__file__)))
    places = (sys.exec_prefix, sys.base_exec_prefix, library)
    for path in (sys.executable, *(os.path.join(place, "bin", name) for place in places)):
        if path and _is_python(path):
            return path
    raise BootError(
        f"cannot start a process: sys.executable, {sys.executable!r}, is no Python, and there is no "
        f"bin/{name} in {sys.exec_prefix}; name one before the call: sys.executable = '/usr/bin/{name}'"
    )


def _is_python(path: str) -> bool:
    names = (os.path.basename(each).lstrip(".").lower() for each in (path, os.path.realpath(path)))
    return any(name.startswith(("python", "pypy", "graalpy")) for name in names) and os.access(
        path, os.X_OK
    )
