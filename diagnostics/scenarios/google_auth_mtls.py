"""google-auth builds its adapter for mutual TLS once, and every other request of the process is slow."""

import grequests  # noqa: F401
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def _certificate():
    import datetime

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "client")])
    now = datetime.datetime(2020, 1, 1)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now.replace(year=2100))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return made.public_bytes(pem), key.private_bytes(pem, form, serialization.NoEncryption())


from google.auth.transport.requests import _MutualTlsAdapter

_MutualTlsAdapter(*_certificate())  # <- where

PACKAGES = ["google-auth==2.23.0", "grequests", "pyOpenSSL==23.3.0", "cryptography==41.0.7", "urllib3<2"]
PYTHONS = ["3.11", "3.12", "3.10", "3.9", "3.8"]
EXPECT = {"verdict": "serialized", "cause": "pyopenssl-unpatched-select", "where": "google/auth/*"}
