"""``python -m diagnostics``.

``-m`` has put the current directory first on ``sys.path``. Until it is off again, only what the interpreter
has built in is imported, and our own packages, from where this one is.
"""

import sys

_PATH = list(sys.path)
sys.path[:] = [__file__.rpartition("/diagnostics/")[0]]

from downloader.isolation import guard  # noqa: E402

sys.path[:] = _PATH
guard()

from diagnostics.cli import main  # noqa: E402

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
