"""Let requests trust the probe's server, and every other server no more and no less than it does.

A variable that names a file of CA certificates would do that for the application's own servers, too:
requests takes it before what the session verifies with.
"""

import os

from . import like, wrapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Dict

    from .recorder import Record

_NO_PROXY = ("no_proxy", "NO_PROXY")


def prepare(spec, record):
    # type: (Dict[str, Any], Record) -> None
    """Arrange for it, where the probe's server has a certificate that ``spec`` names the CA of."""
    ca = spec.get("verify")
    if not ca or not spec.get("url"):
        return
    base = like.server_of(spec["url"]) + "/"

    def change(module):
        # type: (ModuleType) -> None
        adapter = module.HTTPAdapter

        def replacement(function):
            # type: (Any) -> Any
            def cert_verify(self, conn, url, verify, cert):
                # type: (Any, Any, str, Any, Any) -> None
                function(self, conn, url, ca if url.startswith(base) else verify, cert)

            return cert_verify

        wrapping.replace(adapter, "cert_verify", replacement)

    record.besides["requests.adapters"] = change


def leave_out_proxies(spec):
    # type: (Dict[str, Any]) -> None
    """Have none used for the probe's server, also where the program has set these variables itself."""
    if spec["fixed"]:
        return
    for name in _NO_PROXY:
        # Hardly anything heeds both: what is only in the other must stay.
        theirs = os.environ.get(name) or next(filter(None, map(os.environ.get, _NO_PROXY)), "")
        if theirs.strip() != "*":
            os.environ[name] = ",".join([each for each in (theirs, "localhost,::1") if each])
