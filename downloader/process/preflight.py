"""Run --preflight probe: measure whether HTTPS is concurrent in a worker, before any file is requested.

The diagnostics measure it in a new process that is set up as a worker is. They import the downloader, never
the reverse, hence the subprocess. What each child checks itself is ``patching.require``.
"""

from __future__ import annotations

import subprocess

import msgspec

from downloader.errors import UNDECODABLE, UnsafeProcess
from downloader.process import isolation

__all__ = ["probe"]

_TIMEOUT = 60.0


def probe(dest: str = "") -> None:
    """Measure HTTPS in a process like a worker. Raises UnsafeProcess if it is serial, broken, or unknown.

    Nothing is imported from ``dest``.
    """
    arguments = ("check", "--style", "downloader", "--json")
    argv, env = isolation.child("diagnostics.__main__:main", *arguments, dest=dest)
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env=env,
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnsafeProcess(f"--preflight probe could not be run: {error}") from None
    if done.returncode == 0:
        return
    try:
        found = msgspec.json.decode(done.stdout)
        detail = found["error"] or f"{found['requests']} requests took {found['wall_s']:.2f} s"
        causes = "".join(f"; {cause['code']} {cause['where']}" for cause in found["causes"])
    except (*UNDECODABLE, KeyError, TypeError):
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise UnsafeProcess(f"--preflight probe could not be run: {' '.join(last)}") from None
    raise UnsafeProcess(f"--preflight probe: HTTPS is {found['verdict']} in a worker: {detail}{causes}")
