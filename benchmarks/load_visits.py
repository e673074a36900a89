"""The load of clients that come and go: each connects, lists the tools, calls one and leaves, so many at once.

They are Gemel's clients, so that every server gets the same requests. A call that is counted is one such visit. Prints what
`load_http.py` prints; run it through `cases.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from typing import Any

from benchmarks.clocks import cpu_seconds
from gemel import Client


class Visits:
    """What the visitors share: the options, the time, the counter."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.running = True
        self.times: list[float] = []
        #: Set when there were as many visits as there are clients at once.
        self.enough = asyncio.Event()

    async def visit(self, number: int) -> None:
        options: Any = {"era": self.options.era} if self.options.era else {}
        async with Client(f"http://127.0.0.1:{self.options.port}/mcp", **options) as client:
            tools = await client.list_tools()
            assert len(tools) == self.options.tools, tools
            for call in range(self.options.calls):
                result = await client.call_tool("add", {"a": number + call, "b": 7})
                assert result.text == str(number + call + 7), result

    async def visitor(self, number: int) -> None:
        while self.running:
            begin = time.perf_counter()
            await self.visit(number)
            self.times.append(time.perf_counter() - begin)
            number += 1000
            if len(self.times) >= self.options.connections:
                self.enough.set()


async def measure(options: argparse.Namespace) -> dict[str, float]:
    """Let visitors come; when each place was taken once, count them for the given time, and at least as many again.

    The server's CPU time is read at the same two moments.
    """
    visits = Visits(options)
    async with asyncio.TaskGroup() as group:
        for number in range(options.connections):
            group.create_task(visits.visitor(number))
        await visits.enough.wait()
        cpu, own, begin = cpu_seconds(options.pid), time.process_time(), time.perf_counter()
        visits.times.clear()
        visits.enough.clear()
        await asyncio.sleep(options.seconds)
        await visits.enough.wait()  # a slow server on a busy machine
        times = sorted(visits.times)
        result = {
            "calls": len(times),
            "seconds": time.perf_counter() - begin,
            "cpu": cpu_seconds(options.pid) - cpu,
            "driver_cpu": time.process_time() - own,
        }
        visits.running = False
    return result | {"p50": times[len(times) // 2], "p99": times[int(len(times) * 0.99)]}


def main() -> None:
    """Read the options, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--pid", type=int, action="append", required=True, help="a process of the server (repeatable)")
    parser.add_argument("--era", help="of the clients; by default they find it out")
    parser.add_argument("--tools", type=int, default=4, help="how many tools there are")
    parser.add_argument("--calls", type=int, default=1, help="calls of each visit")
    parser.add_argument("--connections", type=int, default=8, help="clients at once")
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    import uvloop

    print(json.dumps(uvloop.run(measure(options))))


if __name__ == "__main__":
    main()
