"""The life of a client's connection: opened, closed, lost, opened again; and which requests survive that."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from gemel import (
    CallError,
    CallTimeout,
    Changed,
    ChangesLost,
    Client,
    ClientGroup,
    ConnectFailed,
    ConnectionLost,
    ElicitFormParams,
    Limits,
    NotSent,
    Outcome,
    Server,
)
from tests.client.puppet import HANG_UP, SILENCE, Puppet, done, legacy, modern
from tests.jumping_clock import in_no_time
from tests.support import EraName, Outgoing

LISTED = {"resultType": "complete", "tools": [], "ttlMs": 0, "cacheScope": "private"}


def hangs_up(times: int, then: Any) -> Any:
    left = [HANG_UP] * times
    return lambda puppet, message: left.pop() if left else then


@in_no_time
async def test_a_safe_request_survives_a_loss_on_a_new_connection() -> None:
    """STDIO-08."""
    puppet = modern(tools_list=hangs_up(1, LISTED))
    async with Client(puppet) as client:
        assert await client.list_tools() == []
    assert puppet.connections == 2
    assert puppet.methods() == ["server/discover", "tools/list", "server/discover", "tools/list"]


@in_no_time
async def test_a_call_that_may_have_run_is_not_sent_again() -> None:
    """The caller is told that it may have run; the next call finds a new connection."""
    puppet = modern(tools_call=hangs_up(1, done()))
    async with Client(puppet) as client:
        with pytest.raises(ConnectionLost) as caught:
            await client.call_tool("x")
        assert caught.value.outcome is Outcome.UNKNOWN
        assert len(puppet.asked("tools/call")) == 1
        assert (await client.call_tool("x")).text == "done"
    assert puppet.connections == 2


@pytest.mark.parametrize("hint", ["readOnlyHint", "idempotentHint"])
@in_no_time
async def test_a_tool_that_says_it_may_be_called_twice_is(hint: str) -> None:
    tool = {"name": "x", "inputSchema": {"type": "object"}, "annotations": {hint: True}}
    puppet = modern(tools_list={**LISTED, "tools": [tool]}, tools_call=hangs_up(1, done()))
    async with Client(puppet) as client:
        await client.list_tools()
        assert (await client.call_tool("x")).text == "done"
    assert len(puppet.asked("tools/call")) == 2


@pytest.mark.parametrize("is_behind_proxy", [False, True])
@in_no_time
async def test_whether_it_may_be_is_known_of_listed_tools_only(is_behind_proxy: bool) -> None:
    tool = {"name": "x", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
    puppet = modern(tools_list={**LISTED, "tools": [tool]}, tools_call=hangs_up(1, done()))
    async with Client(Server.from_client(puppet) if is_behind_proxy else puppet) as client:
        with pytest.raises(CallError) as caught:
            await client.call_tool("x")
        assert caught.value.outcome is Outcome.UNKNOWN
        assert len(puppet.asked("tools/call")) == 1
        puppet.by_method["tools/call"] = hangs_up(1, done())
        await client.list_tools()
        assert (await client.call_tool("x")).text == "done"


@in_no_time
async def test_a_group_lists_tools_before_it_calls_one_so_that_it_may_repeat_it() -> None:
    tool = {"name": "x", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
    puppet = modern(tools_list={**LISTED, "tools": [tool]}, tools_call=hangs_up(1, done()))
    async with ClientGroup({"one": puppet}) as group:
        assert (await group.call_tool("x")).text == "done"


@in_no_time
async def test_repeating_has_an_end() -> None:
    """A budget, and then the plain error."""
    puppet = modern(tools_list=lambda puppet, message: HANG_UP)
    async with Client(puppet) as client:
        with pytest.raises(ConnectionLost):
            await client.list_tools()
    assert len(puppet.asked("tools/list")) == 1 + Limits().retries


@in_no_time
async def test_the_total_limit_counts_for_all_attempts_together() -> None:
    times: list[float] = []

    def answer(puppet: Puppet, message: dict[str, Any]) -> Any:
        times.append(asyncio.get_running_loop().time())

        async def hang_up() -> None:
            await asyncio.sleep(40)
            puppet.hang_up()

        puppet._start(hang_up())
        return SILENCE

    puppet = modern(tools_list=answer)
    async with Client(puppet) as client:
        start = asyncio.get_running_loop().time()
        with pytest.raises(CallTimeout):
            await client.request("tools/list", total=60)
        assert asyncio.get_running_loop().time() - start == pytest.approx(60, abs=1)
        await asyncio.sleep(100)
    assert len(times) == 2


@in_no_time
async def test_a_lost_connection_stays_lost_if_wanted() -> None:
    puppet = modern(tools_list=LISTED, tools_call=HANG_UP)
    async with Client(puppet, reconnect=False) as client:
        with pytest.raises(ConnectionLost):
            await client.call_tool("x")
        with pytest.raises(NotSent):
            await client.list_tools()
    assert puppet.connections == 1


@in_no_time
async def test_a_handshake_server_is_shaken_hands_with_again_and_told_the_level() -> None:
    """STDIO-08, LIFE-07."""
    puppet = legacy(tools_list=hangs_up(1, LISTED))
    heard: list[Any] = []
    async with Client(puppet, on_log=heard.append, log_level="error", on_change=heard.append) as client:
        await client.list_tools()
    assert puppet.methods().count("initialize") == 2
    assert puppet.methods().count("notifications/initialized") == 2
    assert puppet.asked("logging/setLevel") == [{"level": "error"}] * 2
    assert heard == [ChangesLost("the connection was opened again")]


@in_no_time
@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_no_call_leaves_on_a_connection_that_is_still_being_agreed_on(era: EraName) -> None:
    """LIFE-08: whoever comes meanwhile waits for the handshake, as the one does whose call began it."""
    greeting = "initialize" if era == "2025" else "server/discover"
    puppet = (legacy if era == "2025" else modern)(tools_call=done())
    agreed = puppet.by_method[greeting]
    answers = [agreed]
    puppet.by_method[greeting] = lambda *_: answers.pop() if answers else SILENCE
    async with Client(puppet, era=era) as client:
        puppet.hang_up()
        await puppet.until(lambda: not client.connected)
        first = asyncio.create_task(client.call_tool("x"))
        await puppet.until(lambda: puppet.methods().count(greeting) == 2)
        later = [asyncio.create_task(client.call_tool("x")) for _ in range(3)]
        for _ in range(10):
            await asyncio.sleep(0)
        assert "tools/call" not in puppet.methods()
        puppet.answer(next(one for one in reversed(puppet.came) if one["method"] == greeting), agreed)
        assert [(await call).text for call in (first, *later)] == ["done"] * 4
    assert puppet.connections == 2


async def test_a_retired_session_keeps_what_is_in_flight_there() -> None:
    """A new session is begun beside the old one, whose calls get their own end."""
    puppet = legacy(tools_call=lambda puppet, message: SILENCE if message["params"]["name"] == "slow" else done())
    async with Client(puppet, era="2025") as client:
        slow = asyncio.create_task(client.call_tool("slow"))
        await puppet.until(lambda: puppet.asked("tools/call"))
        asked, old = puppet.came[-1], puppet.channel
        session = client.session
        assert session is not None
        client._connection.retire(session, "the server forgot it")
        assert (await client.call_tool("quick")).text == "done"
        await old.send(Outgoing(msgspec.json.encode({"jsonrpc": "2.0", "id": asked["id"], "result": done("late")})))
        assert (await slow).text == "late"


async def test_a_server_that_is_gone_for_good_is_reported_after_a_few_attempts() -> None:
    """STDIO-08."""
    puppet = modern(tools_call=HANG_UP)
    async with Client(puppet) as client:
        with pytest.raises(ConnectionLost):
            await client.call_tool("x")
        puppet.by_method["server/discover"] = HANG_UP
        with pytest.raises(ConnectFailed) as caught:
            await client.call_tool("x")
        assert caught.value.outcome is Outcome.NOT_SENT
    assert puppet.connections == 1 + Limits().reconnects * 1


@in_no_time
async def test_many_waiting_calls_open_one_new_connection() -> None:
    puppet = modern(tools_list=LISTED, tools_call=HANG_UP)
    async with Client(puppet) as client:
        with pytest.raises(ConnectionLost):
            await client.call_tool("x")
        await asyncio.gather(*(client.list_tools() for _ in range(10)))
    assert puppet.connections == 2


async def test_closing_fails_what_waits_and_twice_is_fine() -> None:
    puppet = modern(tools_call=SILENCE)
    client = Client(puppet)
    await client.connect()
    calls = [asyncio.create_task(client.call_tool("x")) for _ in range(3)]
    await puppet.until(lambda: len(puppet.asked("tools/call")) >= 3)
    await asyncio.gather(client.close(), client.close())
    for call in calls:
        with pytest.raises(ConnectionLost, match="the client was closed"):
            await call
    with pytest.raises(NotSent):
        await client.call_tool("x")
    await client.close()


async def test_a_closed_client_can_connect_again() -> None:
    puppet = modern(tools_list=LISTED)
    client = Client(puppet)
    for _ in range(2):
        await client.connect()
        await client.list_tools()
        await client.close()
    assert puppet.connections == 2


async def test_connecting_twice_is_an_error_that_says_so() -> None:
    async with Client(modern()) as client:
        with pytest.raises(ConnectFailed, match="connected already"):
            await client.connect()


async def test_a_client_that_was_never_connected_says_so() -> None:
    client = Client(modern())
    with pytest.raises(NotSent, match="not connected"):
        await client.list_tools()
    with pytest.raises(NotSent, match="not connected"):
        _ = client.era


@in_no_time
async def test_a_client_may_be_closed_from_within_its_own_callbacks() -> None:
    """Nobody waits for itself."""
    clients: list[Client] = []

    async def close(_: Any) -> dict[str, Any]:
        await clients[0].close()
        return {"yes": True}

    async def told(method: str, params: dict[str, Any]) -> None:
        await clients[0].close()

    def ask(puppet: Puppet, message: dict[str, Any]) -> Any:
        form: dict[str, Any] = {"type": "object", "properties": {}}
        puppet.say({"id": 1, "method": "elicitation/create", "params": {"message": "?", "requestedSchema": form}})
        return SILENCE

    def tell(puppet: Puppet, message: dict[str, Any]) -> Any:
        puppet.say({"method": "notifications/acme"})
        return SILENCE

    ways: list[tuple[Any, dict[str, Any]]] = [(ask, {"on_elicit": close}), (tell, {"on_notification": told})]
    for behaviour, options in ways:
        async with Client(legacy(tools_call=behaviour), **options) as client:
            clients[:] = [client]
            loop = asyncio.get_running_loop()
            start = loop.time()
            with pytest.raises(ConnectionLost, match="the client was closed"):
                await client.call_tool("x")
            await client.close()
            assert loop.time() - start < Limits().teardown
        await asyncio.sleep(1)  # the first close has more to do than the second


@in_no_time
async def test_a_close_while_it_is_being_opened_again_wins() -> None:
    puppet = modern(tools_call=HANG_UP, tools_list=LISTED)
    client = Client(puppet)
    await client.connect()
    with pytest.raises(ConnectionLost):
        await client.call_tool("x")
    puppet.by_method["server/discover"] = SILENCE
    listing = asyncio.create_task(client.list_tools())
    await asyncio.sleep(1)
    await client.close()
    with pytest.raises((NotSent, ConnectFailed)):
        await listing
    assert not any(isinstance(one, Changed) for one in puppet.came)


async def test_a_question_to_a_stateless_client_is_ignored() -> None:
    """BASE-14: it is asked nothing and answers nothing."""

    def ask(puppet: Puppet, message: dict[str, Any]) -> Any:
        puppet.say({"id": 1, "method": "ping"}, {"id": "x", "method": "roots/list"})
        return done()

    def never(request: ElicitFormParams) -> None:
        raise AssertionError("it was asked")

    puppet = modern(tools_call=ask)
    async with Client(puppet, on_elicit=never, on_roots=[]) as client:
        await client.call_tool("x")
    assert not [message for message in puppet.came if "method" not in message]
