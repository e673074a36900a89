"""Clients lent one at a time: reused, looked at, replaced, bounded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gemel import Client, ClientPool, ConnectFailed, ConnectionLost, DefinitionError, Limits, NotSent, Server
from tests.client.puppet import SILENCE, Puppet, discovered, done
from tests.transports.scripted_http import until


def puppet() -> Puppet:
    return Puppet({"server/discover": discovered(), "tools/call": done()})


def adding() -> Server[Any]:
    server: Server[Any] = Server("one")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    return server


async def test_a_client_that_came_back_is_lent_again() -> None:
    target = puppet()
    async with ClientPool(target, 3) as pool:
        for _ in range(5):
            async with pool.client() as client:
                await client.call_tool("x")
        assert (target.connections, pool.health.opened, pool.health.free) == (1, 1, 1)
        assert (await pool.call_tool("x")).text == "done"
    assert pool.health.free == 0


async def test_each_caller_has_a_client_for_himself_and_no_more_are_opened_than_the_size() -> None:
    seen: set[Client] = set()
    most = 0

    async def call(pool: ClientPool) -> None:
        nonlocal most
        async with pool.client() as client:
            assert client not in seen
            seen.add(client)
            most = max(most, len(seen))
            await client.call_tool("add", {"a": 1, "b": 2})
            await asyncio.sleep(0.001)
            seen.discard(client)

    async with ClientPool(adding(), 4) as pool:
        await asyncio.gather(*(call(pool) for _ in range(30)))
        assert (most, pool.health.opened, pool.health.lent) == (4, 4, 0)


async def test_a_client_that_lay_idle_is_asked_for_a_sign_of_life_before_it_is_lent() -> None:
    target = puppet()
    async with ClientPool(target, 2, check_after=0.0, limits=Limits(probe=0.5)) as pool:
        async with pool.client():
            pass
        before = len(target.asked("server/discover"))
        async with pool.client():
            assert len(target.asked("server/discover")) == before + 1
        answers = iter([SILENCE, discovered()])
        target.by_method["server/discover"] = lambda puppet, message: next(answers)
        async with pool.client() as client:
            await client.call_tool("x")
        assert (target.connections, pool.health.discarded) == (2, 1)


async def test_a_client_that_was_lost_is_not_lent_again() -> None:
    target = puppet()
    async with ClientPool(target, 2) as pool:
        async with pool.client() as client:
            target.hang_up()
            await until(lambda: not client.connected)
        assert (pool.health.free, pool.health.discarded) == (0, 1)
        async with pool.client() as other:
            assert other is not client
            await other.call_tool("x")


async def test_what_nobody_needed_for_a_while_is_closed() -> None:
    async with ClientPool(puppet(), 3, idle=0.05) as pool:
        async with pool.client() as first, pool.client() as second:
            pass
        await until(lambda: pool.health.free == 0)
        assert not first.connected
        assert not second.connected
        async with pool.client() as third:
            await third.call_tool("x")


async def test_who_waits_for_too_long_or_in_too_long_a_line_is_told_so() -> None:
    """Every queue is bounded, every wait has a limit."""
    async with ClientPool(puppet(), 1, wait=0.1, queue=1) as pool, pool.client():
        waiting = asyncio.ensure_future(pool.call_tool("x"))
        await until(lambda: pool.health.waiting == 1)
        with pytest.raises(NotSent, match="All 1 clients are lent, and 1 callers wait already"):
            await pool.call_tool("x")
        with pytest.raises(NotSent, match=r"None of 1 clients came back within 0\.1 seconds"):
            await waiting


async def test_a_client_that_cannot_be_opened_takes_no_place() -> None:
    bad = Puppet()
    async with ClientPool(bad, 1) as pool:
        for _ in range(3):
            with pytest.raises(ConnectFailed, match="refused initialize"):
                await pool.call_tool("x")
        bad.by_method.update(puppet().by_method)
        assert (await pool.call_tool("x")).text == "done"


async def test_a_caller_that_gives_up_while_a_client_is_being_opened_leaves_nothing() -> None:
    silent = Puppet({"server/discover": lambda puppet, message: SILENCE})
    async with ClientPool(silent, 1) as pool:
        calling = asyncio.ensure_future(pool.call_tool("x"))
        await until(lambda: silent.connections == 1)
        calling.cancel()
        await asyncio.wait([calling])
        assert pool.health.lent == 0
        silent.by_method.update(puppet().by_method)
        assert (await pool.call_tool("x")).text == "done"


async def test_closing_ends_the_calls_of_lent_clients() -> None:
    target = Puppet({"server/discover": discovered(), "tools/call": lambda puppet, message: SILENCE})
    pool = ClientPool(target, 2)
    async with pool:
        calling = asyncio.ensure_future(pool.call_tool("x"))
        await until(lambda: bool(target.asked("tools/call")))
        await pool.close()
        with pytest.raises(ConnectionLost):
            await calling
    with pytest.raises(NotSent, match="The pool is closed"):
        await pool.call_tool("x")


def test_a_pool_has_a_size() -> None:
    with pytest.raises(DefinitionError, match="size=0 is not possible: use a whole number, 1 or more"):
        ClientPool(puppet(), 0)


async def test_a_pool_serves_any_target_with_the_options_of_a_client() -> None:
    async with ClientPool(adding(), 2, era="2025") as pool:
        assert (await pool.call_tool("add", {"a": 1, "b": 2})).text == "3"
        async with pool.client() as client:
            assert client.era == "2025"
