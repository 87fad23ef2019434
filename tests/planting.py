"""Put something else into the place of a file."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

from bounded_runs import Outside

__all__ = ["PLANTS", "plant"]

NOBODY = 65534
ZEROS = 10 << 30
PLANTS = (
    "new-link",
    "directory",
    "link",
    "directory-link",
    "hard-link",
    "pipe",
    "foreign",
    "noise",
    "zeros",
)
LINKS = {"new-link": "new", "link": "precious", "directory-link": "inner"}  # and what they lead to
NOT_FOR_DIRECTORIES = ("directory", "noise", "zeros", "hard-link")


def plant(what: str, target: Path, outside: Outside) -> bool:
    """Replace ``target``; return False if that is not possible here."""
    content = target.read_bytes() if target.is_file() else b"x"
    was_directory = target.is_dir()
    if (what == "foreign" and os.geteuid()) or (was_directory and what in NOT_FOR_DIRECTORIES):
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    if was_directory and what not in ("foreign", "writable"):
        shutil.rmtree(target)
    elif not was_directory:
        target.unlink(missing_ok=True)
    if what in LINKS:
        target.symlink_to(outside.root / LINKS[what])
    elif what == "hard-link":
        # Of the same content, so that nothing else is wrong with it.
        (outside.root / "twin").write_bytes(content)
        os.link(outside.root / "twin", target)
    elif what == "pipe":
        os.mkfifo(target)
    elif what == "directory":
        target.mkdir()
        (target / "x").write_bytes(b"x")
    elif what == "noise":
        target.write_bytes(random.Random(target.name).randbytes(5000))
    elif what == "zeros":
        with open(target, "wb") as file:
            file.truncate(ZEROS)
    elif what == "writable":
        target.chmod(0o777)
    else:
        if not was_directory:
            target.write_bytes(content)
        os.chown(target, NOBODY, NOBODY)
    outside.before = outside.now()
    return True
