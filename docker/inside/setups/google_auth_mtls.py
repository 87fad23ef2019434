"""grequests, and google-auth's adapter for client certificates built once, for something else."""

import grequests
import OpenSSL.crypto
from google.auth.transport.requests import _MutualTlsAdapter


def _self_signed():
    key = OpenSSL.crypto.PKey()
    key.generate_key(OpenSSL.crypto.TYPE_RSA, 2048)
    certificate = OpenSSL.crypto.X509()
    certificate.get_subject().CN = "client"
    certificate.set_issuer(certificate.get_subject())
    certificate.set_pubkey(key)
    certificate.gmtime_adj_notBefore(0)
    certificate.gmtime_adj_notAfter(86400)
    certificate.sign(key, "sha256")
    pem = OpenSSL.crypto.FILETYPE_PEM
    return OpenSSL.crypto.dump_certificate(pem, certificate), OpenSSL.crypto.dump_privatekey(pem, key)


_MutualTlsAdapter(*_self_signed())
