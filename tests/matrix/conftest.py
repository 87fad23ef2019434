"""``docker`` is no part of what is installed: it is found from the project's directory."""

import sys

from harness import ROOT

sys.path.insert(0, str(ROOT))
