"""Very many calls at once on one client and one server, measured in a process of its own: `crowd ROUTE COUNT`.

Prints one JSON object: what came back in which order, and how much memory the crowd took at its height.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from gemel import Client, Context, Limits, Server
from tests.support import EraName
from tests.transports.http_rig import serving

LIMITS = Limits(pending=20_000, calls=20_000, call_idle=120.0)
ROUTES: dict[str, tuple[str, EraName]] = {
    f"{channel}-{era}": (channel, era) for channel in ("memory", "stdio", "http") for era in ("2025", "2026")
}


def build() -> Server[Any]:
    """A server with one tool, which says who is served when."""
    server: Server[Any] = Server("crowd", limits=LIMITS)
    served = 0

    @server.tool
    async def turn(ctx: Context, n: int) -> list[int]:
        nonlocal served
        served += 1
        return [n, served, int(str(ctx.request_id))]

    return server


@asynccontextmanager
async def connected(route: str) -> AsyncIterator[Client]:
    channel, era = ROUTES[route]
    options: dict[str, Any] = {"era": era, "limits": LIMITS, "check_results": False}
    if channel == "http":
        async with serving(build()) as site, Client(f"http://127.0.0.1:{site.port}/mcp", **options) as client:
            yield client
    else:
        target: Any = build() if channel == "memory" else [sys.executable, "-m", "tests.faults.crowd"]
        async with Client(target, **options) as client:
            yield client


async def crowd(client: Client, count: int) -> dict[str, Any]:
    """`count` calls at once: who got which answer, in which order they were served, had ids, and ended."""
    ended: list[int] = []

    async def one(n: int) -> list[int]:
        result = await client.call_tool("turn", {"n": n})
        ended.append(n)
        answer: list[int] = json.loads(result.text)
        return answer

    answers = await asyncio.gather(*(one(n) for n in range(count)))
    ids = [answer[2] for answer in answers]
    return {
        "own": [answer[0] for answer in answers] == list(range(count)),
        "ids": ids == sorted(set(ids)),
        "served": [answer[1] for answer in answers] == list(range(answers[0][1], answers[0][1] + count)),
        "ended": ended == list(range(count)),
        "left": len(client.session.connection.outgoing) if client.session else 0,
    }


def peak() -> int:
    """The most memory that this process ever had, in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


async def main(route: str, count: int) -> None:
    async with connected(route) as client:
        await crowd(client, 100)
        before = peak()
        first = await crowd(client, count)
        height = peak()
        await crowd(client, count)
        print(json.dumps({**first, "each": (height - before) / count, "again": (peak() - height) / count}))


if __name__ == "__main__":
    if sys.argv[1:]:
        asyncio.run(main(sys.argv[1], int(sys.argv[2])))
    else:
        build().run()
