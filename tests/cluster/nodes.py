"""Run a Ray cluster of several nodes on this machine, for tests; a process of its own.

It reads a command a line from standard input and answers each with a line: ``add`` (a node of one CPU) →
its number; ``remove N`` (the cluster is told, the node is killed), ``kill N`` (SIGKILL of its raylet, which
the cluster must notice itself) → ``ok``. The first line is the address. The end of standard input ends it.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

# A lost node is noticed in less than a second, not after 12.8 s.
os.environ.update(
    RAY_AUTH_MODE="disabled",
    RAY_USAGE_STATS_ENABLED="0",
    RAY_health_check_initial_delay_ms="0",
    RAY_health_check_period_ms="200",
    RAY_health_check_timeout_ms="1000",
    RAY_health_check_failure_threshold="2",
)


def main() -> None:
    from ray.cluster_utils import Cluster

    store = 80 << 20
    scratch = sys.argv[1]
    head = {"num_cpus": 0, "object_store_memory": store, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, connect=False, head_node_args=head)
    nodes: list[Any] = []
    sys.stdout.write(f"{cluster.address}\n")
    sys.stdout.flush()
    for line in sys.stdin:
        command, *rest = line.split()
        if command == "add":
            env = {"SCRATCH": f"{scratch}/node-{len(nodes)}"}
            nodes.append(cluster.add_node(num_cpus=1, object_store_memory=store, env_vars=env))
            answer = str(len(nodes) - 1)
        elif command == "remove":
            cluster.remove_node(nodes[int(rest[0])], allow_graceful=False)
            answer = "ok"
        else:
            for process in nodes[int(rest[0])].all_processes["raylet"]:
                os.kill(process.process.pid, signal.SIGKILL)
            answer = "ok"
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()
    cluster.shutdown()


if __name__ == "__main__":
    main()
