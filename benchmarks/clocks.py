"""CPU time of processes, and how disturbed the machine is while we measure."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of these running processes with all their threads, in seconds.

    Linux keeps a clock per process with nanoseconds (its id is made of the pid); elsewhere only /proc knows, in ticks.
    """
    return sum(_one(pid) for pid in pids)


def _one(pid: int) -> float:
    try:
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def spin(rounds: int = 400_000) -> tuple[float, float]:
    """Wall and CPU seconds of a fixed piece of work. Their quotient says how often we were put aside, the CPU seconds
    alone how fast the processor runs at the moment."""
    wall, cpu = time.perf_counter(), time.process_time()
    total = 0
    for number in range(rounds):
        total += number & 7
    return time.perf_counter() - wall, time.process_time() - cpu
