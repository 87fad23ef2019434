"""Beside snowflake-connector's own copy, the requests of the process is not affected."""

import grequests  # noqa: F401
import requests
from snowflake.connector import ssl_wrap_socket

ssl_wrap_socket.inject_into_urllib3()


def fetch(url):
    requests.get(url).raise_for_status()


PACKAGES = ["snowflake-connector-python==3.12.0", "grequests"]
PYTHONS = ["3.11", "3.12", "3.10", "3.9", "3.8"]
EXPECT = {"verdict": "concurrent"}
