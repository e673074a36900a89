"""The number of test processes, from files as Linux has them."""

import os
from pathlib import Path

import pytest

from tests.processors import worker_count

V2 = {"proc/self/cgroup": "0::/\n"}
NESTED = {"proc/self/cgroup": "0::/ci.slice/job-7\n"}
V1 = {"proc/self/cgroup": "4:memory:/docker/ab\n3:cpuset:/docker/ab\n2:cpu,cpuacct:/docker/ab\n0::/\n"}


@pytest.mark.parametrize(
    ("files", "processors", "count"),
    [
        ({}, 1, 2),
        ({}, 4, 8),
        ({}, 64, 16),
        ({**V2, "sys/fs/cgroup/cpu.max": "max 100000\n", "sys/fs/cgroup/memory.max": "max\n"}, 4, 8),
        ({**V2, "sys/fs/cgroup/cpu.max": "200000 100000\n"}, 64, 4),
        ({**V2, "sys/fs/cgroup/cpu.max": "150000 100000\n"}, 64, 3),
        ({**V2, "sys/fs/cgroup/cpu.max": "20000 100000\n"}, 64, 1),
        ({**V2, "sys/fs/cgroup/memory.max": "3221225472\n"}, 8, 3),
        ({**V2, "sys/fs/cgroup/memory.max": "536870912\n"}, 8, 1),
        ({**NESTED, "sys/fs/cgroup/ci.slice/job-7/cpu.max": "300000 100000"}, 8, 6),
        ({**NESTED, "sys/fs/cgroup/ci.slice/memory.max": "4294967296"}, 8, 4),
        (
            {
                **V1,
                "sys/fs/cgroup/cpu/docker/ab/cpu.cfs_quota_us": "200000\n",
                "sys/fs/cgroup/cpu/docker/ab/cpu.cfs_period_us": "100000\n",
            },
            64,
            4,
        ),
        # In a container the folder of its cgroup is the top one.
        ({**V1, "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "50000"}, 64, 2),
        ({**V1, "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}, 4, 8),
        ({**V1, "sys/fs/cgroup/memory/memory.limit_in_bytes": "2147483648\n"}, 64, 2),
        ({**V1, "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 4, 8),
        ({"proc/meminfo": "MemTotal:       65536000 kB\nMemAvailable:    5242880 kB\n"}, 64, 5),
    ],
)
def test_tests_use_what_the_process_may_use(files: dict[str, str], processors: int, count: int, tmp_path: Path) -> None:
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert worker_count(tmp_path, processors) == count


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="processors are chosen on Linux only")
def test_a_process_that_is_bound_to_one_processor_has_two(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert worker_count(tmp_path) == 2
    finally:
        os.sched_setaffinity(0, before)
