"""`ctx.step.key`, and options of steps."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from gemel import Client, Context, GemelError, Server

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


@pytest.mark.parametrize("after", [False, True])
async def test_there_is_no_key_outside_of_a_step(after: bool) -> None:
    server: Server[Any] = Server("steps")

    @server.tool
    async def pay(ctx: Context[Any], after: bool) -> str:
        if after:
            await ctx.step(lambda: ctx.step.key)
        return ctx.step.key

    async with Client(server) as client:
        result = await client.call_tool("pay", {"after": after}, raise_on_error=False)
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
    """A connection, of which each round has another one; no two are shown alike."""

    numbers = itertools.count()

    def __init__(self) -> None:
        self.number = next(Bank.numbers)

    def __repr__(self) -> str:
        return f"<connection {self.number}>"

    def balance(self) -> None: ...


@pytest.mark.parametrize(
    "values",
    [(5, 7), (Path("a"), Path("b")), ({3, 1}, {3, 2}), (len, sum)],
    ids=["numbers", "paths", "sets", "functions"],
)
@pytest.mark.parametrize("beside", ["context", "connection", "function", "method"])
@pytest.mark.parametrize("named", [False, True])
async def test_a_step_is_known_by_the_values_of_its_arguments(
    beside: str, values: tuple[object, object], named: bool
) -> None:
    """Also in a round that takes the steps in another order, and has other objects beside them."""
    server: Server[Any] = Server("steps")
    rounds: list[dict[str, str]] = []
    objects: list[object] = []  # kept, so that no two of them have one address

    async def charge(value: object, other: object) -> str:
        return f"{value} in round {len(rounds)}"

    @server.tool
    async def pay(ctx: Context[Any]) -> str:
        rounds.append({})
        for value in values if len(rounds) == 1 else reversed(values):
            bank = Bank()
            others = {"context": ctx, "connection": bank, "function": lambda: None, "method": bank.balance}
            objects.append(others[beside])
            if named:
                rounds[-1][str(value)] = await ctx.step(charge, value=value, other=objects[-1])
            else:
                rounds[-1][str(value)] = await ctx.step(charge, value, objects[-1])
        return await ctx.elicit("Really?", str)

    async with Client(server, era="2026", on_elicit=lambda request: {"value": "yes"}) as client:
        assert (await client.call_tool("pay")).text == "yes"
    first, second = rounds
    assert first == second == {str(value): f"{value} in round 1" for value in values}


@both_eras
async def test_a_step_may_have_arguments_that_json_can_not_represent(era: Any) -> None:
    server: Server[Any] = Server("steps")
    seats: list[Any] = []

    def reserve(seat: dict[tuple[int, int], str]) -> int:
        seats.append(seat)
        return len(seats)

    @server.tool
    async def book(ctx: Context[Any]) -> str:
        number = await ctx.step(reserve, {(1, 2): "Ada"})
        return f"{await ctx.elicit('Really?', str)} {number}"

    async with Client(server, era=era, on_elicit=lambda request: {"value": "yes"}) as client:
        assert (await client.call_tool("book")).text == "yes 1"
    assert seats == [{(1, 2): "Ada"}]


@both_eras
async def test_a_result_that_json_can_not_represent_is_an_error_that_names_the_step(era: Any) -> None:
    server: Server[Any] = Server("steps")

    def connect() -> Any:
        return object()

    @server.tool
    async def pay(ctx: Context[Any]) -> str:
        with pytest.raises(GemelError) as caught:
            await ctx.step(connect)
        return str(caught.value)

    async with Client(server, era=era) as client:
        told = (await client.call_tool("pay")).text
    assert "connect): JSON can't represent its result: " in told
