"""freezegun stops the clock, by which a serial process takes no time at all."""

import grequests  # noqa: F401
from freezegun import freeze_time
from urllib3.contrib import pyopenssl

pyopenssl.inject_into_urllib3()  # <- where
freeze_time("2020-02-29 12:00:00").start()

PACKAGES = ["grequests", "pyOpenSSL", "freezegun"]
EXPECT = {"verdict": "serialized", "cause": "pyopenssl-unpatched-select"}
