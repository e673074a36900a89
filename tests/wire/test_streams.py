"""Which stream a message leaves on, over HTTP in the stateless era: everything on that of its own request, the result last."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from gemel import Changed, Context, MissingClientCapability, Server
from tests.transports.http_rig import META, Site, modern, serving
from tests.transports.loops import until
from tests.wire import routes
from tests.wire.talk import Talk


def the_server() -> Server[Any]:
    server: Server[Any] = Server("streams")

    @server.tool
    async def work(ctx: Context[Any]) -> str:
        await ctx.report_progress(1, 2)
        await ctx.log("error", "half way")
        server.tool("extra")(lambda: None)
        await ctx.report_progress(2, 2)
        return "done"

    @server.tool
    async def asks(ctx: Context[Any]) -> str:
        await ctx.report_progress(1, 2)
        return str(await ctx.elicit("Who?", str))

    return server


async def messages(site: Site, name: str, **meta: Any) -> list[Any]:
    """All that comes on the stream of one call."""
    headers, body = modern("tools/call", {"name": name, "arguments": {}})
    body["params"]["_meta"].update({f"{META}{key}": value for key, value in meta.items()})
    wire = await site.call({**headers, "Mcp-Name": name}, body)
    assert (await wire.head()).streams
    found = []
    while (message := await wire.message()) is not None:
        found.append(message)
    return found


async def test_progress_and_logs_are_on_the_stream_of_their_request_and_on_no_other() -> None:
    """MHTTP-19: not on that of a listener, though what changed is told there meanwhile."""
    async with serving(the_server()) as site:
        listener = await site.call(*modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, "l"))
        assert (await listener.head()).streams
        assert (await listener.message())["method"] == "notifications/subscriptions/acknowledged"
        call = await messages(site, "work", logLevel="debug")
        told = ["notifications/progress", "notifications/message", "notifications/progress", None]
        assert [message.get("method") for message in call] == told
        assert site.app is not None
        heard = [(await listener.message())["method"]]
        await site.app.stop()
        while (message := await listener.message()) is not None:
            heard.append(message.get("method"))
    assert heard == ["notifications/tools/list_changed", None]


async def test_every_listener_is_told_of_all_changes_in_their_order() -> None:
    """Of a list, which is told at once, and of a resource, which waits for whether its listener may see it."""
    server = the_server()
    server.resource("note://a", name="a")(lambda: "a")
    wanted = {"toolsListChanged": True, "resourcesListChanged": True, "resourceSubscriptions": ["note://a"]}
    changes = [Changed("tools"), Changed("resource", "note://a"), Changed("resources")]
    told = ["tools/list_changed", "resources/updated", "resources/list_changed"]
    async with serving(server) as site:
        listeners = [await site.call(*modern("subscriptions/listen", {"notifications": wanted}, n)) for n in range(250)]
        for listener in listeners:
            await listener.head()
            assert (await listener.message())["method"] == "notifications/subscriptions/acknowledged"
        for _ in range(3):
            for change in changes:
                server.notify(change)
            for number, listener in enumerate(listeners):
                messages = [await listener.message() for _ in told]
                assert [message["method"] for message in messages] == [f"notifications/{name}" for name in told]
                assert {message["params"]["_meta"][f"{META}subscriptionId"] for message in messages} == {number}


async def test_a_stream_that_waits_has_no_task() -> None:
    """Ten thousand of them are to cost little. What has to wait, such as who may see a resource, is told all the same."""
    server = the_server()
    server.resource("note://a", name="a")(lambda: "a")
    wanted = {"toolsListChanged": True, "resourceSubscriptions": ["note://a"]}
    async with serving(server) as site:
        before = asyncio.all_tasks()
        listeners = [await site.call(*modern("subscriptions/listen", {"notifications": wanted}, n)) for n in range(20)]
        for listener in listeners:
            await listener.head()
            assert (await listener.message())["method"] == "notifications/subscriptions/acknowledged"
        for change in (Changed("tools"), Changed("resource", "note://a"), Changed("tools")):
            await until(lambda: asyncio.all_tasks() == before)
            server.notify(change)
            for listener in listeners:
                assert (await listener.message())["method"].startswith("notifications/")
        left, *others = listeners
        left.close()
        await until(lambda: site.app is not None and site.app.calls == len(others))
        assert site.app is not None
        await site.app.stop()
        for listener in others:
            assert (await listener.message())["result"]["resultType"] == "complete"
            assert await listener.message() is None


async def test_a_middleware_is_around_the_whole_life_of_a_stream() -> None:
    server, seen = the_server(), list[str]()

    @server.add_middleware
    async def around(ctx: Context[Any], call_next: Any) -> Any:
        seen.append(f"{ctx.method} begins")
        try:
            return await call_next(ctx)
        finally:
            seen.append(f"{ctx.method} ends")

    async with serving(server) as site:
        wanted = {"notifications": {"toolsListChanged": True}}
        listener = await site.call(*modern("subscriptions/listen", wanted, "l"))
        await listener.head()
        assert (await listener.message())["method"] == "notifications/subscriptions/acknowledged"
        server.notify(Changed("tools"))
        assert (await listener.message())["method"] == "notifications/tools/list_changed"
        assert seen == ["subscriptions/listen begins"]
        assert site.app is not None
        await site.app.stop()
        assert "result" in await listener.message()
        assert seen == ["subscriptions/listen begins", "subscriptions/listen ends"]


@pytest.mark.parametrize("channel", ["memory", "unix", "http"])
async def test_a_subscription_that_fails_at_once_is_answered_with_the_error_that_it_is(channel: str) -> None:
    """With its data, and the same on every channel."""
    server = the_server()
    failures: list[Exception] = [MissingClientCapability({"sampling": {}}), RuntimeError("the broker is gone")]

    @server.add_middleware
    async def fail(ctx: Context[Any], call_next: Any) -> Any:
        if ctx.method == "subscriptions/listen":
            raise failures.pop(0)
        return await call_next(ctx)

    async with getattr(routes, channel)(server) as route:
        talk = await Talk(route, "2026").open()
        own, other = [(await talk.ask("subscriptions/listen", notifications={}))["error"] for _ in range(2)]
    assert (own["code"], own["data"]) == (-32021, {"requiredCapabilities": {"sampling": {}}})
    assert other == {"code": -32603, "message": "Internal server error"}


async def test_a_question_is_the_last_word_on_its_stream() -> None:
    """MRTR-19."""
    async with serving(the_server()) as site:
        call = await messages(site, "asks", clientCapabilities={"elicitation": {}})
    assert [message.get("method") for message in call] == ["notifications/progress", None]
    assert call[-1]["result"]["resultType"] == "input_required"


@pytest.mark.parametrize("channel", ["memory", "unix"])
async def test_a_stateless_client_on_a_pipe_is_never_sent_a_request(channel: str) -> None:
    """STDIO-04, CANC-04: answers, and what belongs to a request in flight; a question is an answer."""
    server = the_server()
    async with getattr(routes, channel)(server) as route:
        talk = await Talk(route, "2026").open()
        talk.capabilities = {"elicitation": {}, "roots": {}, "sampling": {}}
        listening = await talk.begin("subscriptions/listen", notifications={"toolsListChanged": True})
        params = {"arguments": {}, "_meta": {"progressToken": "p", f"{META}logLevel": "debug"}}
        assert "result" in await talk.ask("tools/call", name="work", **params)
        assert (await talk.ask("tools/call", name="asks", **params))["result"]["resultType"] == "input_required"
        server.remove_tool("extra")
        while b"list_changed" not in route.inbox[-1]:
            await talk.hear("notifications/progress")
        seen = [json.loads(data) for data in route.inbox]
        assert not [message for message in seen if "method" in message and "id" in message]
        known = {"progress", "message", "tools/list_changed", "subscriptions/acknowledged"}
        assert {message["method"].removeprefix("notifications/") for message in seen} <= known
        await route.cancel(listening, "2026")
        talk.heard()
