"""Figures: how long the calls of each tool take, and what memory and CPU time the programs of the server need."""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

#: The upper bounds of the histogram in milliseconds; the last bucket has none.
BOUNDS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000)
#: Durations of one tool that percentiles are computed of, and tools that are measured.
_DURATIONS = 10_000
_MAX_TOOLS = 1000


class _Tool:
    def __init__(self) -> None:
        self.count = 0
        self.errors = 0
        self.max = 0.0
        self.durations: deque[float] = deque(maxlen=_DURATIONS)
        self.buckets = [0] * (len(BOUNDS) + 1)

    def add(self, ms: float, *, failed: bool) -> None:
        self.count += 1
        self.errors += failed
        self.max = max(self.max, ms)
        self.durations.append(ms)
        self.buckets[bisect_left(BOUNDS, ms)] += 1

    def described(self) -> dict[str, Any]:
        ordered = sorted(self.durations)
        return {
            "count": self.count,
            "errors": self.errors,
            "p50": _percentile(ordered, 0.5),
            "p95": _percentile(ordered, 0.95),
            "max": self.max,
            "histogram": [[bound, count] for bound, count in zip((*BOUNDS, None), self.buckets, strict=True)],
        }


class Measures:
    """The figures of one server."""

    def __init__(self) -> None:
        self._tools: dict[str, _Tool] = {}
        self._is_changed = False
        self._memory: int | None = None
        self._cpu: float | None = None
        #: When the CPU time was read, and what it was, by process.
        self._read_at = time.monotonic()
        self._cpu_seconds: dict[int, float] = {}

    def add(self, tool: str, ms: float, *, failed: bool) -> None:
        """Add a call.

        Args:
            tool: The name of the tool.
            ms: How long it took.
            failed: Whether it failed.
        """
        measured = self._tools.get(tool)
        if measured is None:
            if len(self._tools) >= _MAX_TOOLS:
                return
            measured = self._tools[tool] = _Tool()
        measured.add(ms, failed=failed)
        self._is_changed = True

    def take(self, pids: Iterable[int]) -> dict[str, Any] | None:
        """Return the members of an event "measures"; None if nothing has changed.

        Args:
            pids: The processes of the server.
        """
        memory, cpu = self._read(list(pids))
        is_other = self._is_changed or _differs(memory, self._memory, 256 * 1024) or _differs(cpu, self._cpu, 2.0)
        if not is_other:
            return None
        self._is_changed, self._memory, self._cpu = False, memory, cpu
        return {
            "memory": memory,
            "cpu": cpu,
            "tools": {name: tool.described() for name, tool in self._tools.items()},
        }

    def _read(self, pids: list[int]) -> tuple[int | None, float | None]:
        """Memory in bytes and CPU time in percent of all processes; None where the system doesn't tell."""
        now = time.monotonic()
        read = {pid: usage for pid in pids if (usage := _usage(pid)) is not None}
        if not read:
            self._cpu_seconds = {}
            return None, None
        spent = [seconds - self._cpu_seconds[pid] for pid, (_, seconds) in read.items() if pid in self._cpu_seconds]
        passed = now - self._read_at
        self._read_at = now
        self._cpu_seconds = {pid: seconds for pid, (_, seconds) in read.items()}
        return sum(size for size, _ in read.values()), round(100 * sum(spent) / passed, 1) if spent else 0.0


def _usage(pid: int) -> tuple[int, float] | None:
    """Memory in bytes and CPU time in seconds of a process, by /proc (Linux)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    fields = text.rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return pages * os.sysconf("SC_PAGE_SIZE"), ticks / os.sysconf("SC_CLK_TCK")


def _percentile(ordered: list[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def _differs(one: float | None, other: float | None, least: float) -> bool:
    if one is None or other is None:
        return one is not other
    return abs(one - other) >= least
