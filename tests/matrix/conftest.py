"""Make ``docker`` importable: it is not part of what is installed."""

import sys

from harness import ROOT

sys.path.insert(0, str(ROOT))
