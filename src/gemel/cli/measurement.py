"""What `gemel bench` measures: latencies, failures, and the CPU time and memory of processes. Its memory is bounded."""

from __future__ import annotations

import math
import os
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from gemel.errors import shorten

#: The logarithm of the width of a bucket, 1 %: percentiles are known to within half of it.
_STEP = math.log(1.01)
_PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
#: Different messages of errors that are counted one by one.
_MESSAGES = 20
_OTHER = "other errors"


class Latencies:
    """Durations in a histogram of logarithmic buckets, each 1 % wide: some 2,000 for all from a microsecond to ten minutes."""

    def __init__(self) -> None:
        self.count = 0
        self._min = math.inf
        self._max = 0.0
        self._buckets: defaultdict[int, int] = defaultdict(int)

    def add(self, seconds: float) -> None:
        """Add the duration of a call."""
        self.count += 1
        self._min = min(self._min, seconds)
        self._max = max(self._max, seconds)
        self._buckets[math.floor(math.log(max(seconds, 1e-9)) / _STEP)] += 1

    def percentile(self, part: float) -> float:
        """Return the duration in seconds that this part of the calls did not exceed; with an error of at most 0.5 %."""
        rank = math.ceil(part * self.count)
        for bucket in sorted(self._buckets):
            rank -= self._buckets[bucket]
            if rank <= 0:
                return min(max(math.exp((bucket + 0.5) * _STEP), self._min), self._max)
        return self._max

    def describe(self) -> dict[str, float] | None:
        """Return minimum, percentiles and maximum in milliseconds; None without calls."""
        if not self.count:
            return None
        percentiles = {name: self.percentile(part) for name, part in _PERCENTILES.items()}
        seconds = {"min": self._min, **percentiles, "max": self._max}
        return {name: round(value * 1000, 4) for name, value in seconds.items()}


class Measurement:
    """What is known of a run so far.

    Args:
        pid: The process of the server, if it runs on this machine and is known.
    """

    def __init__(self, pid: int | None) -> None:
        self.latencies = Latencies()
        self.failed = 0
        self.is_complete = False
        self._errors: dict[str, int] = {}
        self._pid = pid
        self._usage = process_usage(pid)
        self._client_cpu = time.process_time()
        self._start = time.perf_counter()

    @property
    def calls(self) -> int:
        """How many calls have ended."""
        return self.latencies.count + self.failed

    @property
    def seconds(self) -> float:
        """The seconds since the start."""
        return time.perf_counter() - self._start

    def fail(self, message: str) -> None:
        """Add a call that failed."""
        self.failed += 1
        message = shorten(" ".join(message.split()))
        if message not in self._errors and len(self._errors) >= _MESSAGES:
            message = _OTHER
        self._errors[message] = self._errors.get(message, 0) + 1

    def describe(self) -> dict[str, Any]:
        """Return the figures at this moment: times of latencies in milliseconds, of CPU in microseconds, memory in bytes."""
        seconds, client_cpu, usage = self.seconds, time.process_time() - self._client_cpu, process_usage(self._pid)
        server = None
        if usage is not None and self._usage is not None:
            server = {**_cpu(usage.cpu - self._usage.cpu, seconds, self.calls), "peakMemory": usage.peak}
        most_first = sorted(self._errors.items(), key=lambda error: -error[1])
        return {
            "calls": self.calls,
            "failed": self.failed,
            "seconds": round(seconds, 3),
            "complete": self.is_complete,
            "callsPerSecond": round(self.latencies.count / seconds, 1),
            "latency": self.latencies.describe(),
            "server": server,
            "client": _cpu(client_cpu, seconds, self.calls),
            "errors": [{"message": message, "count": count} for message, count in most_first],
        }


def _cpu(cpu: float, seconds: float, calls: int) -> dict[str, float | None]:
    return {"cpuPerCall": round(cpu / calls * 1e6, 1) if calls else None, "cores": round(cpu / seconds, 2)}


class Usage(NamedTuple):
    """What a process and those that it started have used: seconds of CPU time, and the sum of their peak memory in bytes."""

    cpu: float
    peak: int


def process_usage(pid: int | None) -> Usage | None:
    """Read what a process and its descendants have used, from /proc; None where the system does not tell."""
    if pid is None or not (stats := _read_stats()).get(pid):
        return None
    tree = {pid}
    while more := {child for child, stat in stats.items() if stat.parent in tree} - tree:
        tree |= more
    try:
        return Usage(sum(_cpu_seconds(each) + stats[each].reaped for each in tree), sum(map(_peak_memory, tree)))
    except (OSError, ValueError):  # one of them has ended just now
        return None


class _Stat(NamedTuple):
    parent: int
    #: The CPU seconds of its children that have ended.
    reaped: float


def _read_stats() -> dict[int, _Stat]:
    stats = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        stats[int(path.parent.name)] = _Stat(
            int(fields[1]), (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
        )
    return stats


def _cpu_seconds(pid: int) -> float:
    return time.clock_gettime(~pid << 3 | 2)  # the clock of another process on Linux, see clock_getcpuclockid(3)


def _peak_memory(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0
