"""The rules of docs/reference/middleware.md, section by section: the docstring of a test begins with the rule that it shows."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import msgspec
import pytest

from gemel import (
    CallNext,
    CallToolResult,
    Context,
    GemelError,
    InputRequiredResult,
    InvalidParams,
    MethodNotFound,
    PeerError,
    ProtocolError,
    Refusal,
    RefusedMessage,
    Server,
    ToolError,
)
from gemel.protocol.states import HandshakeState
from gemel.server.context import served_call
from tests.serving import Way, connected
from tests.source import ROOT
from tests.transports.http_rig import JSON_HEADERS, serving
from tests.wire import routes
from tests.wire.scenario import NEWEST
from tests.wire.talk import talking

PAGE = ROOT / "docs" / "reference" / "middleware.md"
HELLO = {"protocolVersion": NEWEST["2025"], "capabilities": {}, "clientInfo": {"name": "m", "version": "1"}}
META = {"io.modelcontextprotocol/protocolVersion": NEWEST["2026"], "io.modelcontextprotocol/clientCapabilities": {}}

Era = Literal["2025", "2026"]
WAYS: dict[str, Any] = {
    "memory": routes.memory,
    "unix": routes.unix,
    "websocket": routes.websocket,
    "http": routes.http,
    "single": routes.single,  # HTTP without sessions, which differs in the handshake era only
}
_STREAMS = ("memory", "unix", "websocket")
#: All channels and eras.
everywhere = pytest.mark.parametrize(
    ("way", "era"),
    [(way, era) for way in (*_STREAMS, "http") for era in ("2025", "2026")] + [("single", "2025")],
)
#: Where a connection carries messages in one order.
on_streams = pytest.mark.parametrize(("way", "era"), [(way, era) for way in _STREAMS for era in ("2025", "2026")])
#: Where something is remembered of a handshake.
with_handshake = pytest.mark.parametrize("way", [*_STREAMS, "http"])


class Watch:
    """A middleware that keeps what it saw: method, id and what came of it."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any, Any]] = []
        self._more = asyncio.Event()

    async def __call__(self, ctx: Context[Any], call_next: CallNext) -> Any:
        outcome: Any = None
        try:
            outcome = await call_next(ctx)
        except BaseException as exc:
            outcome = exc
            raise
        finally:
            self.seen.append((ctx.method, ctx.request_id, outcome))
            self._more.set()
        return outcome

    def methods(self) -> list[str]:
        return [method for method, _, _ in self.seen]

    async def outcome(self, method: str) -> Any:
        """What came of the latest message of this method; waits for one."""
        async with asyncio.timeout(10):
            while method not in self.methods():
                self._more.clear()
                await self._more.wait()
        return next(outcome for seen, _, outcome in reversed(self.seen) if seen == method)


class Point(msgspec.Struct):
    x: int


def a_server(*middleware: Any) -> Server[Any]:
    server: Server[Any] = Server("watched", version="1", middleware=middleware)

    @server.tool
    async def add(a: int, b: int = 1) -> str:
        return str(a + b)

    @server.tool
    async def fail() -> str:
        raise ToolError("no tea")

    @server.request("acme/typed", params=Point)
    async def typed(ctx: Context[Any], params: Point) -> Any:
        return {"x": params.x}

    @server.request("acme/crash")
    async def crash(ctx: Context[Any], params: Any) -> Any:
        raise LookupError("the password is 1234")

    @server.notification("notifications/acme", params=Point)
    async def noted(ctx: Context[Any], params: Point) -> None:
        if params.x < 0:
            raise RuntimeError("boom")

    return server


def on(method: str, action: Callable[..., Any]) -> Any:
    """A middleware that does something for one method: `await action(ctx, call_next)`."""

    async def middleware(ctx: Context[Any], call_next: CallNext) -> Any:
        return await (action(ctx, call_next) if ctx.method == method else call_next(ctx))

    return middleware


# ---------------------------------------------------------------- order


def named(name: str, order: list[str]) -> Any:
    async def middleware(ctx: Context[Any], call_next: CallNext) -> Any:
        order.append(f"{name} in")
        result = await call_next(ctx)
        order.append(f"{name} out")
        return result

    return middleware


@everywhere
async def test_order(way: Way, era: str) -> None:
    """The first in the list is the outermost."""
    order: list[str] = []
    watch = Watch()
    server = a_server(watch, named("first", order), named("second", order))
    server.add_middleware(named("third", order))
    expected = ["first in", "second in", "third in", "third out", "second out", "first out"]
    async with talking(server, era, WAYS[way]) as talk:
        order.clear()
        await talk.call("add", a=1)
        assert order[-6:] == expected
        await talk.say({"method": "notifications/acme", "params": {"x": 1}})
        await watch.outcome("notifications/acme")
        assert order[-6:] == expected


@everywhere
async def test_adding_while_serving(way: Way, era: str) -> None:
    """A middleware that is added while the server runs sees the next message."""
    watch = Watch()
    server = a_server()
    begun, gate = asyncio.Event(), asyncio.Event()

    @server.request("acme/wait")
    async def wait(ctx: Context[Any], params: Any) -> None:
        begun.set()
        await gate.wait()

    async with talking(server, era, WAYS[way]) as talk:
        waiting = await talk.begin("acme/wait")
        await begun.wait()
        server.add_middleware(watch)
        await talk.call("add", a=1)
        gate.set()
        assert "result" in await talk.answer_to(waiting)
    assert watch.methods() == ["tools/call"]


@on_streams
async def test_messages_begin_in_order(way: Way, era: str) -> None:
    """Messages of a connection begin in the order in which they arrive."""
    begun: list[Any] = []

    async def note(ctx: Context[Any], call_next: CallNext) -> Any:
        begun.append(ctx.request_id if ctx.request_id is not None else ctx.decoded_params.get("x"))
        return await call_next(ctx)

    async with talking(a_server(note), era, WAYS[way]) as talk:
        begun.clear()
        for number in range(10):
            await talk.begin("acme/typed", x=number)
            await talk.say({"method": "notifications/acme", "params": {"x": 100 + number}})
        assert "result" in await talk.ask("acme/typed", x=1)
    if None in begun:
        begun.remove(None)  # the end of the handshake
    assert begun == [number for pair in range(10) for number in (pair + 1, 100 + pair)] + [11]


@everywhere
async def test_messages_are_served_at_once(way: Way, era: str) -> None:
    """They are served concurrently."""
    gate, begun = asyncio.Event(), asyncio.Event()

    async def slow(ctx: Context[Any], call_next: CallNext) -> Any:
        begun.set()
        await gate.wait()
        return await call_next(ctx)

    async with talking(a_server(on("acme/typed", slow)), era, WAYS[way]) as talk:
        waiting = await talk.begin("acme/typed", x=1)
        await begun.wait()
        assert await talk.call("add", a=1) == "2"
        gate.set()
        assert (await talk.answer_to(waiting))["result"]["x"] == 1


@pytest.mark.parametrize("way", _STREAMS)
async def test_initialize_is_served_alone(way: Way) -> None:
    """While `initialize` is served, no other message of the connection is read."""
    order: list[str] = []
    gate, begun = asyncio.Event(), asyncio.Event()

    async def slow(ctx: Context[Any], call_next: CallNext) -> Any:
        order.append(ctx.method)
        if ctx.method == "initialize":
            begun.set()
            await gate.wait()
        return await call_next(ctx)

    async with talking(a_server(slow), "2025", WAYS[way], shaken=False) as talk:
        first = await talk.begin("initialize", **HELLO)
        second = await talk.begin("tools/list")
        await begun.wait()
        for _ in range(20):
            await asyncio.sleep(0)
        assert order == ["initialize"]
        gate.set()
        assert "result" in await talk.answer_to(first)
        assert "result" in await talk.answer_to(second)


# ---------------------------------------------------------------- what it sees


@everywhere
async def test_everything_is_seen(way: Way, era: str) -> None:
    """Every request and every notification of a client."""
    watch = Watch()
    async with talking(a_server(watch), era, WAYS[way]) as talk:
        for method in ("ping", "tools/list", "server/discover"):
            await talk.ask(method)
        await talk.call("add", a=1)
        await talk.say({"method": "notifications/acme", "params": {"x": 1}})
        await watch.outcome("notifications/acme")
        if era == "2025":
            await watch.outcome("notifications/initialized")
        else:
            listening = await talk.begin("subscriptions/listen", notifications={"toolsListChanged": True})
            await talk.hear("notifications/subscriptions/acknowledged")
            await talk.route.cancel(listening, era)
            await watch.outcome("subscriptions/listen")
    assert {"ping", "tools/list", "server/discover", "tools/call"} <= set(watch.methods())
    assert ("initialize" in watch.methods()) == (era == "2025")


@everywhere
async def test_it_comes_before_all_checks(way: Way, era: str) -> None:
    """Before anything is looked up or checked."""
    watch = Watch()
    async with talking(a_server(watch), era, WAYS[way]) as talk:
        assert (await talk.ask("acme/missing"))["error"]["code"] == -32601
        assert (await talk.ask("acme/typed", x="one"))["error"]["code"] == -32602
    assert isinstance(await watch.outcome("acme/missing"), MethodNotFound)
    assert isinstance(await watch.outcome("acme/typed"), InvalidParams)


@pytest.mark.parametrize("way", _STREAMS)
async def test_requests_before_the_handshake_are_seen(way: Way) -> None:
    """Before anything is looked up or checked."""
    watch = Watch()
    async with talking(a_server(watch), "2025", WAYS[way], shaken=False) as talk:
        assert (await talk.ask("tools/list"))["error"]["code"] == -32602
    assert isinstance(await watch.outcome("tools/list"), InvalidParams)


@pytest.mark.parametrize(
    ("way", "era"), [*((way, era) for way in _STREAMS for era in ("2025", "2026")), ("http", "2025")]
)
async def test_cancellations(way: Way, era: str) -> None:
    """A cancellation after it was applied."""
    order: list[str] = []
    begun, seen = asyncio.Event(), asyncio.Event()

    async def look(ctx: Context[Any], call_next: CallNext) -> Any:
        if ctx.method == "acme/wait":
            try:
                return await call_next(ctx)
            except asyncio.CancelledError:
                order.append("ended")
                raise
        if ctx.method == "notifications/cancelled":
            await asyncio.sleep(0)  # the task of the request runs first
            order.append("cancelled")
            seen.set()
        return await call_next(ctx)

    server = a_server(look)

    @server.request("acme/wait")
    async def wait(ctx: Context[Any], params: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with talking(server, era, WAYS[way]) as talk:
        waiting = await talk.begin("acme/wait")
        await begun.wait()
        await talk.route.cancel(waiting, era)
        await seen.wait()
        assert "error" in await talk.ask("acme/missing")
        assert talk.heard() == []
    assert order == ["ended", "cancelled"]


async def test_over_http_a_stateless_client_cancels_without_a_message() -> None:
    """A cancellation after it was applied."""
    watch = Watch()
    begun = asyncio.Event()
    server = a_server(watch)

    @server.request("acme/wait")
    async def wait(ctx: Context[Any], params: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with talking(server, "2026", routes.http) as talk:
        waiting = await talk.begin("acme/wait")
        await begun.wait()
        await talk.route.cancel(waiting, "2026")
        assert isinstance(await watch.outcome("acme/wait"), asyncio.CancelledError)
    assert watch.methods() == ["acme/wait"]


@pytest.mark.parametrize("way", [*_STREAMS, "http"])
async def test_rounds(way: Way) -> None:
    """Each round of a call that asks."""
    watch = Watch()
    server = a_server(watch)

    @server.tool
    async def greet(ctx: Context[Any]) -> str:
        return f"Hello {await ctx.elicit('Who?', str)}"

    async with connected(server, way, era="2026", on_elicit=lambda form: {"value": "Ada"}) as client:
        assert (await client.call_tool("greet")).text == "Hello Ada"
    (one, asked), (two, answered) = [seen[1:] for seen in watch.seen if seen[0] == "tools/call"]
    assert one != two
    assert isinstance(asked, InputRequiredResult)
    assert isinstance(answered, CallToolResult)


@everywhere
async def test_nested_requests(way: Way, era: str) -> None:
    """Requests that handlers send to their own server."""
    seen: list[tuple[Any, Any, int]] = []

    async def look(ctx: Context[Any], call_next: CallNext) -> Any:
        if ctx.method == "tools/call":
            seen.append((ctx.request_id, ctx.decoded_params["name"], ctx.depth))
        return await call_next(ctx)

    server = a_server(look)

    @server.tool
    async def outer(ctx: Context[Any]) -> str:
        return (await ctx.call_tool("add", {"a": 4})).text

    async with talking(server, era, WAYS[way]) as talk:
        assert await talk.call("outer") == "5"
    assert seen == [(1, "outer", 0), (1, "add", 1)]


@everywhere
async def test_mounted_servers(way: Way, era: str) -> None:
    """For a mounted server: the requests that are passed on to it."""
    seen: list[str] = []

    def look(name: str) -> Any:
        async def middleware(ctx: Context[Any], call_next: CallNext) -> Any:
            if ctx.method == "tools/call":
                seen.append(f"{name} {ctx.decoded_params['name']}")
            return await call_next(ctx)

        return middleware

    inner: Server[Any] = Server("inner", middleware=[look("inner")])

    @inner.tool
    async def add(a: int) -> str:
        return str(a + 1)

    outer = Server[Any]("outer", middleware=[look("outer")])
    outer.mount(inner, "math")
    async with talking(outer, era, WAYS[way]) as talk:
        assert await talk.call("math_add", a=1) == "2"
    assert seen == ["outer math_add", "inner add"]


@with_handshake
async def test_responses_are_not_seen(way: Way) -> None:
    """No responses to requests of the server, and no progress of them."""
    watch = Watch()
    server = a_server(watch)

    @server.tool
    async def greet(ctx: Context[Any]) -> str:
        return f"Hello {await ctx.elicit('Who?', str)}"

    async with connected(server, way, era="2025", on_elicit=lambda form: {"value": "Ada"}) as client:
        assert (await client.call_tool("greet")).text == "Hello Ada"
    assert [method for method in watch.methods() if method != "tools/list"] == [
        "initialize",
        "notifications/initialized",
        "tools/call",
    ]


@pytest.mark.parametrize("way", [*_STREAMS, "http"])
async def test_what_is_refused_before(way: Way) -> None:
    """Nothing that is refused before a request exists."""
    watch = Watch()
    async with talking(a_server(watch), "2026", WAYS[way]) as talk:
        await talk.route.send(b"nonsense", "2026")
        assert json.loads(await talk.route.next())["error"]["code"] == -32700
        for meta in (
            {**META, "io.modelcontextprotocol/protocolVersion": "2031-01-01"},
            {**META, "io.modelcontextprotocol/clientCapabilities": 7},
        ):
            number = f"x{len(str(meta))}"
            asked = {"jsonrpc": "2.0", "id": number, "method": "acme/typed", "params": {"x": 1, "_meta": meta}}
            await talk.route.send(json.dumps(asked).encode(), "2026")
            assert (await talk.answer_to(number))["error"]["code"] in (-32022, -32602)
    assert watch.seen == []


@pytest.mark.parametrize("way", _STREAMS)
async def test_ids_in_use(way: Way) -> None:
    """Nothing that is refused before a request exists."""
    watch = Watch()
    server = a_server(watch)
    begun, gate = asyncio.Event(), asyncio.Event()

    @server.request("acme/wait")
    async def wait(ctx: Context[Any], params: Any) -> None:
        begun.set()
        await gate.wait()

    async with talking(server, "2025", WAYS[way]) as talk:
        waiting = await talk.begin("acme/wait")
        await begun.wait()
        await talk.say({"id": waiting, "method": "acme/typed", "params": {"x": 1}})
        assert (await talk.answer_to(waiting))["error"]["code"] == -32600
        gate.set()
        assert "result" in await talk.answer_to(waiting)
    assert watch.methods() == ["initialize", "notifications/initialized", "acme/wait"]


@on_streams
async def test_told_of_what_is_refused(way: Way, era: str) -> None:
    """The method `refused` of a middleware object is called for each such message."""

    class Told(Watch):
        def __init__(self) -> None:
            super().__init__()
            self.refusals: list[RefusedMessage] = []

        def refused(self, message: RefusedMessage) -> None:
            self.refusals.append(message)
            raise RuntimeError("it is logged")

    told = Told()
    async with talking(a_server(told), era, WAYS[way]) as talk:
        told.seen.clear()
        meta = {**META, "io.modelcontextprotocol/protocolVersion": "2031-01-01"}
        await talk.say({"id": "x", "method": "acme/typed", "params": {"x": 1, "_meta": meta}})
        answer = await talk.answer_to("x")
        assert await talk.call("add", a=1) == "2"
    (refusal,) = told.refusals
    assert (refusal.error.code, refusal.method, refusal.request_id) == (
        answer["error"]["code"],
        "acme/typed",
        answer["id"],
    )
    assert "acme/typed" not in told.methods()


async def test_headers_and_authentication_come_before() -> None:
    """Nothing that is refused before a request exists."""
    watch = Watch()

    def authenticate(scope: Any, headers: Any) -> Refusal | None:
        return Refusal(401, "Who are you?") if headers.get("authorization") is None else None

    asked = {"jsonrpc": "2.0", "id": 1, "method": "acme/typed", "params": {"x": 1, "_meta": META}}
    right = {**JSON_HEADERS, "MCP-Protocol-Version": NEWEST["2026"], "Mcp-Method": "acme/typed", "Authorization": "me"}
    wrong = [{"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"Mcp-Method": "ping"}]
    async with serving(a_server(watch), authenticate=authenticate) as site:
        found = [await site.ask({**right, **headers}, json.dumps(asked).encode()) for headers in wrong]
        del right["Authorization"]
        found.append(await site.ask(right, json.dumps(asked).encode()))
    assert [reply.status for reply in found] == [403, 403, 400, 401]
    assert watch.seen == []


# ---------------------------------------------------------------- what it can read


@everywhere
async def test_method_and_params(way: Way, era: str) -> None:
    """The method and the params as they were sent."""
    found: list[Any] = []

    async def look(ctx: Context[Any], call_next: CallNext) -> Any:
        if ctx.method != "tools/call":
            return await call_next(ctx)
        found.append((type(ctx.params), ctx.decoded_params["arguments"]))
        return await call_next(ctx)

    async with talking(a_server(look), era, WAYS[way]) as talk:
        await talk.call("add", a="one", c=None)
    assert found == [(msgspec.Raw, {"a": "one", "c": None})]


@everywhere
async def test_request_id(way: Way, era: str) -> None:
    """`ctx.request_id` is None for a notification."""
    watch = Watch()
    async with talking(a_server(watch), era, WAYS[way]) as talk:
        await talk.say({"id": "seven", "method": "acme/typed", "params": {"x": 1}})
        assert "result" in await talk.answer_to("seven")
        assert "result" in await talk.ask("acme/typed", x=1)
        await talk.say({"method": "notifications/acme", "params": {"x": 1}})
        await watch.outcome("notifications/acme")
    ids = [number for method, number, _ in watch.seen if "acme" in method]
    assert ids == ["seven", 1, None]


@everywhere
async def test_who_sent_it(way: Way, era: str) -> None:
    """Who sent it, and how."""
    found: list[Any] = []

    async def look(ctx: Context[Any], call_next: CallNext) -> Any:
        if ctx.method == "acme/typed":
            found.append((ctx.principal, ctx.scopes, ctx.protocol_version, ctx.meta.get("acme/key")))
            found.append((ctx.client_address is None, ctx.http_scope is None, ctx.headers.get("x-number")))
        return await call_next(ctx)

    options = {"headers": {"X-Number": "7"}} if way in ("http", "single") else {}
    async with connected(a_server(look), way, era=era, **options) as client:
        await client.request("acme/typed", {"x": 1, "_meta": {"acme/key": 7}})
    over_http = way in ("http", "single")
    assert found == [
        (None, frozenset(), NEWEST[era], 7),
        (not over_http and way != "websocket", not over_http, "7" if over_http else None),
    ]


@with_handshake
async def test_lifespan_state(way: Way) -> None:
    """What the lifespan yielded."""
    found: list[Any] = []

    @asynccontextmanager
    async def lifespan(server: Server[str]) -> AsyncIterator[str]:
        yield "state"

    async def look(ctx: Context[str], call_next: CallNext) -> Any:
        found.append(ctx.state)
        return await call_next(ctx)

    server = Server("x", lifespan=lifespan, middleware=[look])
    async with talking(server, "2025", WAYS[way]) as talk:
        await talk.ask("ping")
    assert set(found) == {"state"}
    assert len(found) >= 2


@with_handshake
async def test_nothing_is_agreed_during_initialize(way: Way) -> None:
    """While `initialize` is served, nothing is agreed yet."""
    found: list[Any] = []

    async def look(ctx: Context[Any], call_next: CallNext) -> Any:
        found.append((ctx.client_info, ctx.client_capabilities.roots))
        result = await call_next(ctx)
        found.append((ctx.client_info, ctx.client_capabilities.roots))
        found.append(ctx.decoded_params["clientInfo"]["name"])
        return result

    async with talking(a_server(on("initialize", look)), "2025", WAYS[way], shaken=False) as talk:
        assert "result" in await talk.ask("initialize", **{**HELLO, "capabilities": {"roots": {}}})
    assert found == [(None, None), (None, None), "m"]


# ---------------------------------------------------------------- what it can change


@everywhere
async def test_rewriting(way: Way, era: str) -> None:
    """The method and the params."""
    watch = Watch()

    async def rewrite(ctx: Context[Any], call_next: CallNext) -> Any:
        if ctx.method == "acme/plus":
            ctx = ctx.replace(method="tools/call", params={"name": "add", "arguments": {"a": 20}})
        elif ctx.method == "notifications/other":
            ctx = ctx.replace(method="notifications/acme", params={"x": 5})
        return await call_next(ctx)

    server = a_server(rewrite, watch)
    async with talking(server, era, WAYS[way]) as talk:
        assert (await talk.ask("acme/plus"))["result"]["content"][0]["text"] == "21"
        await talk.say({"method": "notifications/other"})
        assert await watch.outcome("notifications/acme") is None
    assert "acme/plus" not in watch.methods()


@everywhere
async def test_what_stays(way: Way, era: str) -> None:
    """Nothing else of the request."""
    found: list[Any] = []

    async def rewrite(ctx: Context[Any], call_next: CallNext) -> Any:
        changed = ctx.replace(params={"x": 2, "_meta": {"acme/key": "forged"}})
        result = await call_next(changed)
        found.append((ctx.decoded_params["x"], changed.decoded_params["x"], changed.meta["acme/key"]))
        found.append((changed.request_id, changed.protocol_version, changed.principal) == (1, NEWEST[era], None))
        return result

    async with talking(a_server(on("acme/typed", rewrite)), era, WAYS[way]) as talk:
        assert (await talk.ask("acme/typed", x=1, _meta={"acme/key": "true"}))["result"]["x"] == 2
    assert found == [(1, 2, "true"), True]


@pytest.mark.foreign_words("a middleware that answers by itself owns the shape")
@everywhere
async def test_results(way: Way, era: str) -> None:
    """The result."""

    async def change(ctx: Context[Any], call_next: CallNext) -> Any:
        result = await call_next(ctx)
        if ctx.method == "tools/call":
            return CallToolResult(content=[], structured_content=[1])
        return {"changed": [None]} if ctx.method == "acme/typed" else result

    async with talking(a_server(change), era, WAYS[way]) as talk:
        shaped = (await talk.ask("tools/call", name="add", arguments={"a": 1}))["result"]
        assert shaped["structuredContent"] == {"2025": {"result": [1]}, "2026": [1]}[era]
        assert shaped.get("resultType") == {"2025": None, "2026": "complete"}[era]
        assert (await talk.ask("acme/typed", x=1))["result"] == {"changed": [None]}


@everywhere
@pytest.mark.parametrize("wrong", [None, 7, "text", [1], True])
async def test_wrong_results(way: Way, era: str, wrong: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A result must be an object."""

    async def forgetful(ctx: Context[Any], call_next: CallNext) -> Any:
        await call_next(ctx)
        return wrong

    async with talking(a_server(on("acme/typed", forgetful)), era, WAYS[way]) as talk:
        error = (await talk.ask("acme/typed", x=1))["error"]
    assert error["code"] == -32603
    said = "nothing" if wrong is None else type(wrong).__name__
    assert f"acme/typed: a middleware returned {said}" in caplog.text


@pytest.mark.foreign_words("a middleware that answers by itself owns the shape")
@everywhere
async def test_whether_the_handler_runs(way: Way, era: str) -> None:
    """Whether the handler runs."""
    runs: list[int] = []

    async def choose(ctx: Context[Any], call_next: CallNext) -> Any:
        if ctx.method == "acme/missing":
            return {"cached": True}
        if ctx.method != "acme/count":
            return await call_next(ctx)
        for _ in range(ctx.decoded_params["times"]):
            await call_next(ctx)
        return {}

    server = a_server(choose)

    @server.request("acme/count")
    async def count(ctx: Context[Any], params: Any) -> None:
        runs.append(params["times"])

    async with talking(server, era, WAYS[way]) as talk:
        assert (await talk.ask("acme/missing"))["result"]["cached"] is True
        for times in (0, 1, 3):
            assert "result" in await talk.ask("acme/count", times=times)
    assert runs == [1, 3, 3, 3]


@with_handshake
async def test_initialize_cannot_be_rewritten(way: Way) -> None:
    """Not what `initialize` negotiates."""
    found: list[Any] = []

    async def rewrite(ctx: Context[Any], call_next: CallNext) -> Any:
        other = {**HELLO, "protocolVersion": "2024-11-05", "clientInfo": {"name": "forged", "version": "1"}}
        return await call_next(ctx.replace(params=other))

    server = a_server(on("initialize", rewrite))

    @server.request("acme/who")
    async def who(ctx: Context[Any], params: Any) -> None:
        found.append((ctx.client_info and ctx.client_info.name, ctx.protocol_version))

    async with talking(server, "2025", WAYS[way]) as talk:
        await talk.ask("acme/who")
    assert found == [("talk", NEWEST["2025"])]


@with_handshake
async def test_the_answer_to_initialize_is_agreed(way: Way) -> None:
    """But the answer to `initialize`."""
    found: list[Any] = []
    answers: list[Any] = [{"protocolVersion": "1999-01-01"}, {}, {"protocolVersion": "2025-06-18"}]

    async def answer(ctx: Context[Any], call_next: CallNext) -> Any:
        await call_next(ctx)
        return {"capabilities": {}, "serverInfo": {"name": "x", "version": "1"}, **answers.pop(0)}

    server = a_server(on("initialize", answer))

    @server.request("acme/who")
    async def who(ctx: Context[Any], params: Any) -> None:
        found.append(ctx.protocol_version)

    async with talking(server, "2025", WAYS[way], shaken=False) as talk:
        for _ in range(2):
            assert (await talk.ask("initialize", **HELLO))["error"]["code"] == -32600
        assert (await talk.ask("initialize", **HELLO))["result"]["protocolVersion"] == "2025-06-18"
        await talk.ask("acme/who")
    assert found == ["2025-06-18"]


# ---------------------------------------------------------------- refusing


@everywhere
@pytest.mark.parametrize("when", ["before", "after"])
async def test_raising(way: Way, era: str, when: str, caplog: pytest.LogCaptureFixture) -> None:
    """To refuse, raise."""
    errors: list[Exception] = [ProtocolError("not you", {"a": 1}, code=403), ValueError("the password is 1234")]

    async def guard(ctx: Context[Any], call_next: CallNext) -> Any:
        if when == "after":
            await call_next(ctx)
        raise errors.pop(0)

    async with talking(a_server(on("acme/typed", guard)), era, WAYS[way]) as talk:
        refused = (await talk.ask("acme/typed", x=1))["error"]
        crashed = (await talk.ask("acme/typed", x=1))["error"]
    assert refused == {"code": 403, "message": "not you", "data": {"a": 1}}
    assert crashed == {"code": -32603, "message": "Internal server error"}
    assert "ValueError: the password is 1234" in caplog.text
    assert "not you" not in caplog.text


@everywhere
async def test_tool_errors(way: Way, era: str) -> None:
    """A `ToolError` is for the model."""
    watch = Watch()

    async def deny(ctx: Context[Any], call_next: CallNext) -> Any:
        if ctx.method in ("tools/call", "acme/typed"):
            raise ToolError("ask an admin")
        return await call_next(ctx)

    async with talking(a_server(watch, deny), era, WAYS[way]) as talk:
        result = (await talk.ask("tools/call", name="add", arguments={"a": 1}))["result"]
        error = (await talk.ask("acme/typed", x=1))["error"]
    assert result["isError"] is True
    assert result["content"][0]["text"] == "ask an admin"
    assert (error["code"], error["message"]) == (-32603, "ask an admin")
    outcome = await watch.outcome("tools/call")
    assert isinstance(outcome, CallToolResult)
    assert outcome.is_error
    assert isinstance(await watch.outcome("acme/typed"), ProtocolError)


@everywhere
async def test_refusing_after_the_handler(way: Way, era: str) -> None:
    """Also after `call_next`."""
    runs: list[int] = []

    async def guard(ctx: Context[Any], call_next: CallNext) -> Any:
        await call_next(ctx)
        raise ProtocolError("too late", code=7)

    server = a_server(on("acme/count", guard))

    @server.request("acme/count")
    async def count(ctx: Context[Any], params: Any) -> None:
        runs.append(1)

    async with talking(server, era, WAYS[way]) as talk:
        assert (await talk.ask("acme/count"))["error"]["code"] == 7
    assert runs == [1]


@with_handshake
@pytest.mark.parametrize("when", ["before", "after"])
async def test_refusing_initialize(way: Way, when: str) -> None:
    """Raising in `initialize` leaves nothing behind."""
    vetoes = ["no", "no"]
    found: list[Any] = []

    async def veto(ctx: Context[Any], call_next: CallNext) -> Any:
        found.append((ctx.client_info, ctx.client_capabilities.roots))
        if when == "after":
            await call_next(ctx)
        if vetoes:
            raise InvalidParams(vetoes.pop())
        return await call_next(ctx)

    hello = {**HELLO, "capabilities": {"roots": {}}}
    async with talking(a_server(on("initialize", veto)), "2025", WAYS[way], shaken=False) as talk:
        for _ in range(2):
            assert (await talk.ask("initialize", **hello))["error"]["message"] == "no"
            if way == "http":
                assert not talk.route._session  # type: ignore[attr-defined]  # the headers that name the session
            else:
                assert (await talk.ask("tools/list"))["error"]["code"] == -32602
        assert "result" in await talk.ask("initialize", **hello)
        assert "result" in await talk.ask("tools/list")
    assert found == [(None, None)] * 3


@everywhere
async def test_dropping_notifications(way: Way, era: str) -> None:
    """A notification that is not passed on is dropped."""
    got: list[int] = []
    handled, seen = asyncio.Event(), asyncio.Event()

    async def drop(ctx: Context[Any], call_next: CallNext) -> Any:
        if ctx.decoded_params["x"] > 1:
            seen.set()
            return None
        return await call_next(ctx)

    server = a_server(on("notifications/mine", drop))

    @server.notification("notifications/mine", params=Point)
    async def mine(ctx: Context[Any], params: Point) -> None:
        got.append(params.x)
        handled.set()

    async with talking(server, era, WAYS[way]) as talk:
        for number in (1, 2):
            await talk.say({"method": "notifications/mine", "params": {"x": number}})
        await handled.wait()
        await seen.wait()
        await talk.ask("acme/missing")
    assert got == [1]


@with_handshake
async def test_initialized_takes_effect_innermost(way: Way) -> None:
    """A notification that is not passed on is dropped. `notifications/initialized` takes effect before its handler."""
    states: list[Any] = []
    done = asyncio.Event()

    async def look(ctx: Context[Any], call_next: CallNext) -> Any:
        states.append(served_call(ctx).session.connection.handshake.state)
        await call_next(ctx)
        states.append(served_call(ctx).session.connection.handshake.state)
        done.set()

    async with talking(a_server(on("notifications/initialized", look)), "2025", WAYS[way]) as talk:
        await done.wait()
        assert "result" in await talk.ask("ping")
    assert states == [HandshakeState.NEGOTIATED, HandshakeState.READY]


# ---------------------------------------------------------------- what it may send and ask


@pytest.mark.parametrize(("way", "era"), [(way, era) for way in (*_STREAMS, "http") for era in ("2025", "2026")])
async def test_asking(way: Way, era: str) -> None:
    """It may ask the client."""
    starts: list[str] = []
    asked: list[str] = []

    async def confirm(ctx: Context[Any], call_next: CallNext) -> Any:
        starts.append(ctx.method)
        await ctx.elicit("Really?", bool)
        return await call_next(ctx)

    server = a_server(on("tools/call", confirm))

    @server.tool
    async def greet(ctx: Context[Any]) -> str:
        return f"Hello {await ctx.elicit('Who?', str)}"

    async def answer(form: Any) -> Any:
        asked.append(form.message)
        return {"value": True} if form.message == "Really?" else {"value": "Ada"}

    async with connected(server, way, era=era, on_elicit=answer) as client:
        assert (await client.call_tool("greet")).text == "Hello Ada"
    assert asked == ["Really?", "Who?"]
    assert len(starts) == {"2025": 1, "2026": 3}[era]


@everywhere
async def test_telling(way: Way, era: str) -> None:
    """It may ask the client.

    What it tells the client is sent before the response.
    """

    async def tell(ctx: Context[Any], call_next: CallNext) -> Any:
        await ctx.notify("notifications/acme/told", {"when": "before"})
        result = await call_next(ctx)
        await ctx.notify("notifications/acme/told", {"when": "after"})
        return result

    async with talking(a_server(on("tools/call", tell)), era, WAYS[way]) as talk:
        assert await talk.call("add", a=1) == "2"
        heard = [message["params"]["when"] for message in talk.heard() if "method" in message]
    assert heard == ["before", "after"]


@with_handshake
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("question", ["elicit", "sample", "list_roots"])
async def test_asking_during_initialize(way: Way, question: str, when: str) -> None:
    """Where the client can't answer, asking raises `GemelError` at once."""
    ways: dict[str, Any] = {
        "elicit": lambda ctx: ctx.elicit("Who?", str),
        "sample": lambda ctx: ctx.sample("Hello", max_tokens=1),
        "list_roots": lambda ctx: ctx.list_roots(),
    }
    caught: list[str] = []

    async def curious(ctx: Context[Any], call_next: CallNext) -> Any:
        result = await call_next(ctx) if when == "after" else None
        with pytest.raises(GemelError) as error:
            await ways[question](ctx)
        caught.append(str(error.value))
        return result or await call_next(ctx)

    can: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
    async with talking(a_server(on("initialize", curious)), "2025", WAYS[way], shaken=False) as talk:
        assert "result" in await talk.ask("initialize", **{**HELLO, "capabilities": can})
    assert caught == ["The client can't be asked while initialize is being answered: it would never reply"]


@pytest.mark.parametrize("way", [*_STREAMS, "http"])
@pytest.mark.parametrize("method", ["acme/typed", "notifications/acme", "tools/list"])
async def test_asking_where_the_stateless_era_cannot(way: Way, method: str) -> None:
    """Where the client can't answer, asking raises `GemelError` at once."""
    caught: asyncio.Queue[Exception] = asyncio.Queue()

    async def curious(ctx: Context[Any], call_next: CallNext) -> Any:
        try:
            await ctx.list_roots()
        except GemelError as exc:
            caught.put_nowait(exc)
        return await call_next(ctx)

    async with talking(a_server(on(method, curious)), "2026", WAYS[way]) as talk:
        talk.capabilities = {"roots": {}, "elicitation": {"form": {}}}
        if method.startswith("notifications/"):
            await talk.say({"method": method, "params": {"x": 1}})
        else:
            assert "result" in await talk.ask(method, x=1)
        async with asyncio.timeout(10):
            assert isinstance(await caught.get(), GemelError)


@with_handshake
async def test_what_is_sent_during_initialize(way: Way) -> None:
    """Messages sent while `initialize` is served are held back."""
    vetoes = ["no"]

    async def tell(ctx: Context[Any], call_next: CallNext) -> Any:
        await ctx.notify("notifications/acme/told", {"when": "before"})
        result = await call_next(ctx)
        await ctx.notify("notifications/acme/told", {"when": "after"})
        if vetoes:
            raise InvalidParams(vetoes.pop())
        return result

    async with talking(a_server(on("initialize", tell)), "2025", WAYS[way], shaken=False) as talk:
        assert "error" in await talk.ask("initialize", **HELLO)
        assert talk.heard() == []
        number = await talk.begin("initialize", **HELLO)
        taken = [json.loads(await talk.route.next()) for _ in range(3)]
        assert talk.heard() == []
    assert [message.get("params", {}).get("when") for message in taken] == ["before", "after", None]
    assert taken[2]["id"] == number
    assert "result" in taken[2]


@with_handshake
@pytest.mark.parametrize("where", ["handler", "middleware"])
async def test_asking_from_notifications(way: Way, where: str) -> None:
    """Handlers and middlewares of notifications may also ask, in the handshake era."""
    found: asyncio.Queue[list[str]] = asyncio.Queue()
    method = "notifications/roots/list_changed"

    async def ask(ctx: Context[Any], params: Any) -> None:
        found.put_nowait([root.uri for root in await ctx.list_roots()])

    async def ask_first(ctx: Context[Any], call_next: CallNext) -> Any:
        await ask(ctx, None)
        return await call_next(ctx)

    server = a_server(*([on(method, ask_first)] if where == "middleware" else []))
    if where == "handler":
        server.notification(method)(ask)
    async with connected(server, way, era="2025", on_roots=["file:///home"]) as client:
        await client.notify(method)
        async with asyncio.timeout(10):
            assert await found.get() == ["file:///home"]


@everywhere
async def test_results_that_json_cannot_write(way: Way, era: str, caplog: pytest.LogCaptureFixture) -> None:
    """A tool result that can't be written as JSON is a failure of the tool."""
    content = {"high": float("nan")}

    async def spoil(ctx: Context[Any], call_next: CallNext) -> Any:
        return CallToolResult(content=[], structured_content=content)

    async with connected(a_server(on("tools/call", spoil)), way, era=era) as client:
        result = await client.call_tool("add", {"a": 1}, raise_on_error=False)
    assert (result.is_error, result.text) == (True, "The tool failed unexpectedly. The server's log says why.")
    assert "structured_content.high` has no JSON form" in caplog.text


@everywhere
async def test_requests_of_its_own(way: Way, era: str) -> None:
    """`ctx.ping` and `ctx.request` reach clients of the handshake era only."""
    found: list[str] = []

    async def ask(ctx: Context[Any], call_next: CallNext) -> Any:
        for asking in (ctx.ping(), ctx.request("acme/ask")):
            try:
                await asking
                found.append("answered")
            except PeerError as unknown:
                found.append(str(unknown.error.code))
            except GemelError:
                found.append("not sent")
        return await call_next(ctx)

    async with connected(a_server(on("tools/call", ask)), way, era=era) as client:
        await client.call_tool("add", {"a": 1})
    assert found == (["answered", "-32601"] if era == "2025" and way != "single" else ["not sent", "not sent"])


# ---------------------------------------------------------------- notifications


@everywhere
async def test_call_next_of_notifications(way: Way, era: str) -> None:
    """`call_next` returns None."""
    watch = Watch()
    async with talking(a_server(watch), era, WAYS[way]) as talk:
        for method, params in (
            ("notifications/acme", {"x": 1}),
            ("notifications/unknown", {}),
            ("notifications/subscriptions/acknowledged", {}),
        ):
            await talk.say({"method": method, "params": params})
            assert await watch.outcome(method) is None
        watch.seen.clear()
        await talk.say({"method": "notifications/acme", "params": {"x": "one"}})
        assert await watch.outcome("notifications/acme") is None


@everywhere
async def test_results_of_notifications(way: Way, era: str) -> None:
    """The return value of a middleware is not used."""
    done = asyncio.Event()

    async def chatty(ctx: Context[Any], call_next: CallNext) -> Any:
        await call_next(ctx)
        done.set()
        return {"nobody": "reads this"}

    async with talking(a_server(on("notifications/acme", chatty)), era, WAYS[way]) as talk:
        await talk.say({"method": "notifications/acme", "params": {"x": 1}})
        await done.wait()
        assert await talk.call("add", a=1) == "2"
        assert talk.heard() == []


@everywhere
async def test_errors_of_notifications(way: Way, era: str, caplog: pytest.LogCaptureFixture) -> None:
    """Exceptions are logged."""
    watch = Watch()
    async with talking(a_server(watch), era, WAYS[way]) as talk:
        await talk.say({"method": "notifications/acme", "params": {"x": -1}})
        assert isinstance(await watch.outcome("notifications/acme"), RuntimeError)
        assert await talk.call("add", a=1) == "2"
        assert talk.heard() == []
    assert "notifications/acme failed: boom" in caplog.text


# ---------------------------------------------------------------- exceptions


@everywhere
async def test_call_next_raises_what_was_raised(way: Way, era: str) -> None:
    """`call_next` raises the exception of the handler."""
    watch = Watch()
    async with talking(a_server(watch), era, WAYS[way]) as talk:
        assert (await talk.ask("acme/crash"))["error"] == {"code": -32603, "message": "Internal server error"}
    outcome = await watch.outcome("acme/crash")
    assert isinstance(outcome, LookupError)
    assert str(outcome) == "the password is 1234"


@everywhere
async def test_refusals_are_protocol_errors(way: Way, era: str) -> None:
    """Requests that Gemel refuses raise a `ProtocolError`: one of the class of its error."""
    watch = Watch()
    async with talking(a_server(watch), era, WAYS[way]) as talk:
        wire = (await talk.ask("acme/typed", x="one"))["error"]
        await talk.ask("acme/missing")
    outcome = await watch.outcome("acme/typed")
    assert isinstance(outcome, InvalidParams)
    assert (outcome.error.code, outcome.error.message) == (wire["code"], wire["message"])
    assert "x" in str(outcome.error.data)
    assert isinstance(await watch.outcome("acme/missing"), MethodNotFound)


@everywhere
async def test_failed_tools_are_results(way: Way, era: str) -> None:
    """A failed tool has a result."""
    watch = Watch()
    async with talking(a_server(watch), era, WAYS[way]) as talk:
        assert await talk.call("fail") == "no tea"
    outcome = await watch.outcome("tools/call")
    assert isinstance(outcome, CallToolResult)
    assert outcome.is_error


@everywhere
async def test_other_errors(way: Way, era: str) -> None:
    """A middleware may raise another error instead."""

    async def translate(ctx: Context[Any], call_next: CallNext) -> Any:
        try:
            return await call_next(ctx)
        except LookupError as exc:
            raise ProtocolError("Not found here", code=404) from exc

    async with talking(a_server(on("acme/crash", translate)), era, WAYS[way]) as talk:
        assert (await talk.ask("acme/crash"))["error"] == {"code": 404, "message": "Not found here"}


@everywhere
@pytest.mark.parametrize("swallowed", [True, False])
async def test_cancelled_requests(way: Way, era: str, swallowed: bool) -> None:
    """A cancelled request is an `asyncio.CancelledError`."""
    if (way, era) == ("single", "2025"):
        pytest.skip("without sessions, a cancellation finds no request")
    caught, begun = asyncio.Event(), asyncio.Event()

    async def clean(ctx: Context[Any], call_next: CallNext) -> Any:
        try:
            return await call_next(ctx)
        except asyncio.CancelledError:
            caught.set()
            if not swallowed:
                raise
            return {"too": "late"}

    server = a_server(on("acme/wait", clean))

    @server.request("acme/wait")
    async def wait(ctx: Context[Any], params: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with talking(server, era, WAYS[way]) as talk:
        waiting = await talk.begin("acme/wait")
        await begun.wait()
        await talk.route.cancel(waiting, era)
        async with asyncio.timeout(10):
            await caught.wait()
        assert await talk.call("add", a=1) == "2"
        assert talk.heard() == []


# ---------------------------------------------------------------- the page


def test_every_rule_of_the_page_has_a_test() -> None:
    rules = re.findall(r"^- \*\*(.+?)\*\*", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    tests = [value.__doc__ or "" for name, value in vars(sys.modules[__name__]).items() if name.startswith("test_")]
    assert [rule for rule in rules if not any(text.startswith(rule) for text in tests)] == []
