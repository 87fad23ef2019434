"""sitecustomize injects pyOpenSSL, before the application has said a word."""

from gevent import monkey

monkey.patch_all(select=False)

PACKAGES = ["gevent", "requests", "pyOpenSSL"]
PATH = "startup_injects"
EXPECT = {
    "verdict": "serialized",
    "cause": "pyopenssl-unpatched-select",
    "where": "*startup_injects/sitecustomize.py:5",
}
