"""Hearing of changes: asked for in the stateless era, unasked before; kept up after losses, ended with its client."""

from __future__ import annotations

import asyncio
import gc
from typing import Any, cast

import pytest

from gemel import (
    CallTimeout,
    Changed,
    ChangesLost,
    Client,
    ConnectionLost,
    InvalidResponse,
    Limits,
    PeerError,
    SessionEnded,
    Subscription,
)
from tests.client.puppet import HANG_UP, META, SILENCE, Error, Puppet, discovered, legacy, modern, shaken
from tests.jumping_clock import in_no_time
from tests.support import DEFAULT_LIMITS, Channel, Serve

LISTS = {
    "notifications/tools/list_changed": Changed("tools"),
    "notifications/prompts/list_changed": Changed("prompts"),
    "notifications/resources/list_changed": Changed("resources"),
}


def acknowledge(puppet: Puppet, message: dict[str, Any]) -> Any:
    """Honour all that is asked for."""
    told(
        puppet,
        message["id"],
        "notifications/subscriptions/acknowledged",
        notifications=message["params"]["notifications"],
    )
    return SILENCE


def told(puppet: Puppet, listen_id: Any, method: str, **params: Any) -> None:
    tag = {} if listen_id is None else {"_meta": {f"{META}subscriptionId": listen_id}}
    puppet.say({"method": method, "params": {**params, **tag}})


def listening_server(**more: Any) -> Puppet:
    return modern(subscriptions_listen=acknowledge, **more)


def listens(puppet: Puppet) -> list[Any]:
    """The ids of the listen requests that came."""
    return [message["id"] for message in puppet.came if message.get("method") == "subscriptions/listen"]


async def next_of(listening: Subscription, count: int) -> list[Any]:
    """So many changes."""
    async with asyncio.timeout(5):
        return [await anext(listening) for _ in range(count)]


async def only_losses(listening: Subscription) -> None:
    """Read to the end; nothing but losses may come."""
    async for change in listening:
        assert isinstance(change, ChangesLost)


async def heard_all(puppet: Puppet) -> None:
    """What was said has arrived."""
    for _ in range(10):
        await asyncio.sleep(0)


# ---------------------------------------------------------------- the stateless era


async def test_what_is_wanted_is_asked_for_and_heard() -> None:
    """SUB-01, SUB-06, REQM-01."""
    puppet = listening_server()
    async with (
        Client(puppet) as client,
        client.listen(tools=True, prompts=True, resource_list=True, resources=["file:///a"]) as changes,
    ):
        (params,) = puppet.asked("subscriptions/listen")
        wanted = dict.fromkeys(("toolsListChanged", "promptsListChanged", "resourcesListChanged"), True)
        assert params["notifications"] == {**wanted, "resourceSubscriptions": ["file:///a"]}
        assert f"{META}protocolVersion" in params["_meta"]
        assert changes.honoured.resource_subscriptions == ["file:///a"]
        (listen_id,) = listens(puppet)
        for method in LISTS:
            told(puppet, listen_id, method)
        told(puppet, listen_id, "notifications/resources/updated", uri="file:///a/below")
        assert await next_of(changes, 4) == [*LISTS.values(), Changed("resource", "file:///a/below")]


async def test_iteration_goes_on_until_it_is_left() -> None:
    puppet = listening_server()
    heard: list[Any] = []
    async with Client(puppet) as client:
        async with client.listen(tools=True) as changes:
            (listen_id,) = listens(puppet)
            told(puppet, listen_id, "notifications/tools/list_changed")
            async for change in changes:
                heard.append(change)
                if len(heard) == 50:
                    break
                told(puppet, listen_id, "notifications/tools/list_changed")
        await heard_all(puppet)
    assert heard == [Changed("tools")] * 50
    assert changes.id is None
    assert [params["requestId"] for params in puppet.asked("notifications/cancelled")] == [listen_id]


async def test_what_the_server_does_not_honour_is_told() -> None:
    """SUB-06."""

    def less(puppet: Puppet, message: dict[str, Any]) -> Any:
        told(
            puppet, message["id"], "notifications/subscriptions/acknowledged", notifications={"toolsListChanged": True}
        )
        return SILENCE

    async with Client(modern(subscriptions_listen=less)) as client, client.listen(tools=True, prompts=True) as changes:
        assert changes.honoured.tools_list_changed
        assert not changes.honoured.prompts_list_changed


@pytest.mark.foreign_words("an acknowledgement that is none")
async def test_an_acknowledgement_that_can_not_be_read_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def nonsense(puppet: Puppet, message: dict[str, Any]) -> Any:
        told(puppet, message["id"], "notifications/subscriptions/acknowledged", notifications={"toolsListChanged": 7})
        return SILENCE

    async with Client(modern(subscriptions_listen=nonsense)) as client, client.listen(tools=True):
        pass
    [line] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "acknowledgement" in line


@pytest.mark.foreign_words("topics of an extension")
async def test_topics_of_extensions_that_the_server_does_not_honour_are_left_out() -> None:
    """SUB-06: a server that doesn't know a topic leaves it out of its acknowledgement."""

    def less(puppet: Puppet, message: dict[str, Any]) -> Any:
        notifications = {"toolsListChanged": True, "known": ["1"]}
        told(puppet, message["id"], "notifications/subscriptions/acknowledged", notifications=notifications)
        return SILENCE

    topics = {"known": ["1", "2"], "unknown": True}
    async with (
        Client(modern(subscriptions_listen=less)) as client,
        client.listen(tools=True, topics=topics) as changes,
    ):
        assert changes.topics == {"known": ["1"]}
        assert changes.honoured.tools_list_changed


@pytest.mark.parametrize(
    ("wanted", "member"),
    [
        ({"tools": True}, {"toolsListChanged": True}),
        ({"prompts": True}, {"promptsListChanged": True}),
        ({"resource_list": True}, {"resourcesListChanged": True}),
        ({"resources": True}, {"resourcesListChanged": True}),
        ({"resources": ["file:///a"]}, {"resourceSubscriptions": ["file:///a"]}),
        ({"tools": True, "resources": []}, {"toolsListChanged": True}),
    ],
)
async def test_nothing_else_is_asked_for(wanted: Any, member: Any) -> None:
    """SUB-01."""
    puppet = listening_server()
    async with Client(puppet) as client, client.listen(**wanted):
        assert [params["notifications"] for params in puppet.asked("subscriptions/listen")] == [member]


async def test_several_subscriptions_are_told_apart_by_id_and_type() -> None:
    """SUB-05, SUB-07, STDIO-05."""
    puppet = listening_server()
    async with Client(puppet) as client, client.listen(tools=True) as one, client.listen(tools=True) as two:
        first, second = listens(puppet)
        for other in (str(first), float(first), 99):
            told(puppet, other, "notifications/resources/list_changed")
        told(puppet, second, "notifications/prompts/list_changed")
        told(puppet, first, "notifications/tools/list_changed")
        assert await next_of(one, 1) == [Changed("tools")]
        assert await next_of(two, 1) == [Changed("prompts")]


async def test_leaving_tells_the_server_once() -> None:
    """SUB-08."""
    puppet = listening_server()
    async with Client(puppet) as client:
        async with client.listen(tools=True) as changes:
            (listen_id,) = listens(puppet)
        await changes.close()
        await heard_all(puppet)
        cancelled = puppet.asked("notifications/cancelled")
        assert [params["requestId"] for params in cancelled] == [listen_id]
        with pytest.raises(StopAsyncIteration):
            await anext(changes)


async def test_repeats_that_nobody_read_are_merged() -> None:
    """A slow reader costs no memory."""
    puppet = listening_server()
    async with Client(puppet) as client, client.listen(tools=True, resources=["file:///"]) as changes:
        (listen_id,) = listens(puppet)
        for _ in range(50):
            told(puppet, listen_id, "notifications/tools/list_changed")
            told(puppet, listen_id, "notifications/resources/updated", uri="file:///a")
        told(puppet, listen_id, "notifications/prompts/list_changed")
        expected = [Changed("tools"), Changed("resource", "file:///a"), Changed("prompts")]
        await puppet.until(lambda: len(changes._changes) >= 3)
        assert await next_of(changes, 3) == expected


@pytest.mark.parametrize("limits", [Limits(changes=3), Limits(change_bytes=3000)])
async def test_too_many_unread_changes_become_one_loss(limits: Limits) -> None:
    puppet = listening_server()
    async with Client(puppet, limits=limits) as client, client.listen(resources=["file:///"]) as changes:
        for number in range(4):
            uri = f"file:///{number}".ljust(900, "x")
            told(puppet, listens(puppet)[0], "notifications/resources/updated", uri=uri)
        await puppet.until(lambda: any(isinstance(one, ChangesLost) for one in changes._changes))
        (lost,) = await next_of(changes, 1)
        assert isinstance(lost, ChangesLost)
        uris = [f"file:///{number}".ljust(900, "x") for number in range(2)]
        for uri in uris:
            told(puppet, listens(puppet)[0], "notifications/resources/updated", uri=uri)
        assert await next_of(changes, 2) == [Changed("resource", uri) for uri in uris]


async def test_changes_that_were_read_count_no_longer() -> None:
    puppet = listening_server()
    limits = Limits(change_bytes=3000)
    async with Client(puppet, limits=limits) as client, client.listen(resources=["file:///"]) as changes:
        for number in range(10):
            change = Changed("resource", f"file:///{number}".ljust(2000, "x"))
            told(puppet, listens(puppet)[0], "notifications/resources/updated", uri=change.uri)
            assert await next_of(changes, 1) == [change]


async def test_repeats_take_no_room_when_no_more_changes_fit() -> None:
    puppet = listening_server()
    async with Client(puppet, limits=Limits(changes=2)) as client, client.listen(resources=["file:///"]) as changes:
        for number in (0, 1, 1, 0):
            told(puppet, listens(puppet)[0], "notifications/resources/updated", uri=f"file:///{number}")
        await heard_all(puppet)
        assert await next_of(changes, 2) == [Changed("resource", f"file:///{number}") for number in (0, 1)]


def opened_after(lost: Changed | ChangesLost) -> ChangesLost:
    """What is told when a subscription is open again: it differs from what was told of the loss."""
    assert isinstance(lost, ChangesLost)
    return ChangesLost(f"the subscription is open again; it had ended: {lost.reason}")


@in_no_time
async def test_a_server_that_ends_a_subscription_is_listened_to_again() -> None:
    puppet = listening_server()
    async with Client(puppet) as client, client.listen(tools=True) as changes:
        (first,) = listens(puppet)
        result = {"resultType": "complete", "_meta": {f"{META}subscriptionId": first}}
        puppet.say({"id": first, "result": result})
        (lost,) = await next_of(changes, 1)
        assert isinstance(lost, ChangesLost)
        await puppet.until(lambda: len(listens(puppet)) >= 2)
        second = listens(puppet)[1]
        assert second != first
        told(puppet, second, "notifications/tools/list_changed")
        assert await next_of(changes, 2) == [opened_after(lost), Changed("tools")]
    assert puppet.connections == 1


@in_no_time
async def test_after_a_lost_connection_it_listens_on_the_new_one() -> None:
    """SUB-10, SUB-11, STDIO-08."""
    puppet = listening_server()
    heard: list[Any] = []
    async with Client(puppet, on_change=heard.append) as client, client.listen(tools=True) as changes:
        puppet.hang_up()
        (lost,) = await next_of(changes, 1)
        assert isinstance(lost, ChangesLost)
        await puppet.until(lambda: len(listens(puppet)) >= 2)
        told(puppet, listens(puppet)[1], "notifications/tools/list_changed")
        # Once more: who looked at everything before could not hear what changed from then until now.
        assert await next_of(changes, 2) == [opened_after(lost), Changed("tools")]
    assert puppet.connections == 2
    assert Changed("tools") in heard


@in_no_time
async def test_a_loss_empties_the_cache_and_so_does_the_return() -> None:
    """CACHE-08: what changed in between was not announced."""

    def listed(puppet: Puppet, message: dict[str, Any]) -> Any:
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
        return {"resultType": "complete", "tools": tools, "ttlMs": 60_000, "cacheScope": "private"}

    names = ["a"]
    puppet = listening_server(tools_list=listed)
    async with Client(puppet) as client, client.listen(tools=True) as changes:
        for loss in (1, 2):
            assert [tool.name for tool in await client.list_tools()] == names
            names = [f"after {loss}"]
            assert [tool.name for tool in await client.list_tools()] != names, "it is in the cache"
            ended = listens(puppet)[-1]
            puppet.by_method["subscriptions/listen"] = HANG_UP
            puppet.say({"id": ended, "result": {"resultType": "complete", "_meta": {f"{META}subscriptionId": ended}}})
            (lost,) = await next_of(changes, 1)
            assert [tool.name for tool in await client.list_tools()] == names
            names = [f"open again {loss}"]
            puppet.by_method["subscriptions/listen"] = acknowledge
            assert await next_of(changes, 1) == [opened_after(lost)]
            assert [tool.name for tool in await client.list_tools()] == names


@in_no_time
async def test_a_loss_that_nobody_read_meanwhile_is_told_once() -> None:
    """SUB-10: attempts in vain are no further losses."""
    puppet = listening_server()
    async with Client(puppet) as client, client.listen(tools=True) as changes:
        puppet.by_method["subscriptions/listen"] = HANG_UP
        puppet.hang_up()
        await puppet.until(lambda: len(listens(puppet)) >= 3)
        puppet.by_method["subscriptions/listen"] = acknowledge
        acknowledged = len(listens(puppet)) + 1
        await puppet.until(lambda: len(listens(puppet)) >= acknowledged)
        told(puppet, listens(puppet)[-1], "notifications/tools/list_changed")
        lost, changed = await next_of(changes, 2)
        assert isinstance(lost, ChangesLost)
        assert changed == Changed("tools")


@in_no_time
async def test_a_loss_that_was_read_is_not_told_again_by_attempts_in_vain() -> None:
    """SUB-10: there is one loss until it is open again."""
    puppet = listening_server()
    async with Client(puppet) as client, client.listen(tools=True) as changes:
        puppet.by_method["subscriptions/listen"] = HANG_UP
        puppet.hang_up()
        (lost,) = await next_of(changes, 1)
        await puppet.until(lambda: len(listens(puppet)) >= 4)
        assert not changes._changes
        puppet.by_method["subscriptions/listen"] = acknowledge
        assert await next_of(changes, 1) == [opened_after(lost)]


class Ending(Puppet):
    """A server whose first `times` subscriptions end because it no longer knows the session, as over HTTP."""

    def __init__(self, by_method: Any, times: int) -> None:
        super().__init__(by_method)
        self.times = times

    async def open(self, serve: Serve, /) -> Channel:
        channel = await super().open(serve)
        send, replaceable = channel.send, cast("Any", channel)

        async def refuse(message: Any) -> None:
            if message.method in ("subscriptions/listen", "resources/subscribe") and self.times:
                self.times -= 1
                raise SessionEnded("the session is over", 404, {})
            await send(message)

        replaceable.send = refuse
        return channel


@in_no_time
async def test_a_session_that_ended_is_opened_again_before_the_first_subscription() -> None:
    """Nothing was lost then: there was no subscription yet."""
    puppet = Ending(listening_server().by_method, 1)
    async with Client(puppet) as client, client.listen(tools=True) as changes:
        told(puppet, listens(puppet)[-1], "notifications/tools/list_changed")
        assert await next_of(changes, 1) == [Changed("tools")]


@in_no_time
async def test_a_handshake_session_that_ended_is_opened_again_before_its_first_subscription() -> None:
    """It begins when the resource is subscribed to in the new session, where alone its changes are told."""
    puppet = Ending(legacy(resources_subscribe={}, resources_unsubscribe={}).by_method, 1)
    async with Client(puppet) as client, client.listen(resources=["file:///a"]) as changes:
        assert puppet.methods().count("initialize") == 2
        assert len(puppet.asked("resources/subscribe")) == 1
        told(puppet, None, "notifications/resources/updated", uri="file:///a")
        assert await next_of(changes, 1) == [Changed("resource", "file:///a")]


@in_no_time
async def test_a_server_that_ends_every_session_is_an_error_after_the_second() -> None:
    puppet = Ending(listening_server().by_method, 100)
    async with Client(puppet) as client:
        with pytest.raises(SessionEnded, match="the session is over"):
            async with client.listen(tools=True):
                raise AssertionError("it was acknowledged")
    assert puppet.times == 98


class Clumsy(Puppet):
    """A server behind a transport that fails when the subscription on it is cancelled."""

    async def open(self, serve: Serve, /) -> Channel:
        channel = await super().open(serve)
        send, replaceable = channel.send, cast("Any", channel)

        async def until_cancelled(message: Any) -> None:
            await send(message)
            if message.method == "subscriptions/listen":
                try:
                    await asyncio.get_running_loop().create_future()
                except asyncio.CancelledError:
                    raise ConnectionLost("the transport failed to cancel it") from None

        replaceable.send = until_cancelled
        return channel


@in_no_time
async def test_who_has_left_does_not_listen_again_although_the_transport_fails() -> None:
    puppet = Clumsy(listening_server().by_method)
    async with Client(puppet) as client:
        async with asyncio.timeout(60), client.listen(tools=True) as changes:
            pass
        await asyncio.sleep(60)
        with pytest.raises(StopAsyncIteration):
            await anext(changes)
    assert len(listens(puppet)) == 1


@in_no_time
async def test_each_loss_is_told_twice_and_no_opening_without_a_loss_is() -> None:
    puppet = listening_server()
    async with Client(puppet) as client, client.listen(tools=True) as changes:
        for number in range(1, 4):
            puppet.hang_up()
            (lost,) = await next_of(changes, 1)
            await puppet.until(lambda: len(listens(puppet)) > number)  # noqa: B023 - it is awaited
            told(puppet, listens(puppet)[-1], "notifications/tools/list_changed")
            assert await next_of(changes, 2) == [opened_after(lost), Changed("tools")]
        told(puppet, listens(puppet)[-1], "subscriptions/nothing")
        told(puppet, listens(puppet)[-1], "notifications/subscriptions/acknowledged", notifications={})
        told(puppet, listens(puppet)[-1], "notifications/tools/list_changed")
        assert await next_of(changes, 1) == [Changed("tools")]


@in_no_time
async def test_a_server_that_refuses_the_subscription_later_is_not_asked_again() -> None:
    """SUB-10: it is the answer of a server, which another attempt won't change."""
    puppet = listening_server()
    async with Client(puppet) as client, client.listen(tools=True) as changes:
        puppet.by_method["subscriptions/listen"] = Error(-32602, "no longer")
        puppet.hang_up()
        with pytest.raises(ConnectionLost, match="no longer"):
            await only_losses(changes)
    assert len(listens(puppet)) == 2


@in_no_time
async def test_losses_that_are_far_apart_never_end_the_listening() -> None:
    """SUB-10: only attempts in a row are counted."""
    puppet = listening_server()
    limits = Limits(reconnects=1, call_idle=60)
    async with Client(puppet, limits=limits) as client, client.listen(tools=True) as changes:
        for lost in range(limits.reconnects + 3):
            await asyncio.sleep(120)
            assert len(listens(puppet)) == 1 + lost, "time limits end with the acknowledgement"
            wanted = len(listens(puppet)) + 1
            puppet.hang_up()
            async with asyncio.timeout(60):
                while len(listens(puppet)) < wanted:  # noqa: ASYNC110 - the clock jumps
                    await asyncio.sleep(0.1)
        told(puppet, listens(puppet)[-1], "notifications/tools/list_changed")
        while not isinstance(change := await anext(changes), Changed):
            pass
        assert change == Changed("tools")


@in_no_time
async def test_a_server_that_is_gone_for_good_ends_the_listening_with_an_error() -> None:
    """SUB-10."""
    puppet = listening_server()
    async with Client(puppet) as client, client.listen(tools=True) as changes:
        puppet.by_method["server/discover"] = HANG_UP
        puppet.hang_up()
        with pytest.raises(ConnectionLost, match="The subscription ended"):
            await only_losses(changes)


@in_no_time
async def test_a_subscription_that_is_never_acknowledged_is_an_error_in_time() -> None:
    """Nothing waits for ever."""
    limits = Limits(call_idle=3)
    async with Client(modern(subscriptions_listen=SILENCE), limits=limits) as client:
        start = asyncio.get_running_loop().time()
        with pytest.raises(CallTimeout, match="The subscription was not acknowledged within 3 seconds"):
            async with client.listen(tools=True):
                raise AssertionError("it was acknowledged")
        assert asyncio.get_running_loop().time() - start <= 4


@in_no_time
async def test_an_answer_in_place_of_an_acknowledgement_is_an_error() -> None:
    async with Client(modern(subscriptions_listen={"resultType": "complete"})) as client:
        with pytest.raises(InvalidResponse, match="The subscription never began: the server ended the subscription"):
            async with client.listen(tools=True):
                raise AssertionError("it was acknowledged")


def end_at_once(puppet: Puppet, message: dict[str, Any]) -> Any:
    """Agree, and end it in good order."""
    acknowledge(puppet, message)
    return {"resultType": "complete", "_meta": {f"{META}subscriptionId": message["id"]}}


@pytest.mark.parametrize("ending", [end_at_once, HANG_UP])
@in_no_time
async def test_a_server_that_ends_each_subscription_at_once_is_not_asked_for_ever(ending: Any) -> None:
    """SUB-10: an end in good order counts as an attempt, too."""
    puppet = listening_server()
    limits = Limits(reconnects=3)
    async with Client(puppet, limits=limits) as client, client.listen(tools=True) as changes:
        await asyncio.sleep(3600)
        puppet.by_method["subscriptions/listen"] = ending
        puppet.hang_up()
        with pytest.raises(ConnectionLost, match="The subscription ended"):
            await only_losses(changes)
    assert len(listens(puppet)) == limits.reconnects + 1


async def test_a_refused_subscription_is_the_error_it_is() -> None:
    async with Client(modern(subscriptions_listen=Error(-32602, "too many"))) as client:
        with pytest.raises(PeerError, match="too many"):
            async with client.listen(tools=True):
                raise AssertionError("it was acknowledged")


@in_no_time
async def test_closing_the_client_ends_the_listening_at_once() -> None:
    for puppet in (listening_server(), legacy()):
        client = Client(puppet)
        await client.connect()
        async with client.listen(tools=True) as changes:
            start = asyncio.get_running_loop().time()
            await client.close()
            with pytest.raises(ConnectionLost):
                await only_losses(changes)
            assert asyncio.get_running_loop().time() - start < 1


class OnceOnly(Puppet):
    """A way to a server that breaks in a way that nobody thought of when it is used again."""

    attempts = 0

    async def open(self, serve: Serve, /) -> Channel:
        self.attempts += 1
        if self.connections:
            raise LookupError("the way is lost")
        return await super().open(serve)


@in_no_time
async def test_whatever_ends_the_listening_those_who_wait_are_told() -> None:
    """SUB-10: also what is no error of a call."""
    puppet = OnceOnly(listening_server().by_method)
    async with Client(puppet) as client, client.listen(tools=True) as changes:
        reading = asyncio.create_task(only_losses(changes))
        puppet.hang_up()
        with pytest.raises(ConnectionLost, match="The subscription ended: the way is lost") as raised:
            await reading
        assert isinstance(raised.value.__cause__, LookupError)
    assert puppet.attempts == 2, "what is no error of a call would happen again"


@in_no_time
async def test_listening_that_is_cancelled_before_it_began_ends_for_all_who_wait() -> None:
    async with Client(modern(subscriptions_listen=SILENCE)) as client:
        changes = client.listen(tools=True)
        entering = asyncio.create_task(changes.__aenter__())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert changes._task is not None
        changes._task.cancel()
        with pytest.raises(ConnectionLost, match="closed before it began"):
            await entering


async def test_opening_that_is_given_up_is_cancelled_and_leaves_nothing_behind() -> None:
    errors: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(context))
    puppet = modern(subscriptions_listen=SILENCE)
    async with Client(puppet) as client:
        entering = asyncio.create_task(client.listen(tools=True).__aenter__())
        async with asyncio.timeout(5):
            while not listens(puppet):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0)
        entering.cancel()
        await asyncio.wait([entering])
        assert entering.cancelled()
        await heard_all(puppet)
        assert [params["requestId"] for params in puppet.asked("notifications/cancelled")] == listens(puppet)
    del entering
    gc.collect()
    assert errors == []


async def test_a_subscription_that_is_not_entered_has_no_changes_and_can_be_closed() -> None:
    puppet = listening_server()
    async with Client(puppet) as client:
        changes = client.listen(tools=True)
        assert [change async for change in changes] == []
        await changes.close()
    assert listens(puppet) == []


async def test_an_acknowledgement_that_can_not_be_read_honours_nothing() -> None:
    def garbled(puppet: Puppet, message: dict[str, Any]) -> Any:
        told(puppet, message["id"], "notifications/subscriptions/acknowledged", notifications={"toolsListChanged": []})
        return SILENCE

    async with Client(modern(subscriptions_listen=garbled)) as client, client.listen(tools=True) as changes:
        assert not changes.honoured.tools_list_changed


@pytest.mark.foreign_words("a notification of the server's own")
async def test_other_notifications_are_no_changes_whatever_they_are_about() -> None:
    puppet = listening_server()
    async with Client(puppet) as client, client.listen(tools=True, resources=["file:///a"]) as changes:
        (listen_id,) = listens(puppet)
        told(puppet, listen_id, "notifications/acme/moved", uri="file:///a")
        told(puppet, listen_id, "notifications/tools/list_changed")
        assert await next_of(changes, 1) == [Changed("tools")]


# ---------------------------------------------------------------- the handshake era


async def test_who_watches_lists_alone_hears_nothing_of_resources_that_others_watch() -> None:
    puppet = legacy(resources_subscribe={}, resources_unsubscribe={})
    async with (
        Client(puppet) as client,
        client.listen(tools=True) as changes,
        client.listen(resources=["file:///a"]) as other,
    ):
        told(puppet, None, "notifications/resources/updated", uri="file:///a")
        told(puppet, None, "notifications/tools/list_changed")
        assert await next_of(changes, 1) == [Changed("tools")]
        assert await next_of(other, 1) == [Changed("resource", "file:///a")]


async def test_a_handshake_server_says_changes_of_lists_unasked() -> None:
    puppet = legacy()
    everything: list[Any] = []
    async with (
        Client(puppet, on_change=everything.append) as client,
        client.listen(tools=True, resource_list=True) as changes,
    ):
        for method in LISTS:
            told(puppet, None, method)
        assert await next_of(changes, 2) == [Changed("tools"), Changed("resources")]
    assert everything == list(LISTS.values())
    assert "subscriptions/listen" not in puppet.methods()


async def test_a_handshake_subscription_does_not_begin_with_an_acknowledgement() -> None:
    """Which names none: it has no id."""

    def acknowledge_first(puppet: Puppet, message: dict[str, Any]) -> Any:
        told(puppet, None, "notifications/subscriptions/acknowledged", notifications={})
        return Error(-32002, "no such resource")

    async with Client(legacy(resources_subscribe=acknowledge_first)) as client:
        with pytest.raises(PeerError, match="no such resource"):
            async with client.listen(resources=["file:///a"]):
                raise AssertionError("it is not subscribed to")


async def test_leaving_a_resource_or_lists_is_not_kept_from_it_by_those_who_watch_another() -> None:
    errors: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(context))
    puppet = legacy(resources_subscribe={}, resources_unsubscribe={})
    async with Client(puppet) as client, client.listen(resources=["file:///b"]):
        async with client.listen(resources=["file:///a"]), client.listen(tools=True):
            pass
        assert [params["uri"] for params in puppet.asked("resources/unsubscribe")] == ["file:///a"]
    gc.collect()
    assert errors == []


async def test_single_resources_are_subscribed_to_and_left_again() -> None:
    """SUB-15: below counts, beside doesn't."""
    puppet = legacy(resources_subscribe={}, resources_unsubscribe={})
    async with Client(puppet) as client:
        async with client.listen(resources=["file:///a"]) as one, client.listen(resources=["file:///a"]):
            assert [params["uri"] for params in puppet.asked("resources/subscribe")] == ["file:///a"] * 2
            for uri in ("file:///ab", "file:///b", "file:///a/x", "file:///a"):
                told(puppet, None, "notifications/resources/updated", uri=uri)
            assert await next_of(one, 2) == [Changed("resource", "file:///a/x"), Changed("resource", "file:///a")]
        assert [params["uri"] for params in puppet.asked("resources/unsubscribe")] == ["file:///a"]


@in_no_time
async def test_a_server_that_never_confirms_a_subscription_to_a_resource_is_an_error_in_time() -> None:
    """LIFE-14."""
    async with Client(legacy(resources_subscribe=SILENCE), limits=Limits(call_idle=3)) as client:
        start = asyncio.get_running_loop().time()
        with pytest.raises(CallTimeout, match="3 seconds"):
            async with client.listen(resources=["file:///a"]):
                raise AssertionError("it was subscribed to")
        assert asyncio.get_running_loop().time() - start <= 4


@pytest.mark.parametrize("answer", [SILENCE, HANG_UP, Error(-32603, "not now")], ids=["silence", "hang up", "error"])
@in_no_time
async def test_leaving_takes_no_longer_than_its_limit_whatever_the_server_says(answer: Any) -> None:
    """Who has left doesn't listen again, and doesn't wait for each resource."""
    puppet = legacy(resources_subscribe={}, resources_unsubscribe=answer)
    async with Client(puppet) as client:
        resources = [f"file:///{number}" for number in range(100)]
        async with client.listen(resources=resources) as changes:
            start = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - start <= DEFAULT_LIMITS.teardown
        with pytest.raises(StopAsyncIteration):
            await anext(changes)
    assert len(puppet.asked("resources/subscribe")) == len(resources)


async def test_a_resource_that_cannot_be_watched_is_an_error() -> None:
    async with Client(legacy(resources_subscribe=Error(-32602, "no such resource"))) as client:
        with pytest.raises(PeerError, match="no such resource"):
            async with client.listen(resources=["file:///a"]):
                raise AssertionError("it was subscribed to")


@pytest.mark.parametrize("params", [{"uri": 7}, {}, {"uri": None}])
async def test_a_notification_that_makes_no_sense_is_no_change(params: Any) -> None:
    everything: list[Any] = []
    puppet = legacy()
    async with Client(puppet, on_change=everything.append) as client:
        told(puppet, None, "notifications/resources/updated", **params)
        await client.ping()
    assert everything == []


async def test_both_eras_wait_for_the_first_sign() -> None:
    """What is entered is acknowledged."""
    for puppet in (Puppet({"server/discover": discovered(), "subscriptions/listen": acknowledge}), legacy()):
        async with Client(puppet) as client, client.listen(tools=True) as changes:
            assert changes.honoured.tools_list_changed
    assert shaken()
