"""Run the command line: ``python -m downloader``.

``-m`` puts the current directory first on ``sys.path``. Until that is removed, only modules that the
interpreter has built in (not even ``__future__``) and our own package are imported.

The garbage collector is off during imports, which make no garbage, and has nothing to scan at exit, when
everything is freed anyway: this saves 17 of the 85 ms that imports and exit take.
"""

import gc
import sys

try:
    from downloader.process.isolation import guard, why_missing

    guard()
    gc.disable()
    try:
        from downloader.cli import main as cli
        from downloader.process.interrupts import inherit_none
    except ModuleNotFoundError as error:
        if not (why := why_missing()):
            raise
        sys.stderr.write(f"downloader: error: {error}; {why}\n")
        sys.exit(2)
    gc.enable()
except KeyboardInterrupt:
    sys.exit(130)  # nothing has begun

__all__ = ["main"]


def main() -> int:
    """Run the command line; return the exit code."""
    try:
        inherit_none()
        code = cli.main()
        gc.freeze()
    except KeyboardInterrupt:
        return 130  # before it handles signals, or after
    return code


if __name__ == "__main__":
    sys.exit(main())
