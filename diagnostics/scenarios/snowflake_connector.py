"""snowflake-connector injects pyOpenSSL into the copy of urllib3 that it brings."""

import grequests  # noqa: F401
from snowflake.connector import ssl_wrap_socket
from snowflake.connector.vendored import requests

# What opening a connection to the database does first; pyOpenSSL itself the copy of requests has injected.
ssl_wrap_socket.inject_into_urllib3()


def fetch(url):
    requests.get(url).raise_for_status()


PACKAGES = ["snowflake-connector-python==3.12.0", "grequests"]
PYTHONS = ["3.11", "3.12", "3.10", "3.9", "3.8"]
EXPECT = {
    "verdict": "serialized",
    "cause": "pyopenssl-vendored-copy",
    "where": "snowflake/connector/vendored/requests/__init__.py:*",
}
