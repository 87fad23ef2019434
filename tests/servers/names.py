"""A name server that has the same addresses for every name."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import dns.flags
import dns.message
import dns.rdatatype
import dns.rrset
from dns.rcode import Rcode


@contextmanager
def name_server(
    addresses: list[str],
    missing: Rcode = Rcode.NOERROR,
    ttl: int = 60,
    after: Callable[[str, str], float | None] = lambda name, kind: 0.0,
) -> Iterator[str]:
    """Serve every name with what ``addresses`` has then, in this order; yield the value of --dns-server.

    ``missing``: how queries are answered for the family of which there are none. ``after``: returns the
    seconds after which a query for a name and type ("A", "AAAA") is answered, None for never.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))

        def serve() -> None:
            while True:
                query, client = sock.recvfrom(4096)
                if not query:
                    return
                reply = dns.message.make_response(dns.message.from_wire(query))
                reply.flags |= dns.flags.RA
                name, kind = reply.question[0].name, reply.question[0].rdtype
                known = [each for each in addresses if (":" in each) == (kind == dns.rdatatype.AAAA)]
                if known:
                    reply.answer.append(dns.rrset.from_text(name, ttl, "IN", kind, *known))
                else:
                    reply.set_rcode(missing)
                seconds = after(name.to_text(omit_final_dot=True), dns.rdatatype.to_text(kind))
                if seconds:
                    late = threading.Timer(seconds, sock.sendto, (reply.to_wire(), client))
                    late.daemon = True
                    late.start()
                elif seconds is not None:
                    sock.sendto(reply.to_wire(), client)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{sock.getsockname()[1]}"
        finally:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
                last.sendto(b"", sock.getsockname())
            thread.join()
