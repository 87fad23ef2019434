"""The server answers one request after the other: nothing that the process can change.

Run as a program with a folder it is that server: it has the certificate there, and prints its port.
"""

import sys

if __name__ != "__main__":
    from gevent import monkey

    monkey.patch_all()

    import requests  # noqa: F401

PACKAGES = ["gevent", "requests"]
EXPECT = {"verdict": "serialized", "cause": "serial-server", "where": "https://localhost:*"}
SERVER = True


def _serve(folder):
    import os
    import socket
    import ssl
    import time

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(os.path.join(folder, "server.pem"))
    with socket.create_server(("127.0.0.1", 0), backlog=1000) as listening:
        sys.stdout.write("%d\n" % listening.getsockname()[1])
        sys.stdout.flush()
        while True:
            connection, _ = listening.accept()
            try:
                with context.wrap_socket(connection, server_side=True) as tls:
                    tls.recv(65536)
                    time.sleep(0.2)
                    tls.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
            except OSError:
                pass


if __name__ == "__main__":
    _serve(sys.argv[1])
