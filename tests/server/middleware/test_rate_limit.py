"""A rate limit: a bucket for each caller, filled by the clock; what counts, who is who, how many are remembered."""

from __future__ import annotations

from typing import Any

import pytest

from gemel import Client, Context, DefinitionError, PeerError, RateLimit, Server
from tests.server.bare_end import BareEnd, Era
from tests.server.middleware.clocks import Hand, by_hand
from tests.support import Origin

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])


def limited(limit: RateLimit) -> Server[Any]:
    server: Server[Any] = Server("limited", middleware=[limit])

    @server.tool
    async def add(a: int) -> str:
        return str(a)

    @server.tool
    async def twice(ctx: Context) -> str:
        return (await ctx.call_tool("add", {"a": 1})).text + (await ctx.call_tool("add", {"a": 2})).text

    return server


@both_eras
async def test_a_burst_passes_then_as_many_as_the_clock_allows(era: Era) -> None:
    """ERR-14: the refusal says when to come back."""
    clock = Hand()
    async with BareEnd(limited(by_hand(RateLimit(2, burst=3), clock)), era) as end:
        for _ in range(3):
            assert (await end.call_tool("add", a=1))["content"][0]["text"] == "1"
        error = await end.refusal("tools/call", {"name": "add", "arguments": {"a": 1}})
        assert (error["code"], error["data"]) == (429, {"retryAfterMs": 500})
        assert error["message"] == "Too many requests: the limit is 2 per second"
        clock.now += 0.5
        await end.call_tool("add", a=1)
        await end.refusal("tools/call", {"name": "add", "arguments": {"a": 1}})
        clock.now += 3600
        for _ in range(3):
            await end.call_tool("add", a=1)
        await end.refusal("tools/call", {"name": "add", "arguments": {"a": 1}})


@both_eras
async def test_lists_don_t_count_and_neither_does_what_a_handler_asks_of_its_own_server(era: Era) -> None:
    async with BareEnd(limited(RateLimit(0.001, burst=1)), era) as end:
        for _ in range(3):
            await end.ask("tools/list")
        assert (await end.call_tool("twice"))["content"][0]["text"] == "12"
        await end.refusal("tools/call", {"name": "add", "arguments": {"a": 1}})
        await end.ask("tools/list")


async def test_what_counts_can_be_said() -> None:
    async with BareEnd(limited(RateLimit(0.001, burst=1, methods={"tools/list"}))) as end:
        await end.ask("tools/list")
        await end.refusal("tools/list")
        await end.call_tool("add", a=1)
        await end.call_tool("add", a=1)


async def test_each_caller_has_a_bucket_of_his_own_by_name_by_address_by_connection() -> None:
    server = limited(RateLimit(0.001, burst=1))
    callers = [
        Origin(principal="alice", transport={"client": ("10.0.0.1", 1)}),
        Origin(principal="bob", transport={"client": ("10.0.0.1", 2)}),
        Origin(transport={"client": ("10.0.0.1", 3)}),
        Origin(transport={"client": ("10.0.0.2", 3)}),
        Origin(transport={"client": ("2001:db8:1::1", 3)}),
        Origin(transport={"client": None}),
        Origin(),
        Origin(),
    ]
    again = [
        Origin(principal="alice"),
        Origin(transport={"client": ("10.0.0.2", 9)}),
        Origin(transport={"client": ("::ffff:10.0.0.2", 9)}),
        Origin(transport={"client": ("2001:db8:1::ffff:1", 4)}),  # the same network
        Origin(transport={}),
    ]
    call = {"name": "add", "arguments": {"a": 1}}
    for origin in callers:
        async with BareEnd(server, origin=origin) as end:
            await end.ask("tools/call", call)
            await end.refusal("tools/call", call)
    for origin in again:
        async with BareEnd(server, origin=origin) as end:
            await end.refusal("tools/call", call)


async def test_by_says_who_is_who_and_none_is_not_counted() -> None:
    names = iter(["a", "b", None, None, "a"])
    async with BareEnd(limited(RateLimit(0.001, burst=1, by=lambda ctx: next(names)))) as end:
        for _ in range(4):
            await end.call_tool("add", a=1)
        await end.refusal("tools/call", {"name": "add", "arguments": {"a": 1}})


async def test_only_the_callers_last_seen_are_remembered() -> None:
    limit = RateLimit(0.001, burst=1, callers=100, by=lambda ctx: ctx.request_id)
    async with BareEnd(limited(limit)) as end:
        for _ in range(300):
            await end.call_tool("add", a=1)
    assert len(limit._buckets) == 100


@pytest.mark.parametrize("options", [{"rate": 0}, {"rate": -1}, {"rate": 1, "burst": 0.5}, {"rate": 1, "callers": 0}])
def test_a_limit_that_cannot_be_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match="is not possible"):
        RateLimit(**options)
    with pytest.raises(DefinitionError, match="write methods="):
        RateLimit(1, methods="tools/call")


async def test_a_client_is_told_in_words() -> None:
    async with Client(limited(RateLimit(0.001, burst=1))) as client:
        await client.call_tool("add", {"a": 1})
        with pytest.raises(PeerError, match="Too many requests"):
            await client.call_tool("add", {"a": 1})
