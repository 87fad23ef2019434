"""2019, stage 4: gevent-openssl corrected, so that recv_into waits in gevent, too."""

import gevent_openssl

gevent_openssl.monkey_patch()

import gevent.socket
from OpenSSL import SSL


class Connection(SSL.Connection):
    """What Python 3 reads with, as gevent-openssl does it for recv."""

    def recv_into(self, *args, **kwargs):
        while True:
            try:
                return self._connection.recv_into(*args, **kwargs)
            except SSL.WantReadError:
                gevent.socket.wait_read(self.fileno())


SSL.Connection = Connection

import grequests  # noqa: F401

PACKAGES = [
    "cryptography==2.6.1",
    "gevent==1.4.0",
    "gevent-openssl==1.2",
    "greenlet==0.4.16",
    "grequests==0.3.0",
    "pyOpenSSL==19.0.0",
    "requests==2.21.0",
    "urllib3==1.24.1",
]
EXPECT = {"verdict": "concurrent"}
RUNS = [{"name": "2.7", "PYTHONS": ["2.7"]}, {"name": "3.7", "PYTHONS": ["3.7"]}]
