"""gevent-openssl with the ``recv_into`` that the article gave it, then grequests: its stage 04.

What its ``recv_into`` gets wrong is kept: at the end of a connection it answers ``''``, which is no
count of bytes, and it looks into an exception as Python 3 does not allow.
"""

import OpenSSL.SSL
import gevent_openssl
from gevent.socket import wait_read, wait_write


def _recv_into(self, buffer, nbytes=None, flags=None):
    timeout = self._sock.gettimeout()
    while True:
        try:
            return self._connection.recv_into(buffer, nbytes, flags)
        except (OpenSSL.SSL.WantReadError, OpenSSL.SSL.WantX509LookupError):
            wait_read(self._sock.fileno(), timeout=timeout)
        except OpenSSL.SSL.WantWriteError:
            wait_write(self._sock.fileno(), timeout=timeout)
        except OpenSSL.SSL.ZeroReturnError:
            return ""
        except OpenSSL.SSL.SysCallError as error:
            if error[0] == -1 and "Unexpected EOF" in error[1]:
                return ""
            raise


gevent_openssl.SSL.Connection.recv_into = _recv_into
gevent_openssl.monkey_patch()

import grequests
