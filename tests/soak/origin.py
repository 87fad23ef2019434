"""Run the soak's file server, in a process of its own, with one fault of each kind in ONE_IN requests.

    python tests/soak/origin.py ONE_IN SEED

Prints its port and, at the end of its standard input, its counts as JSON. On 127.0.0.1 its faults are those
that the pipelined client tolerates, on any other address all of them: there the requests client is at work.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from servers import LASTING, ODD, PASSING, Faults, Request, Server, Step


def main() -> int:
    one_in, seed = map(int, sys.argv[1:])
    plain = Faults(one_in, seed, {**PASSING, "404": LASTING["404"]})
    odd = Faults(one_in, seed, {**PASSING, **ODD, **LASTING})

    def answer(request: Request) -> Sequence[Step]:
        return (plain if request.host == "127.0.0.1" else odd)(request)

    with Server(default=answer, host="0.0.0.0", record=False) as server:
        sys.stdout.write(f"{server.port}\n")
        sys.stdout.flush()
        sys.stdin.read()
        connections = server.connections
    told = {
        "faults": {"plain": dict(plain.given), "odd": dict(odd.given)},
        "ended": len(plain.ended) + len(odd.ended),
        "connections": connections,
    }
    sys.stdout.write(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
