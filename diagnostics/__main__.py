"""Run ``python -m diagnostics``.

``-m`` puts the current directory first on ``sys.path``. Until it is removed again, import only built-in
modules, and the project's own packages from the folder that this one is in.
"""

import sys

_PATH = list(sys.path)
sys.path[:] = [__file__.rpartition("/diagnostics/")[0]]

try:
    from downloader.process.isolation import guard

    sys.path[:] = _PATH
    guard()
except KeyboardInterrupt:
    sys.exit(130)  # nothing has begun

__all__ = ["main"]


def main() -> int:
    """Run the command line and return the exit code.

    An internal failure never returns the exit code of a verdict.
    """
    try:
        from diagnostics.cli import main as run
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        from traceback import extract_tb

        at = extract_tb(error.__traceback__)[-1]
        text = " ".join(f"{type(error).__name__}: {error}".split())
        sys.stderr.write(f"diagnostics: cannot start: {text} ({at.filename}:{at.lineno})\n")
        return 4
    return run()


if __name__ == "__main__":
    sys.exit(main())
