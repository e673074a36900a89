"""How many processes the tests run in: as many as the processors and the memory that this process may use are good for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

MOST = 16
#: What a process needs; its largest tests take 700 MB.
BYTES_EACH = 2**30


def worker_count(root: Path = Path("/"), processors: int | None = None) -> int:
    """Two for each processor, since half of the time tests wait; at most one for each GB of memory, and 16.

    Args:
        root: The folder of `proc` and `sys`, from which limits of cgroups and the free memory are read, where there are any.
        processors: How many processors this process may run on; by default the system is asked.
    """
    usable = min([processors or _affinity(), *_processors_by_quota(root)])
    return max(1, int(min([2 * usable, MOST, *(size / BYTES_EACH for size in _memory(root))])))


def _affinity() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processors_by_quota(root: Path) -> Iterator[float]:
    """What cgroups allow; in version 2 as `200000 100000`, in version 1 in two files, -1 for no limit."""
    for group in _groups(root, "cpu"):
        quota, period = _read(group / "cpu.max").split() or [
            _read(group / "cpu.cfs_quota_us"),
            _read(group / "cpu.cfs_period_us"),
        ]
        if quota.isdigit() and int(quota) and period.isdigit():
            yield int(quota) / int(period)


def _memory(root: Path) -> Iterator[int]:
    """The bytes that are free, and those that cgroups allow."""
    for line in _read(root / "proc" / "meminfo").splitlines():
        name, _, size = line.partition(":")
        if name == "MemAvailable":
            yield int(size.removesuffix("kB")) * 1024
    for group in _groups(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            if (limit := _read(group / name)).isdigit():
                yield int(limit)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of the cgroups that this process is in, and of those around them."""
    mount = root / "sys" / "fs" / "cgroup"
    for line in _read(root / "proc" / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "" or controller in controllers.split(","):
            top = mount / controller if controllers else mount
            group = top / path.strip("/")
            yield group
            yield from (folder for folder in group.parents if folder.is_relative_to(top))


def _read(file: Path) -> str:
    """The text of a file; nothing if it can't be read."""
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
