"""CPU quotas and memory limits in trees of control groups as systems and containers have them."""

from __future__ import annotations

from math import inf

import pytest

from downloader.core.cgroups import MemoryLimit, cpu_quota, directories, memory_limit, oom_kills

V2 = "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
PROC = "23 28 0:21 / /proc rw - proc proc rw\n"
NONE = "9223372036854771712\n"  # of version 1


def v1(controllers: str, root: str = "/", point: str = "") -> str:
    point = point or f"/sys/fs/cgroup/{controllers}"
    return f"40 32 0:37 {root} {point} rw,relatime shared:16 - cgroup cgroup rw,{controllers}\n"


def tree(cgroup: str, mounts: str, **files: str):
    """Return the function that reads it; a file is ``directory__name``, below /sys/fs/cgroup."""
    known = {"/proc/self/cgroup": cgroup, "/proc/self/mountinfo": PROC + mounts}
    return lambda path: known.get(path) or files.get(path.removeprefix("/sys/fs/cgroup").strip("/"), "")


SLICE = "0::/user.slice/job.scope\n"
CPU_CASES = {
    "no groups": (tree("", ""), inf),
    "no quota": (tree(SLICE, V2, **{"user.slice/job.scope/cpu.max": "max 100000\n"}), inf),
    "own": (tree(SLICE, V2, **{"user.slice/job.scope/cpu.max": "150000 100000\n"}), 1.5),
    "ancestor": (
        tree(
            SLICE,
            V2,
            **{
                "user.slice/job.scope/cpu.max": "400000 100000\n",
                "user.slice/cpu.max": "100000 50000\n",
            },
        ),
        2.0,
    ),
    "container": (tree("0::/\n", V2, **{"cpu.max": "50000 100000\n"}), 0.5),
    "outside of the namespace": (tree("0::/../other\n", V2, **{"cpu.max": "300000 100000\n"}), 3.0),
    "a mount from outside": (
        tree("0::/\n", V2.replace(" / /sys", " /../../.. /sys"), **{"cpu.max": "300000 100000\n"}),
        3.0,
    ),
    "version 1": (
        tree(
            "4:cpu,cpuacct:/a/b\n1:name=systemd:/x\n",
            v1("cpu,cpuacct"),
            **{
                "cpu,cpuacct/a/cpu.cfs_quota_us": "250000\n",
                "cpu,cpuacct/a/cpu.cfs_period_us": "100000\n",
                "cpu,cpuacct/a/b/cpu.cfs_quota_us": "-1\n",
                "cpu,cpuacct/a/b/cpu.cfs_period_us": "100000\n",
            },
        ),
        2.5,
    ),
    # Without a namespace of groups, a container sees the path of the host, and its mount has that as root.
    "version 1 in a container": (
        tree(
            "4:cpuacct,cpu:/docker/0a1\n",
            v1("cpuacct,cpu", "/docker/0a1"),
            **{
                "cpuacct,cpu/cpu.cfs_quota_us": "100000\n",
                "cpuacct,cpu/cpu.cfs_period_us": "100000\n",
            },
        ),
        1.0,
    ),
    "a path that is not below the mount": (
        tree(
            "4:cpu:/kubepods/pod1\n",
            v1("cpu", "/docker/0a1"),
            **{"cpu/cpu.cfs_quota_us": "100000\n", "cpu/cpu.cfs_period_us": "50000\n"},
        ),
        2.0,
    ),
    "both versions": (
        tree(
            "4:cpu:/\n0::/\n",
            v1("cpu") + V2.replace("/sys/fs/cgroup", "/sys/fs/cgroup/unified"),
            **{"cpu/cpu.cfs_quota_us": "100000\n", "cpu/cpu.cfs_period_us": "100000\n"},
        ),
        1.0,
    ),
    "nonsense": (
        tree("0::/\n", V2 + "a line\n36 24 - cgroup2\n", **{"cpu.max": "many 0\n"}),
        inf,
    ),
}


@pytest.mark.parametrize("name", CPU_CASES)
def test_cpu_quota(name: str) -> None:
    read, quota = CPU_CASES[name]
    assert cpu_quota(read) == quota


MEMORY_CASES = {
    "no groups": (tree("", ""), None),
    "no limit": (tree("0::/\n", V2, **{"memory.max": "max\n", "memory.high": "max\n"}), None),
    "limit": (
        tree("0::/\n", V2, **{"memory.max": "536870912\n", "memory.high": "max\n"}),
        MemoryLimit(1 << 29, "memory.max"),
    ),
    "throttled before": (
        tree("0::/\n", V2, **{"memory.max": "536870912\n", "memory.high": "268435456\n"}),
        MemoryLimit(1 << 28, "memory.high"),
    ),
    "ancestor": (
        tree(SLICE, V2, **{"user.slice/job.scope/memory.max": "max\n", "user.slice/memory.max": "4096\n"}),
        MemoryLimit(4096, "memory.max"),
    ),
    "version 1": (
        tree(
            "3:memory:/job\n",
            v1("memory"),
            **{"memory/memory.limit_in_bytes": NONE, "memory/job/memory.limit_in_bytes": "1048576\n"},
        ),
        MemoryLimit(1 << 20, "memory.limit_in_bytes"),
    ),
    "version 1 without": (
        tree("3:memory:/\n", v1("memory"), **{"memory/memory.limit_in_bytes": NONE}),
        None,
    ),
}


@pytest.mark.parametrize("name", MEMORY_CASES)
def test_memory_limit(name: str) -> None:
    read, limit = MEMORY_CASES[name]
    assert memory_limit(read) == limit


def test_directories_are_the_groups_own_and_its_ancestors() -> None:
    read = tree("4:cpu:/a b/c\n", v1("cpu", "/", "/sys/fs/cgroup/the\\040cpu") + v1("memory"))
    point = "/sys/fs/cgroup/the cpu"
    assert directories(read, "cpu") == [f"{point}/a b/c", f"{point}/a b", point]
    assert directories(read, "memory") == []
    # Of several mounts, the one that contains it; of these, the narrowest.
    narrow = v1("cpu", "/x", "/m/x") + v1("cpu", "/a", "/m/a") + v1("cpu", "/", "/m/all")
    assert directories(tree("4:cpu:/a/c\n", narrow), "cpu") == ["/m/a/c", "/m/a"]


def test_processes_that_were_killed_for_want_of_memory_are_those_of_the_group() -> None:
    events = "low 0\nhigh 0\nmax 12\noom 2\noom_kill {}\noom_group_kill 0\n"
    own, above = "user.slice/job.scope/memory.events", "user.slice/memory.events"
    assert oom_kills(tree(SLICE, V2, **{own: events.format(3), above: events.format(8)})) == 3
    control = {"memory/a/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"}
    assert oom_kills(tree("4:memory:/a\n", v1("memory"), **control)) == 2
    assert oom_kills(tree("", "")) == 0
