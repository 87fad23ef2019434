"""--preflight probe: whether HTTPS is concurrent in a worker, before any file is requested.

The diagnostics measure it in a fresh process that is set up as a worker is. They know the downloader, and
not the other way round: hence the subprocess. What each child checks by itself is ``patching.require``.
"""

from __future__ import annotations

import subprocess

import msgspec

from downloader.errors import UnsafeProcess
from downloader.process import isolation

__all__ = ["probe"]

_PATIENCE = 120.0


def probe(dest: str = "") -> None:
    """Measure in a process like a worker; UnsafeProcess when it is serial, broken, or unknown.

    Nothing is imported from ``dest``.
    """
    question = ("check", "--style", "downloader", "--json")
    argv, env = isolation.child("diagnostics.__main__:main", *question, dest=dest)
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env=env,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnsafeProcess(f"--preflight probe could not be run: {error}") from None
    if done.returncode == 0:
        return
    try:
        found = msgspec.json.decode(done.stdout)
        told = found["error"] or f"{found['requests']} requests took {found['wall_s']:.2f} s"
        causes = "".join(f"; {cause['code']} {cause['where']}" for cause in found["causes"])
    except (msgspec.DecodeError, KeyError, TypeError):
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise UnsafeProcess(f"--preflight probe could not be run: {' '.join(last)}") from None
    raise UnsafeProcess(f"--preflight probe: HTTPS is {found['verdict']} in a worker: {told}{causes}")
