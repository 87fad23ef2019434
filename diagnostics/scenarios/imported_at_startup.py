"""sitecustomize imports requests, so that patch_all() on the first line is too late all the same."""

from gevent import monkey

monkey.patch_all()

PACKAGES = ["gevent", "requests"]
PATH = "startup_imports"
EXPECT = {
    "verdict": "error",
    "cause": "patched-too-late",
    "where": "*startup_imports/sitecustomize.py:3",
}
# The contexts of Python 2.7 are not subclassed: no recursion there.
EXPECT_2 = {"verdict": "concurrent"}
