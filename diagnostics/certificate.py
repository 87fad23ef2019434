"""Write the certificate of a server on this machine, which only the process under check trusts."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import trustme

__all__ = ["CA", "PACKED", "RSA", "SERVER", "write"]

CA = "ca.pem"
SERVER = "server.pem"  # key and certificate, ECDSA
RSA = "server-rsa.pem"  # the same for clients that take nothing else
PACKED = "packed"


def write(folder: Path) -> Callable[[], None]:
    """Write ``CA`` and ``SERVER``, for localhost, to ``folder``; return what writes ``RSA``.

    Only this user may read the last two. A key for RSA takes up to 0.3 s, in which others can go on.
    They are new where trustme is installed. A zip file has no compiled packages: it brings those that were
    made for it, of a CA whose key was thrown away. So they certify nothing but this machine.
    """
    packed = files("diagnostics") / PACKED
    if packed.is_dir():
        authority, server, rsa = ((packed / name).read_bytes() for name in (CA, SERVER, RSA))
    else:
        import trustme

        made = trustme.CA()
        authority = made.cert_pem.bytes()
        server, rsa = _issued(made, trustme.KeyType.ECDSA), b""
    (folder / CA).write_bytes(authority)
    _keep(folder / SERVER, server)
    return lambda: _keep(folder / RSA, rsa or _issued(made, trustme.KeyType.RSA))


def _issued(authority: trustme.CA, kind: trustme.KeyType) -> bytes:
    issued = authority.issue_cert("localhost", "127.0.0.1", "::1", key_type=kind)
    return issued.private_key_and_cert_chain_pem.bytes()


def _keep(path: Path, content: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
