"""The program ends with an error of several lines, the last of which is a bracket."""

import os
import sys

sys.stderr.write("settings are invalid: [\n  'port: not a number',\n]\n")
sys.stderr.flush()
os._exit(3)

PACKAGES = ["gevent"]
EXPECT = {
    "verdict": "none",
    "error": "ends_with_a_bracket ended with exit code 3; its last output: settings are invalid: * 'port: *number', ]",
}
