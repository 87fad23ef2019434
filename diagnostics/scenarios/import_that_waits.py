"""An import never returns: it tries for ever to reach what is not there."""

import time


def connect():
    while True:
        time.sleep(0.5)


connect()

PACKAGES = ["gevent"]
EXPECT = {
    "verdict": "none",
    "error": "importing import_that_waits did not end within * s: its main greenlet waits at import_that_waits.py:8;*",
}
