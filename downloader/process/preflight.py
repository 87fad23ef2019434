"""--preflight: whether HTTPS is concurrent in a worker, before any file is asked for.

``inspect`` runs in each child and looks only; ``probe`` measures in a fresh process that is set up as a
worker is. Both ask the diagnostics, which know the downloader and not the other way round: hence the
late import, and the subprocess.
"""

from __future__ import annotations

import subprocess

import msgspec

from downloader.errors import UnsafeProcess
from downloader.process import isolation

__all__ = ["inspect", "probe"]

_PATIENCE = 120.0


def inspect() -> None:
    """Look at this process; UnsafeProcess names what would make its HTTPS serial or break it."""
    from diagnostics.here import inspect as look

    causes = look().causes
    if causes:
        told = "; ".join(f"{cause.code}: {cause.evidence[0]} {cause.where}".strip() for cause in causes)
        raise UnsafeProcess(f"{told} (python -m diagnostics tells more)")


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
