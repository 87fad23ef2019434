"""``python -m diagnostics``."""

import sys

from diagnostics.cli import main

if __name__ == "__main__":
    sys.exit(main())
