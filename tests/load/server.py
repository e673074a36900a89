"""The server under load: `python -m tests.load.server --http|--stdio [--set JSON] PORT`. Its tool `figures` says what it holds.

JSON sets limits by their names, and constants by `module:name`, which may be given as such a name, too. `leak` is how many bytes
each call of `count` leaves behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import json
import os
import pkgutil
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from gemel import Changed, Context, Depends, Limits, Server
from gemel.protocol.limits import FixedLimits

LIMITS = Limits(
    calls=20_000,
    all_calls=20_000,
    streams=20_000,
    connections=20_000,
    sessions=20_000,
    body=32 * 1024 * 1024,
    stream_wait=2.0,
    replay_total=8 * 1024 * 1024,
)


#: A constant: a value, or the name of one.
Constant = float | str

#: Opened, it lets the functions that hold threads return.
_threads_gate = threading.Event()
_arrivals = 0


async def arrive() -> None:
    """Count a call whose function needs a thread next."""
    global _arrivals
    _arrivals += 1


Arrival = Annotated[None, Depends(arrive)]


#: In place of `FIXED_LIMITS`.
ENDLESS = FixedLimits(queued_changes=10**9, queued_change_bytes=10**12)


def nothing(*_: Any) -> bool:
    """In place of a mechanism."""
    return False


def at_once(_call: Any, give_back: Callable[[], object]) -> None:
    """In place of a mechanism that waits."""
    give_back()


class Row(msgspec.Struct):
    """An item of a large body."""

    number: int


async def may_watch(ctx: Context[Any], uri: str) -> bool:
    """Everybody may watch everything, also a prefix of many resources."""
    return True


@contextlib.contextmanager
def constants(settings: Mapping[str, Constant]) -> Iterator[None]:
    """Set what is named as `module:name` or `module:Class.name`."""
    before = []
    try:
        for path, value in settings.items():
            place, _, name = path.replace(":", ".").rpartition(".")
            owner = pkgutil.resolve_name(place)
            before.append((owner, name, getattr(owner, name)))
            setattr(owner, name, pkgutil.resolve_name(value) if isinstance(value, str) else value)
        yield
    finally:
        for owner, name, value in reversed(before):
            setattr(owner, name, value)


def build(limits: Limits = LIMITS, leak: int = 0) -> Server[Any]:
    """Return the server."""
    left_behind = []
    server: Server[Any] = Server("load", limits=limits, log_level=None, authorize_subscription=may_watch)
    gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
    inside: Counter[str] = Counter()

    @server.tool
    async def wait(gate: str, padding: str = "") -> str:
        inside[gate] += 1
        try:
            await gates[gate].wait()
        finally:
            gates.pop(gate, None)
            inside[gate] -= 1
        return gate

    @server.tool
    async def waiting(gate: str) -> int:
        return inside[gate]

    @server.tool
    async def release(gate: str) -> str:
        gates.pop(gate).set()
        return gate

    @server.tool
    async def big(ctx: Context[Any], size: int) -> str:
        await ctx.report_progress(1, 1)
        return "x" * size

    @server.tool
    async def count(ctx: Context[Any], upto: int) -> int:
        left_behind.append(b"x" * leak)
        for number in range(upto):
            await ctx.report_progress(number, upto)
        return upto

    @server.tool
    async def change(first: int, number: int, size: int = 0) -> int:
        for place in range(first, first + number):
            server.notify(Changed("resource", f"load://item/{place}?{'x' * size}" if size else f"load://item/{place}"))
            if place % 100 == 0:
                await asyncio.sleep(0)
        return number

    @server.tool
    async def typed(
        values: list[int],
        numbers: dict[str, int] | None = None,
        rows: list[Row] | None = None,
        anything: Any = None,
    ) -> int:
        return len(values)

    @server.tool(input_schema={"type": "object", "properties": {"values": {"items": {"type": "integer"}}}})
    async def by_schema(arguments: dict[str, Any]) -> int:
        return len(arguments)

    @server.tool
    def hold(seen: Arrival, text: str = "") -> int:
        _threads_gate.wait()
        return len(text)

    @server.prompt
    def hold_prompt(seen: Arrival, text: str = "") -> str:
        _threads_gate.wait()
        return "done"

    @hold_prompt.complete("text")
    def hold_completion(seen: Arrival, value: str) -> list[str]:
        _threads_gate.wait()
        return []

    @server.resource("hold://{name}")
    def hold_resource(seen: Arrival, name: str) -> str:
        _threads_gate.wait()
        return name

    @server.tool
    async def arrivals() -> int:
        return _arrivals

    @server.tool
    async def release_threads() -> str:
        _threads_gate.set()
        return "done"

    @server.tool
    async def sleep(seen: Arrival, text: str) -> int:
        asyncio.get_running_loop().call_later(3600, nothing)
        await asyncio.sleep(3600)
        return len(text)

    @server.tool
    async def fail(text: str) -> int:
        raise ValueError("no")

    @server.tool
    async def figures() -> str:
        return json.dumps(measured())

    @server.resource("load://item/{number}")
    async def item(number: int) -> str:
        return str(number)

    return server


def measured() -> dict[str, int]:
    """Return what this process holds: bytes of memory, now and at most since the last time, open files, tasks."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines())
    with contextlib.suppress(OSError):  # else the peak is that of the whole life
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return {
        "memory": _bytes(status["VmRSS"]),
        "peak": _bytes(status["VmHWM"]),
        "files": len(os.listdir("/proc/self/fd")),
        "tasks": len(asyncio.all_tasks()),
        "blocks": sys.getallocatedblocks(),
    }


def _bytes(kibibytes: str) -> int:
    return int(kibibytes.split()[0]) * 1024


if __name__ == "__main__":
    given: dict[str, Any] = json.loads(sys.argv[sys.argv.index("--set") + 1]) if "--set" in sys.argv else {}
    leak = given.pop("leak", 0)
    limits = {name: value for name, value in given.items() if ":" not in name}
    with constants({name: value for name, value in given.items() if ":" in name}):
        server = build(msgspec.structs.replace(LIMITS, **limits), int(leak))
        if "--stdio" in sys.argv:
            server.run("stdio")
        else:
            server.run("http", port=int(sys.argv[-1]), host="127.0.0.1")
