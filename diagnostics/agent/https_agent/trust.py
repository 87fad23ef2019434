"""Let requests trust the probe's server, and every other server no more and no less than it does.

A variable that names a file of CA certificates would do that for the application's own servers, too:
requests takes it before what the session verifies with.
"""

from . import like, wrapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Dict

    from .recorder import Record


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
