"""`ctx.step.key`, and options of steps."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hinge import Client, Context, Server

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])


@both_eras
@pytest.mark.parametrize("blocking", [False, True])
async def test_each_step_of_each_call_has_a_key_of_its_own(era: Any, blocking: bool) -> None:
    """Equal steps of one call, and the same step of two equal calls: upstream services must tell them apart."""
    server: Server[Any] = Server("steps")
    keys: list[str] = []

    def sync_tool(ctx: Context[Any]) -> str:
        def charge(amount: int) -> None:
            keys.append(ctx.sync.step.key)

        ctx.sync.step(charge, 5)
        ctx.sync.step(charge, 5)
        ctx.sync.step.options(retry=False)(charge, 7)
        return ctx.sync.elicit("Really?", str)

    async def async_tool(ctx: Context[Any]) -> str:
        async def charge(amount: int) -> None:
            keys.append(ctx.step.key)

        await ctx.step(charge, 5)
        await ctx.step(charge, 5)
        await ctx.step.options(retry=False)(charge, 7)
        return await ctx.elicit("Really?", str)

    server.tool("pay")(sync_tool if blocking else async_tool)
    async with Client(server, era=era, on_elicit=lambda request: {"value": "yes"}) as client:
        for _ in range(2):
            assert (await client.call_tool("pay")).text == "yes"
    assert len(keys) == len(set(keys)) == 6


async def test_there_is_no_key_outside_of_a_step() -> None:
    server: Server[Any] = Server("steps")

    @server.tool
    async def pay(ctx: Context[Any]) -> str:
        return ctx.step.key

    async with Client(server) as client:
        result = await client.call_tool("pay", raise_on_error=False)
        assert result.is_error


async def test_a_step_that_is_cut_short_has_the_same_key_when_it_runs_again() -> None:
    """In the stateless era the handler runs anew with the answer: the upstream service must not charge twice."""
    server: Server[Any] = Server("steps")
    keys: list[str] = []

    @server.tool
    async def pay(ctx: Context[Any]) -> str:
        async def prepare() -> None:
            keys.append(ctx.step.key)

        async def charge() -> None:
            keys.append(ctx.step.key)
            if len(keys) == 2:
                await asyncio.get_running_loop().create_future()

        await ctx.step(prepare)
        _, answer = await asyncio.gather(ctx.step(charge), ctx.elicit("Really?", str))
        return answer

    async with Client(server, era="2026", on_elicit=lambda request: {"value": "yes"}) as client:
        assert (await client.call_tool("pay")).text == "yes"
    prepared, cut_short, again = keys
    assert cut_short == again != prepared


class Bank:
    """A connection, of which each round has another one."""


@pytest.mark.parametrize("values", [(5, 7), (Path("a"), Path("b")), ({3, 1}, {3, 2})], ids=["numbers", "paths", "sets"])
@pytest.mark.parametrize("beside", ["context", "connection", "function"])
async def test_a_step_is_known_by_the_values_of_its_arguments(beside: str, values: tuple[object, object]) -> None:
    """Also in a round that takes the steps in another order, and has other objects beside them."""
    server: Server[Any] = Server("steps")
    rounds: list[dict[str, str]] = []
    objects: list[object] = []  # kept, so that no two of them have one address

    async def charge(value: object, *others: object) -> str:
        return f"{value} in round {len(rounds)}"

    @server.tool
    async def pay(ctx: Context[Any]) -> str:
        rounds.append({})
        for value in values if len(rounds) == 1 else reversed(values):
            objects.append({"context": ctx, "connection": Bank(), "function": lambda: None}[beside])
            rounds[-1][str(value)] = await ctx.step(charge, value, objects[-1])
        return await ctx.elicit("Really?", str)

    async with Client(server, era="2026", on_elicit=lambda request: {"value": "yes"}) as client:
        assert (await client.call_tool("pay")).text == "yes"
    first, second = rounds
    assert first == second == {str(value): f"{value} in round 1" for value in values}
