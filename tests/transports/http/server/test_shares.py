"""Bounds over all callers: whoever takes most of them is in nobody's way but their own."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import pytest

from gemel import Limits, Principal, Server
from gemel.http1.asgi import Scope
from gemel.protocol.http.request import Headers
from tests.transports.http.server.test_door import something_came
from tests.transports.http.server.test_run import port_of
from tests.transports.http_rig import (
    JSON_HEADERS,
    Log,
    Site,
    Wire,
    handshake_call,
    initialize,
    make_server,
    modern,
    modern_call,
    process,
    serving,
    text_of,
)

PING = {"jsonrpc": "2.0", "id": 9, "method": "ping"}
FLOOD = "127.0.0.2"


@pytest.fixture
def log() -> Log:
    return Log()


async def lives(site: Site, session: Mapping[str, str]) -> bool:
    return (await site.ask(session, PING)).status == 200


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


def through_proxy(address: str) -> dict[str, str]:
    """What a trusted proxy adds to the request of a caller."""
    return {"X-Forwarded-For": address}


async def test_a_flood_of_sessions_ends_those_of_its_own_address(log: Log) -> None:
    async with serving(make_server(log, limits=Limits(sessions=20))) as site:
        flood = site.at(FLOOD)
        mine = [await site.session() for _ in range(3)]
        theirs = [await flood.session() for _ in range(60)]
        assert all([await lives(site, session) for session in mine])
        assert [await lives(flood, session) for session in theirs[-17:]] == [True] * 17
        assert not any([await lives(flood, session) for session in theirs[:-17]])
        more = [await site.session() for _ in range(5)]
        assert all([await lives(site, session) for session in (*mine, *more)])


async def test_the_session_that_was_unused_for_longest_gives_way(log: Log) -> None:
    async with serving(make_server(log, limits=Limits(sessions=3))) as site:
        first, second, third = [await site.session() for _ in range(3)]
        assert await lives(site, first)
        fourth = await site.at(FLOOD).session()
        assert [await lives(site, session) for session in (first, second, third, fourth)] == [True, False, True, True]


async def test_sessions_in_use_give_way_to_callers_with_fewer_only(log: Log) -> None:
    async with serving(make_server(log, limits=Limits(sessions=4))) as site:
        flood = site.at(FLOOD)
        calls = [await flood.call(await flood.session(), handshake_call("wait", at)) for at in range(4)]
        await until(lambda: log.events.count("wait begins") == 4)
        assert (await flood.ask(JSON_HEADERS, initialize())).status == 503
        mine = [await site.session() for _ in range(2)]
        ended = [(await call.reply()).json() for call in calls[:2]]
        assert ["error" in reply for reply in ended] == [True, True]
        assert (await site.ask(JSON_HEADERS, initialize())).status == 200, "the caller's own idle session makes room"
        assert not await lives(site, mine[0])
        log.gate.set()
        assert [text_of((await call.reply()).json()) for call in calls[2:]] == ["wait", "wait"]


async def test_a_handshake_that_fails_ends_no_session(log: Log) -> None:
    async with serving(make_server(log, limits=Limits(sessions=2))) as site:
        sessions = [await site.session() for _ in range(2)]
        bad = initialize()
        bad["params"] = {"protocolVersion": 7}
        for _ in range(3):
            assert "error" in (await site.at(FLOOD).ask(JSON_HEADERS, bad)).json()
        assert all([await lives(site, session) for session in sessions])


async def test_a_network_of_ipv6_is_one_caller(log: Log) -> None:
    server = make_server(log, limits=Limits(sessions=10))
    async with serving(server, proxies=["127.0.0.1"]) as site:
        mine = [await site.session(**through_proxy("2001:db8:1::1")) for _ in range(2)]
        for number in range(30):
            await site.session(**through_proxy(f"2001:db8:2:0:{number:x}::1"))
        assert all([await lives(site, session) for session in mine])


async def test_callers_of_a_proxy_that_is_not_trusted_are_one(log: Log) -> None:
    async with serving(make_server(log, limits=Limits(sessions=2))) as site:
        first, second = [await site.session(**through_proxy(f"192.0.2.{at}")) for at in range(2)]
        third = await site.session(**through_proxy("192.0.2.7"))
        assert [await lives(site, session) for session in (first, second, third)] == [False, True, True]


async def test_a_principal_has_one_share_wherever_it_calls_from(log: Log) -> None:
    def authenticate(scope: Scope, headers: Headers) -> Principal:
        return Principal(headers.get("x-user", ""))

    async with serving(make_server(log, limits=Limits(sessions=6)), authenticate=authenticate) as site:
        ann = [await site.session(**{"X-User": "ann"}) for _ in range(2)]
        for number in range(20):
            await site.at(f"127.0.0.{number + 2}").session(**{"X-User": "mallory"})
        assert all([await lives(site, session) for session in ann])


# ---------------------------------------------------------------- streams of the stateless era


async def listen(site: Site, **more: str) -> tuple[int, Wire]:
    """Open a subscription and wait until it is acknowledged, or refused. The status, and the rest of the stream."""
    wire = await site.call(*modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}, **more}))
    return (await wire.head()).status, wire


def statuses(opened: Iterable[tuple[int, Wire]]) -> list[int]:
    return [status for status, _ in opened]


@pytest.mark.parametrize(
    ("limits", "more"),
    [({"streams": 6}, {}), ({"subscription_bytes": 6 * 12_800}, {"padding": "x" * 10_000})],
    ids=["number", "bytes"],
)
async def test_a_flood_of_streams_loses_its_oldest_to_others(
    log: Log, limits: dict[str, Any], more: dict[str, str]
) -> None:
    async with serving(make_server(log, limits=Limits(**limits))) as site:
        flood = [await listen(site.at(FLOOD), **more) for _ in range(8)]
        assert statuses(flood) == [200] * 6 + [503] * 2
        mine = [await listen(site, **more) for _ in range(3)]
        assert statuses(mine) == [200] * 3
        for _, wire in flood[:3]:
            assert (await wire.message())["method"] == "notifications/subscriptions/acknowledged"
            assert "result" in await wire.message(), "it ends regularly"
        assert (await listen(site, **more))[0] == 503
        assert (await listen(site.at(FLOOD), **more))[0] == 503, "nobody takes turns"


# ---------------------------------------------------------------- the first revision


async def test_a_flood_of_sse_sessions_loses_its_oldest_idle_one_to_others(log: Log) -> None:
    async with serving(make_server(log, limits=Limits(sessions=4)), sse_path="/sse") as site:

        async def opened(site: Site) -> tuple[int, Wire]:
            wire = await site.call({"Accept": "text/event-stream"}, b"", "GET", "/sse")
            return (await wire.head()).status, wire

        flood = [await opened(site.at(FLOOD)) for _ in range(5)]
        assert statuses(flood) == [200] * 4 + [503]
        mine = [await opened(site) for _ in range(3)]
        assert statuses(mine) == [200, 200, 503]
        for _, wire in flood[:2]:
            assert await wire.event() is not None, "where messages go"
            assert await wire.event() is None


# ---------------------------------------------------------------- connections and bodies


PROGRAM = """
import resource
from gemel import Server

resource.setrlimit(resource.RLIMIT_NOFILE, (128, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
server = Server("small")

@server.tool
def add(a: int, b: int) -> int:
    return a + b

server.run("http", port=0)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="files have no limit")
@pytest.mark.parametrize("kind", ["idle", "half a head", "listening"])
async def test_connections_of_one_address_leave_room_for_others(tmp_path: Path, kind: str) -> None:
    """Whatever they do, they don't take all the files that the process may open."""
    async with process(tmp_path, PROGRAM) as running:
        site = Site(await port_of(running))
        flood, opened = site.at(FLOOD), 0
        try:
            for _ in range(300):
                if kind == "listening":
                    with suppress(OSError, EOFError):
                        opened += (await listen(flood))[0] == 200
                    continue
                wire = await flood.open()
                if kind == "half a head":
                    wire.writer.write(b"POST /mcp HTTP/1.1\r\nHost: 127")
            for at in range(3):
                reply = await site.ask(*modern_call("add", a=at, b=2))
                assert text_of(reply.json()) == str(at + 2)
            if kind == "listening":
                assert 80 < opened < 128, "its own streams are not ended for more of them"
        finally:
            site.close()


@pytest.mark.parametrize("engine", ["gemel", "uvicorn"])
async def test_bodies_of_one_address_leave_room_for_those_of_others(
    log: Log, engine: Literal["gemel", "uvicorn"]
) -> None:
    """Those that arrive, and those whose calls run."""
    limits = Limits(body=1 << 20, bodies=8 << 20)
    async with serving(make_server(log, limits=limits), requests=1000, engine=engine) as site:
        headers, body = modern_call("add", a=1, b=2)
        padded = json.dumps(body).encode() + b" " * (900 << 10)
        wires = [await site.at(FLOOD).open() for _ in range(8)]
        for wire in wires:
            await wire.send("POST", {**headers, "Content-Length": str(1 << 20)}, padded)
        await until(lambda: sum(something_came(wire.reader) for wire in wires) >= 5)
        for _ in range(2):
            assert (await site.ask(headers, padded)).status == 200
        assert (await site.at(FLOOD).ask(headers, body)).status == 200, "small ones are always read"


# ---------------------------------------------------------------- calls that wait


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_calls_that_wait_for_a_tool_give_way_to_those_of_others(era: str) -> None:
    """With concurrency= and waiting=, the latest call of the caller with most of them is told to come back."""
    gate = asyncio.Event()
    server: Server[Any] = Server("narrow")

    @server.tool(concurrency=1, waiting=3)
    async def narrow() -> str:
        await gate.wait()
        return "done"

    async with serving(server) as site:

        async def call(site: Site, number: int) -> Wire:
            if era == "2025":
                return await site.call(await site.session(), handshake_call("narrow", number))
            return await site.tool("narrow", number)

        flood = [await call(site.at(FLOOD), number) for number in range(4)]
        refused = await (await call(site.at(FLOOD), 4)).reply()
        mine = [await call(site, number) for number in range(2)]
        gave_way = (await flood[3].reply()).json()["error"]
        assert gave_way == refused.json()["error"] | {"data": gave_way["data"]}
        assert "narrow" in gave_way["message"]
        assert (await mine[1].reply()).json()["error"]["code"] == gave_way["code"], "it would have more than the other"
        gate.set()
        replies = [(await wire.reply()).json() for wire in (*flood[:3], mine[0])]
        assert [text_of(reply) for reply in replies] == ["done"] * 4
