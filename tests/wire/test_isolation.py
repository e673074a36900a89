"""Several clients of one server: what one says, hears and sets is nothing to another."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from gemel import Context, Server
from tests.transports.http_rig import serving
from tests.wire import routes
from tests.wire.server import build
from tests.wire.talk import Talk

CHANNELS = ("memory", "unix", "http")
pairs = pytest.mark.parametrize("channel", CHANNELS)
both_eras = pytest.mark.parametrize("era", ["2025", "2026"])


@asynccontextmanager
async def clients(channel: str, era: str, count: int, server: Server[Any] | None = None) -> AsyncIterator[list[Talk]]:
    """So many conversations with one server, handshakes done."""
    server = server or build()
    async with AsyncExitStack() as stack:
        found: list[Talk] = []
        site = await stack.enter_async_context(serving(server)) if channel == "http" else None
        for number in range(count):
            way = routes.at_site(site) if site is not None else getattr(routes, channel)(server)
            route = await stack.enter_async_context(way)
            found.append(await Talk(route, era, f"client{number}").open())
        yield found
        for talk in found:
            await talk.route.finish()
            assert not talk.route.inbox


@pairs
async def test_a_second_handshake_does_not_overwrite_who_the_first_client_is(channel: str) -> None:
    """And a tool is told whose call it serves."""
    async with clients(channel, "2025", 2) as (one, two):
        assert '"client0"' in await one.call("whoami")
        assert '"client1"' in await two.call("whoami")
        assert '"client0"' in await one.call("whoami")


@pairs
async def test_what_a_client_can_do_counts_for_its_own_session(channel: str) -> None:
    """One client that offers forms does not make another one a client with forms."""
    server: Server[Any] = Server("asks")

    @server.tool
    async def can_ask(ctx: Context[Any]) -> str:
        return str(ctx.client_capabilities.elicitation is not None)

    capabilities: list[dict[str, Any]] = [{"elicitation": {}}, {}]
    async with AsyncExitStack() as stack:
        site = await stack.enter_async_context(serving(server)) if channel == "http" else None
        talks: list[Talk] = []
        for offered in capabilities:
            way = routes.at_site(site) if site is not None else getattr(routes, channel)(server)
            talk = Talk(await stack.enter_async_context(way), "2025")
            talk.capabilities = offered
            talks.append(await talk.open())
        assert [await talk.call("can_ask") for talk in (*talks, *talks)] == ["True", "False"] * 2


@pairs
async def test_a_log_level_counts_for_the_session_that_set_it(channel: str) -> None:
    async with clients(channel, "2025", 2, build(log_level="emergency")) as (one, two):
        assert (await one.ask("logging/setLevel", level="alert"))["result"] == {}
        assert await two.call("chatter") == "done"
        assert [heard["params"]["level"] for heard in two.heard()] == ["emergency"]
        assert await one.call("chatter") == "done"
        assert [heard["params"]["level"] for heard in one.heard()] == ["alert", "emergency"]
        assert two.heard() == []


@pairs
@both_eras
async def test_progress_goes_to_the_client_whose_request_it_is(channel: str, era: str) -> None:
    """Even with equal ids and equal tokens."""
    async with clients(channel, era, 2) as (one, two):
        told = {"name": "report", "_meta": {"progressToken": "same"}}
        first = await one.begin("tools/call", arguments={"values": [1, 2]}, **told)
        second = await two.begin("tools/call", arguments={"values": [5]}, **told)
        assert first == second
        await one.answer_to(first)
        await two.answer_to(second)
        assert [heard["params"]["progress"] for heard in one.heard()] == [1.0, 2.0]
        assert [heard["params"]["progress"] for heard in two.heard()] == [5.0]


@both_eras
async def test_progress_has_the_token_of_its_request_and_only_the_members_that_are_given(era: str) -> None:
    """Without a token of the request there is none, and no argument of the method names one."""
    server: Server[Any] = Server("reports")

    @server.tool
    async def report(ctx: Context[Any]) -> None:
        await ctx.report_progress(1)
        await ctx.report_progress(2, 3)
        await ctx.report_progress(3, 3, "done")

    async with clients("memory", era, 1, server) as (talk,):
        asked = await talk.begin("tools/call", name="report", arguments={}, _meta={"progressToken": "t"})
        await talk.answer_to(asked)
        heard = [{**message["params"], "_meta": None} for message in talk.heard()]
        assert [{name: value for name, value in params.items() if name != "_meta"} for params in heard] == [
            {"progressToken": "t", "progress": 1},
            {"progressToken": "t", "progress": 2, "total": 3},
            {"progressToken": "t", "progress": 3, "total": 3, "message": "done"},
        ]
        await talk.answer_to(await talk.begin("tools/call", name="report", arguments={}))
        assert talk.heard() == []
    assert not [name for name in inspect.signature(Context.report_progress).parameters if "token" in name]


@pairs
async def test_log_messages_go_to_the_client_whose_request_it_is(channel: str) -> None:
    async with clients(channel, "2025", 2, build(log_level="emergency")) as (one, two):
        assert await one.call("chatter") == "done"
        assert len(one.heard()) == 1
        assert two.heard() == []


@pairs
async def test_every_handshake_client_hears_of_a_changed_list(channel: str) -> None:
    """SUB-14."""
    async with clients(channel, "2025", 3) as talks:
        await talks[0].call("grow")
        for talk in talks:
            await talk.hear("notifications/tools/list_changed")


@pairs
async def test_listeners_with_one_id_on_two_connections_are_both_told(channel: str) -> None:
    """SUB-12."""
    async with clients(channel, "2026", 2) as (one, two):
        listening = [
            await talk.begin("subscriptions/listen", notifications={"toolsListChanged": True}) for talk in (one, two)
        ]
        assert listening == [1, 1]
        for talk in (one, two):
            await talk.hear("notifications/subscriptions/acknowledged")
        await one.call("grow")
        for talk in (one, two):
            told = await talk.hear("notifications/tools/list_changed")
            assert told["_meta"]["io.modelcontextprotocol/subscriptionId"] == 1
            await talk.route.cancel(1, "2026")


@pairs
@both_eras
async def test_a_cancellation_stops_only_the_own_request_of_that_id(channel: str, era: str) -> None:
    async with clients(channel, era, 2) as (one, two):
        waiting = [
            await talk.begin("tools/call", name="wait", arguments={"name": talk.info["name"]}) for talk in (one, two)
        ]
        assert waiting == [1, 1]
        for talk in (one, two):
            await talk.call("until", event=f"{talk.info['name']} begins")
        await one.route.cancel(1, era)
        await two.call("until", event="client0 is cancelled")
        await two.call("release", name="client1")
        assert "result" in await two.answer_to(1)
        assert "client1 is cancelled" not in await two.call("happened")


@pairs
@both_eras
async def test_many_clients_with_the_same_ids_each_get_their_own_answers(channel: str, era: str) -> None:
    async def chat(talk: Talk) -> None:
        for number in range(8):
            answer = await talk.ask("acme/echo", token=f"{talk.info['name']} {number}")
            assert answer["id"] == number + 1
            assert answer["result"]["echo"]["token"] == f"{talk.info['name']} {number}"

    async with clients(channel, era, 6) as talks:
        await asyncio.gather(*map(chat, talks))


@pairs
async def test_a_call_goes_on_over_another_connection_by_what_the_client_brings(channel: str) -> None:
    """STATE-04, STATE-01: the state is in the request; who brings none begins anew."""
    async with clients(channel, "2026", 2) as (one, two):
        for talk in (one, two):
            talk.capabilities = {"elicitation": {}}
        asked = (await one.ask("tools/call", name="ask_name"))["result"]
        (key,) = asked["inputRequests"]
        answers = {key: {"action": "accept", "content": {"value": "Ann"}}}
        went_on = await two.ask(
            "tools/call", name="ask_name", requestState=asked["requestState"], inputResponses=answers
        )
        assert went_on["result"]["content"][0]["text"] == "You are Ann"
        assert (await two.ask("tools/call", name="ask_name"))["result"]["resultType"] == "input_required"


@pairs
async def test_a_client_that_leaves_hurts_nobody(channel: str) -> None:
    async with clients(channel, "2025", 2, build(limits={"drain": 0.1})) as (one, two):
        await one.begin("tools/call", name="wait", arguments={"name": "w"})
        await one.call("until", event="w begins")
        await one.route.leave()
        await two.call("grow")
        await two.hear("notifications/tools/list_changed")
        one.heard()


def test_nothing_that_a_handler_calls_asks_for_a_session_id() -> None:
    for owner in (Context, Server):
        for name, method in inspect.getmembers(owner, inspect.isfunction):
            if not name.startswith("_"):
                assert "session_id" not in inspect.signature(method).parameters, name
