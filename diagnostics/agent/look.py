"""Print the interpreter's version and the names of the metadata folders on its path; run by its path."""

import json
import os
import sys

_NAMES = [name for folder in sys.path if os.path.isdir(folder) for name in os.listdir(folder)]
_METADATA = [name for name in _NAMES if name.endswith((".dist-info", ".egg-info"))]
sys.stdout.write(json.dumps([".".join(map(str, sys.version_info[:2])), _METADATA]))
