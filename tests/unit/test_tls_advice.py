"""What a message about a certificate advises, by OpenSSL's code."""

from __future__ import annotations

import ssl

import pytest

from downloader.http.exceptions import translate


@pytest.mark.parametrize(
    ("code", "says"),
    [
        *((code, "--cacert FILE.pem") for code in (2, 18, 19, 20, 21)),
        *((code, "stronger key") for code in (66, 67, 68)),
        *((code, "needs another one") for code in (23, 24, 25, 26)),
        (10, "a new one"),
        (62, "by a name that its certificate has"),
    ],
)
@pytest.mark.parametrize("cacert", ["", "ca.pem"])
def test_advice_can_help(code: int, says: str, cacert: str) -> None:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = code, "the reason"
    failed = translate(error, cacert=cacert)
    assert failed.code == "tls-verify"
    assert says in failed.detail
    assert ("FILE.pem" in failed.detail) == (says == "--cacert FILE.pem")
