"""``python -m downloader``.

``-m`` has put the current directory first on ``sys.path``. Until it is off again, only what the interpreter
has built in is imported (not even ``__future__``), and our own package.

The collector is off while modules are imported, since what that makes is no garbage; and when the
interpreter ends, it need not look for garbage in what ends with it: 17 of 85 ms that the two take.
"""

import gc
import sys

from downloader.process.isolation import guard

guard()
gc.disable()

from downloader.cli import main as cli  # noqa: E402

gc.enable()

__all__ = ["main"]


def main() -> int:
    """The command line; the exit code."""
    code = cli.main()
    gc.freeze()
    return code


if __name__ == "__main__":
    sys.exit(main())
