"""What the workers are doing, in memory that all of them share, and as the JSON of `/health`."""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple

import msgspec

#: `waiting` is the back-off before the next start. The order is that of the numbers in the memory.
State = Literal["waiting", "starting", "ready", "draining", "hung"]
_STATES: tuple[State, ...] = ("waiting", "starting", "ready", "draining", "hung")

#: What the supervisor writes: process id, state, restarts, start; and what the worker writes: heartbeat, calls.
_PROCESS = struct.Struct("=iBxxxId")
_HEARTBEAT = struct.Struct("=dI")
_SIZE = 64
_HALF = 32


class WorkerState(NamedTuple):
    """One worker. Its number stays the same when the process is replaced."""

    worker: int
    pid: int
    state: State
    restarts: int
    #: When the process started, in seconds since 1970.
    started: float
    #: When its event loop last turned, by the monotonic clock, which all processes share.
    heartbeat: float
    #: HTTP requests in flight, with open streams.
    calls: int


class StatusBoard:
    """The states of all workers. Made before they are forked: it is memory that they share.

    Args:
        count: The number of workers.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._memory = mmap.mmap(-1, count * _SIZE)

    def set_process(self, worker: int, pid: int, state: State, restarts: int, started: float) -> None:
        """Write what the supervisor knows of a worker."""
        _PROCESS.pack_into(self._memory, worker * _SIZE, pid, _STATES.index(state), restarts, started)

    def beat(self, worker: int, calls: int) -> None:
        """Write that the event loop of a worker turns, and how many calls are in flight."""
        _HEARTBEAT.pack_into(self._memory, worker * _SIZE + _HALF, time.monotonic(), calls)

    def read(self) -> list[WorkerState]:
        """Return the states of all workers."""
        states = []
        for worker in range(self._count):
            pid, state, restarts, started = _PROCESS.unpack_from(self._memory, worker * _SIZE)
            heartbeat, calls = _HEARTBEAT.unpack_from(self._memory, worker * _SIZE + _HALF)
            states.append(WorkerState(worker, pid, _STATES[state], restarts, started, heartbeat, calls))
        return states


def own_state(started: float, calls: int, *, stopping: bool) -> WorkerState:
    """Return the state of a process that serves alone."""
    return WorkerState(0, os.getpid(), "draining" if stopping else "ready", 0, started, time.monotonic(), calls)


def describe_health(workers: Sequence[WorkerState], *, stopping: bool) -> bytes:
    """Write the JSON of `/health`: everybody may read it, so it has counts and states only.

    Args:
        workers: All workers.
        stopping: Whether the process that answers is about to end.
    """
    ready = sum(each.state == "ready" for each in workers)
    status = "stopping" if stopping else "ok" if ready == len(workers) else "degraded"
    now = time.monotonic()
    listed = [
        {
            "worker": each.worker,
            "pid": each.pid,
            "state": each.state,
            "restarts": each.restarts,
            "started": datetime.fromtimestamp(each.started, UTC).isoformat(timespec="seconds"),
            "heartbeat_seconds": round(max(0.0, now - each.heartbeat), 1) if each.heartbeat else None,
            "calls": each.calls,
        }
        for each in workers
    ]
    return msgspec.json.encode({"status": status, "ready": ready, "workers": listed})
