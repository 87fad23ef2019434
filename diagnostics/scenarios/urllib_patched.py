"""The standard library's own client, patched first."""

from gevent import monkey

monkey.patch_all()

try:
    from urllib.request import urlopen
except ImportError:  # Python 2
    from urllib2 import urlopen


def fetch(url):
    urlopen(url).read()


PACKAGES = ["gevent"]
EXPECT = {"verdict": "concurrent"}
