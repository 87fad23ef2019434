"""freezegun stops the clock, and nothing else is wrong."""

from gevent import monkey

monkey.patch_all()

import requests  # noqa: F401
from freezegun import freeze_time

freeze_time("2020-02-29 12:00:00").start()

PACKAGES = ["gevent", "requests", "freezegun"]
EXPECT = {"verdict": "concurrent"}
