"""What a message about a certificate advises, by OpenSSL's code."""

from __future__ import annotations

import json
import subprocess
import sys

from harness import environment

# In a process of its own: the module is for one that is patched.
PROGRAM = """
import json, sys
from downloader.process import patching
patching.apply()
import ssl
from downloader.http.exceptions import translate

def told(code):
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = code, "the reason"
    return translate(error, cacert="ca.pem").detail

print(json.dumps([told(code) for code in json.loads(sys.argv[1])]))
"""
SAYS = {
    **dict.fromkeys((2, 18, 19, 20, 21), "--cacert FILE.pem"),
    **dict.fromkeys((66, 67, 68), "stronger key"),
    **dict.fromkeys((23, 24, 25, 26), "needs another one"),
    10: "a new one",
    62: "by a name that its certificate has",
}


def test_advice_can_help() -> None:
    argv = [sys.executable, "-c", PROGRAM, json.dumps(list(SAYS))]
    done = subprocess.run(argv, env=environment(), capture_output=True, text=True, check=True, timeout=60)
    for says, detail in zip(SAYS.values(), json.loads(done.stdout), strict=True):
        assert says in detail
        assert ("FILE.pem" in detail) == (says == "--cacert FILE.pem")
