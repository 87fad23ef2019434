"""pyOpenSSL's connection, waiting in gevent: what gevent-openssl 1.2 means to be, on Python 2.7 and 3.

gevent-openssl wraps ``recv``; urllib3 on Python 3 uses ``recv_into``, which then waits in the
unpatched ``poll``. The article's correction adds ``recv_into`` and answers ``''`` when the peer has
closed, so an answer without Content-Length ends in an error. Here what would block waits in gevent,
and every error but that, the end of a connection too, is left to urllib3, which deals with all of them.
"""

import OpenSSL.SSL
from gevent.socket import wait_read, wait_write

_Plain = OpenSSL.SSL.Connection


class Connection(_Plain):
    """A connection on a gevent socket; only the greenlet that calls it waits."""

    def __init__(self, context, sock=None):
        _Plain.__init__(self, context, sock)
        self._waits_on = sock

    def _waiting(self, call, *args):
        while True:
            try:
                return call(self, *args)
            except OpenSSL.SSL.WantReadError:
                wait = wait_read
            except OpenSSL.SSL.WantWriteError:
                wait = wait_write
            # Raises socket.timeout as the socket itself would.
            wait(self._waits_on.fileno(), timeout=self._waits_on.gettimeout())

    def do_handshake(self):
        return self._waiting(_Plain.do_handshake)

    def recv(self, bufsiz, flags=None):
        return self._waiting(_Plain.recv, bufsiz, flags)

    def recv_into(self, buffer, nbytes=None, flags=None):
        return self._waiting(_Plain.recv_into, buffer, nbytes, flags)

    def send(self, buf, flags=0):
        return self._waiting(_Plain.send, buf, flags)


def patch():
    """Have everything that makes a connection through ``OpenSSL.SSL`` from now on make one of these."""
    OpenSSL.SSL.Connection = Connection
