"""A proxy between client and server that cuts, resets, stalls, delays or garbles the stream, at any byte, either way.

Each call ends once and in time; a tool that must not run twice runs at most once; afterwards the client works again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gemel import Client, Context, ElicitFormParams, Limits, Server, ToolAnnotations
from tests.faults.bystanders import PROMPTLY, Caller, ending_of, quiet_loop
from tests.faults.proxy import Mishap, Proxy
from tests.serving import target
from tests.support import EraName

LIMITS = Limits(call_idle=4.0, connect=4.0, teardown=1.0, drain=0.2)
#: What may turn a stream into silence needs a short patience.
GARBLES = ("swap", "double", "drop", "flip")
SILENT = ("stall", *GARBLES)
SOON = Limits(call_idle=0.4, call_total=1.0, probe=0.2, connect=0.8, teardown=1.0, drain=0.2)
#: One connect may meet the mishap; the others only a machine with much to do, for which so short a patience is short.
CONNECTS = 6
BROKEN = {"ok", "lost", "unsent", "failed"}
GARBLED = {*BROKEN, "late", "bad", "error", "tool", "status", "ended"}
#: What happens, at how many places along the stream it is tried, and how calls may end. Garbled bytes may say anything.
MISHAPS: dict[str, tuple[int, set[str]]] = {
    "cut": (12, BROKEN),
    "reset": (12, BROKEN),
    "stall": (4, {*BROKEN, "late"}),
    "swap": (6, GARBLED),
    "double": (6, GARBLED),
    "drop": (6, GARBLED),
    "flip": (6, GARBLED),
}
ROUTES = {"http-2026": "2026", "http-2025": "2025", "tcp-2026": "2026", "tcp-2025": "2025"}


class Counted:
    """A server that counts what runs."""

    def __init__(self) -> None:
        self.runs: Counter[str] = Counter()
        self.server: Server[Any] = Server("counted", limits=LIMITS)
        runs = self.runs

        @self.server.tool
        async def write(key: str) -> str:
            """Not to be done twice."""
            runs[f"write {key}"] += 1
            return key

        @self.server.tool(annotations=ToolAnnotations(read_only_hint=True))
        async def read(key: str) -> str:
            runs[f"read {key}"] += 1
            return key

        @self.server.tool
        async def slow(ctx: Context, key: str) -> str:
            """Told of as it goes."""
            runs[f"slow {key}"] += 1
            for step in range(3):
                await ctx.report_progress(step, 3, "x" * 50)
                await asyncio.sleep(0)
            return key

        @self.server.tool
        async def ask(ctx: Context, key: str) -> str:
            name = await ctx.elicit("Who?", str)
            runs[f"ask {key}"] += 1
            return key + name[:0]


@asynccontextmanager
async def served(route: str, server: Server[Any]) -> AsyncIterator[int]:
    """The port of a server, over HTTP or over a plain socket."""
    async with target(server, "http" if route.startswith("http") else "tcp") as address:
        yield int(address.rpartition(":")[2].removesuffix("/mcp"))


def client_of(route: str, port: int, limits: Limits) -> Client:
    era: EraName = "2026" if ROUTES[route] == "2026" else "2025"
    url = f"http://127.0.0.1:{port}/mcp" if route.startswith("http") else f"tcp://127.0.0.1:{port}"
    return Client(url, era=era, limits=limits, on_elicit=fill_in)


def fill_in(form: ElicitFormParams) -> dict[str, str]:
    """Answer what is asked for: a byte that was changed on the way may have given it another name."""
    return dict.fromkeys(form.requested_schema.get("required") or (), "Ada")


async def converse(client: Client) -> tuple[Counter[str], list[Caller]]:
    """Some of everything, partly at once: how it ended, and the calls of tools."""
    endings = [await ending_of(client.connect())]
    while endings[-1] != "ok" and len(endings) < CONNECTS:
        endings.append(await ending_of(client.connect()))
    endings.append(await ending_of(client.list_tools()))
    callers = [Caller(client, "write", key=str(number)) for number in range(3)]
    callers += [Caller(client, "slow", key="s"), Caller(client, "read", key="r"), Caller(client, "ask", key="a")]
    endings += await asyncio.gather(*(caller.call() for caller in callers))
    return Counter(endings), callers


def check(counted: Counted, callers: list[Caller]) -> None:
    """What each caller was told agrees with what ran."""
    for caller in callers:
        caller.check()
        (ended,) = caller.endings
        key = f"{caller._tool} {caller.arguments['key']}"
        runs = counted.runs[key]
        if not key.startswith("read"):
            assert runs <= 1, f"{key} ran {runs} times"
        if ended == "ok":
            assert runs >= 1
            assert caller.answer == caller.arguments["key"]
        if ended == "unsent":
            assert runs == 0, f"{key} ran, but was reported as not sent"


async def recover(client: Client) -> list[Caller]:
    """Calls until one goes well: a line that was garbled may take the next one with it, no more."""
    callers: list[Caller] = []
    while len(callers) < 2 and not (callers and callers[-1].endings == ["ok"]):
        callers.append(Caller(client, "write", key=f"afterwards {len(callers)}"))
        await callers[-1].call()
    return callers


async def try_once(route: str, mishap: Mishap) -> tuple[Counter[str], dict[str, int]]:
    """How the calls ended while it happened, and how many bytes passed."""
    counted = Counted()
    async with served(route, counted.server) as port, Proxy(port, mishap) as proxy:
        client = client_of(route, proxy.port, SOON if mishap.kind in SILENT else LIMITS)
        try:
            endings, callers = await converse(client)
            passed = dict(proxy.passed)
            callers += await recover(client)
        finally:
            async with asyncio.timeout(PROMPTLY):
                await client.close()
    if mishap.kind not in GARBLES:
        check(counted, callers)
    if mishap.kind != "stall" or route.startswith("http"):  # a silent socket is told from a slow server by nobody
        assert callers[-1].endings == ["ok"], f"{route}, {mishap}: {callers[-1].endings}"
    return endings, passed


async def try_until_it_happens(route: str, mishap: Mishap) -> Counter[str]:
    """How the calls ended. On a busy machine those with a short patience may end before as many bytes have passed."""
    endings, _ = await try_once(route, mishap)
    for _ in range(4):
        if mishap.happened:
            break
        endings, _ = await try_once(route, mishap)
    return endings


@pytest.mark.parametrize("kind", ["delay", "drip"])
@pytest.mark.parametrize("route", ROUTES)
async def test_a_slow_or_scattered_stream_harms_nobody(route: str, kind: str) -> None:
    async with quiet_loop():
        endings, _ = await try_once(route, Mishap(kind))
    assert set(endings) == {"ok"}


@pytest.mark.parametrize("direction", ["up", "down"])
@pytest.mark.parametrize("kind", MISHAPS)
@pytest.mark.parametrize("route", ROUTES)
async def test_a_stream_that_breaks_at_any_byte_ends_each_call_once(route: str, kind: str, direction: str) -> None:
    """The places lie evenly along what is said when all goes well."""
    _, passed = await try_once(route, Mishap())
    places, allowed = MISHAPS[kind]
    mishaps = [Mishap(kind, direction, at=passed[direction] * number // places) for number in range(places)]
    async with quiet_loop():
        tried = await asyncio.gather(*(try_until_it_happens(route, mishap) for mishap in mishaps))
    for mishap, endings in zip(mishaps, tried, strict=True):
        assert mishap.happened
        assert set(endings) <= allowed, f"at byte {mishap.at}: {endings}"
