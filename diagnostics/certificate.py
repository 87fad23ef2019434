"""Write the certificate of a server on this machine, which only the process under check trusts."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

__all__ = ["CA", "PACKED", "SERVER", "write"]

CA = "ca.pem"
SERVER = "server.pem"  # key and certificate
PACKED = "packed"


def write(folder: Path) -> None:
    """Write ``CA`` and ``SERVER``, for localhost, to ``folder``; only this user may read the second.

    They are new where trustme is installed. A zip file has no compiled packages: it brings those that were
    made for it, of a CA whose key was thrown away. So they certify nothing but this machine.
    """
    packed = files("diagnostics") / PACKED
    if packed.is_dir():
        authority, server = ((packed / name).read_bytes() for name in (CA, SERVER))
    else:
        import trustme

        made = trustme.CA()
        issued = made.issue_cert("localhost", "127.0.0.1", "::1")
        authority = made.cert_pem.bytes()
        server = issued.private_key_and_cert_chain_pem.bytes()
    (folder / CA).write_bytes(authority)
    with open(os.open(folder / SERVER, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(server)
