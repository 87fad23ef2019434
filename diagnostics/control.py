"""Make the same requests from plain threads, in a separate process in which nothing is patched.

Its entry point (``main``) gets the arguments of ``measure`` as JSON, and prints ``{"single": s, "wall": s,
"error": ""}``: the time of one request, and of N at once.
"""

from __future__ import annotations

import json
import ssl
import sys
import threading
import time
import urllib.request
from typing import Any

from downloader.process.tls_defaults import client_context

__all__ = ["main", "measure"]

_PATIENCE = 30.0


def measure(url: str, requests: int, cacert: str, insecure: bool) -> dict[str, Any]:
    """Return the times in seconds; ``error`` is the text of the first error when all N failed."""
    context = client_context()
    if cacert:
        context.load_verify_locations(cacert)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as a download does with --cacert
    else:
        context.load_default_certs()
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    errors: list[str] = []

    def fetch() -> None:
        try:
            with urllib.request.urlopen(url, timeout=_PATIENCE, context=context) as response:
                response.read()
        except (OSError, ValueError) as error:
            errors.append(" ".join(str(error).split())[:300])

    began = time.monotonic()
    fetch()
    fetch()
    single = (time.monotonic() - began) / 2
    if len(errors) == 2:
        return {"single": single, "wall": single, "error": errors[0]}
    errors.clear()
    threads = [threading.Thread(target=fetch) for _ in range(requests)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall = time.monotonic() - began
    return {"single": single, "wall": wall, "error": errors[0] if len(errors) == requests else ""}


def main() -> None:
    """Run the control; the entry point of its process."""
    sys.stdout.write(json.dumps(measure(**json.loads(sys.argv[1]))))
