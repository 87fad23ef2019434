"""The classic with a server that waits 0.5 s for a request: most get errors, and none is quick.

Run as a program with a folder it is that server: it has the certificate there, and prints its port.
"""

import sys

if __name__ != "__main__":
    import grequests  # noqa: F401
    from urllib3.contrib import pyopenssl

    pyopenssl.inject_into_urllib3()  # <- where

PACKAGES = ["grequests", "pyOpenSSL"]
EXPECT = {"verdict": "serialized", "cause": "pyopenssl-unpatched-select"}
SERVER = True


def _serve(folder):
    import os
    import socket
    import ssl
    import threading
    import time

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(os.path.join(folder, "server.pem"))

    def answer(connection):
        connection.settimeout(0.5)
        try:
            with context.wrap_socket(connection, server_side=True) as tls:
                while tls.recv(65536):
                    time.sleep(0.2)
                    tls.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        except OSError:
            connection.close()

    with socket.create_server(("127.0.0.1", 0), backlog=1000) as listening:
        sys.stdout.write("%d\n" % listening.getsockname()[1])
        sys.stdout.flush()
        while True:
            threading.Thread(target=answer, args=(listening.accept()[0],), daemon=True).start()


if __name__ == "__main__":
    _serve(sys.argv[1])
