"""Contain parts of the programs that the diagnostics examine."""

from __future__ import annotations

PATCH = "from gevent import monkey; monkey.patch_all()\n"

# Serializes HTTPS, with its fourth line.
INJECT = """\
import grequests
import urllib3.contrib.pyopenssl

urllib3.contrib.pyopenssl.inject_into_urllib3()  # <- where
"""

# Its connection is refused. With requests where that is loaded: it is what the program uses then. For
# Python 2.7, too.
FETCH = """\
import sys
try:
    from urllib.request import urlopen
except ImportError:
    from urllib2 import urlopen

def fetch():
    get = sys.modules["requests"].get if "requests" in sys.modules else urlopen
    try:
        get("https://localhost:9/", timeout=5)
    except IOError:
        pass
"""

# To be formatted: `leave` ends the process that forked.
DAEMONIZE = """\
import os, sys

if os.fork():
    {leave}
os.setsid()
if os.fork():
    {leave}
"""
