"""Spans and metrics of what a server receives, against the real OpenTelemetry SDK."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from opentelemetry import baggage, trace
from opentelemetry.trace import SpanKind, StatusCode
from starlette.applications import Starlette
from starlette.routing import Mount

from gemel import (
    CallToolResult,
    Changed,
    Client,
    Context,
    Limits,
    MissingClientCapability,
    PeerError,
    Principal,
    Server,
    ToolCallError,
)
from gemel.protocol.limits import FIXED_LIMITS
from gemel.spans import BOUNDARIES
from tests.observed import Observed, attributes, observing
from tests.server.bare_end import BareEnd
from tests.support import PROTOCOL_VERSION, V2025_11, V2026_07
from tests.transports.http_rig import JSON_HEADERS, handshake_call, initialize, modern_call, serving
from tests.transports.loops import until

ERAS = {"2025": V2025_11, "2026": V2026_07}
IN_META = "00-11111111111111111111111111111111-2222222222222222-01"
both_eras = pytest.mark.parametrize("era", list(ERAS))


@pytest.fixture
def observed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Observed]:
    yield from observing(monkeypatch)


def _server(**options: Any) -> Server[Any]:
    server: Server[Any] = Server("traced", **options)

    @server.tool
    async def fine() -> str:
        return "fine"

    @server.tool
    async def failed() -> CallToolResult:
        return CallToolResult(content=[], is_error=True)

    @server.tool
    async def crashes() -> str:
        raise RuntimeError("boom")

    @server.tool
    async def needy() -> str:
        raise MissingClientCapability({"sampling": {}})

    @server.tool
    async def carried() -> str:
        return str(baggage.get_baggage("user"))

    @server.tool
    async def asks(ctx: Context[Any]) -> str:
        return await ctx.elicit("Who?", str)

    @server.prompt
    async def brief() -> str:
        return "brief"

    @server.resource("data://one")
    async def one() -> str:
        return "one"

    @server.request("acme/crash")
    async def crash(ctx: Any, params: Any) -> None:
        raise RuntimeError("boom")

    return server


def served(observed: Observed, name: str) -> Any:
    return observed.span(SpanKind.SERVER, name)


# ---------------------------------------------------------------- spans


@both_eras
async def test_a_request_over_http_is_one_server_span_as_the_conventions_have_it(observed: Observed, era: Any) -> None:
    async def authenticate(*request: Any) -> Principal:
        return Principal("ada")

    site, address = serving(_server(), authenticate=authenticate), "http://127.0.0.1:{}/mcp"
    async with site as running, Client(address.format(running.port), era=era) as client:
        await client.call_tool("fine")
        await client.get_prompt("brief")
        await client.read_resource("data://one")
        with pytest.raises(PeerError):
            await client.request("acme/missing")
    span = served(observed, "tools/call fine")
    assert span.status.status_code is StatusCode.UNSET
    found = attributes(span)
    assert found.pop("jsonrpc.request.id").isdecimal()
    assert found.pop("client.port") > 0
    if era == "2025":
        assert found.pop("mcp.session.id")
    assert found.pop("mcp.client.version")
    assert found == {
        "mcp.method.name": "tools/call",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "fine",
        "mcp.protocol.version": ERAS[era],
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "network.protocol.version": "1.1",
        "client.address": "127.0.0.1",
        "enduser.id": "ada",
        "mcp.client.name": "gemel",
    }
    assert attributes(served(observed, "prompts/get brief"))["gen_ai.prompt.name"] == "brief"
    assert attributes(served(observed, "resources/read"))["mcp.resource.uri"] == "data://one"
    assert attributes(served(observed, "acme/missing"))["mcp.client.name"] == "gemel"


async def test_initialize_says_which_revision_was_negotiated(observed: Observed) -> None:
    async with Client(_server(), era="2025"):
        pass
    for kind in (SpanKind.CLIENT, SpanKind.SERVER):
        assert attributes(observed.span(kind, "initialize"))["mcp.protocol.version"] == V2025_11


@pytest.mark.foreign_words("a tool whose name is a number")
async def test_a_name_that_is_no_text_is_no_target(observed: Observed) -> None:
    """And what a client sent is not in the description."""
    async with Client(_server(), era="2026") as client:
        with pytest.raises(PeerError):
            await client.request("tools/call", {"name": 5, "arguments": {}})
    assert served(observed, "tools/call").status.description == "Invalid request parameters"


async def test_the_parent_comes_from_the_trace_context_in_meta_and_the_current_span_is_linked(
    observed: Observed,
) -> None:
    """META-06."""
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    meta = {"traceparent": parent, "baggage": "user=seven"}
    with trace.get_tracer("web framework").start_as_current_span("POST") as ambient:
        async with Client(_server(), era="2026") as client:
            result = await client.request("tools/call", {"name": "carried", "arguments": {}, "_meta": meta})
    span = served(observed, "tools/call carried")
    assert f"{span.parent.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    assert [link.context.span_id for link in span.links] == [ambient.get_span_context().span_id]
    assert "seven" in str(result)


@both_eras
@pytest.mark.parametrize("place", ["span of the web framework", "header", "header and span", "_meta and span"])
async def test_without_trace_context_in_meta_the_request_says_what_the_parent_is(
    observed: Observed, era: Any, place: str
) -> None:
    """Starlette with a span around each request, and a client that knows nothing of traces."""
    server = _server()
    web = Starlette(routes=[Mount("/", server.http_app())])
    header = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "baggage": "user=seven"}
    headers, sent = (header if "header" in place else {}), ({"traceparent": IN_META} if "_meta" in place else {})
    ambient: list[trace.SpanContext] = []

    async def traced(scope: Any, receive: Any, send: Any) -> None:
        if "span" not in place:
            return await web(scope, receive, send)
        with trace.get_tracer("web").start_as_current_span("POST /mcp") as span:
            ambient.append(span.get_span_context())
            return await web(scope, receive, send)

    async with server.running(), serving(Server("outer"), routes={"/web/": traced}) as site:
        if era == "2025":
            hello = {**JSON_HEADERS, **headers}
            session = (await site.ask(hello, initialize(), path="/web/mcp")).headers["mcp-session-id"]
            headers = {**hello, "Mcp-Session-Id": session, "MCP-Protocol-Version": V2025_11}
            call = handshake_call("carried")
        else:
            own, call = modern_call("carried")
            headers = {**own, **headers}
        call["params"]["_meta"].update(sent)
        reply = await site.ask(headers, call, path="/web/mcp")
    span = served(observed, "tools/call carried")
    parent = (f"{span.parent.trace_id:032x}", f"{span.parent.span_id:016x}")
    current = [(f"{one.trace_id:032x}", f"{one.span_id:016x}") for one in ambient]
    named = tuple((IN_META if "_meta" in place else header["traceparent"]).split("-")[1:3])
    assert parent == (current[-1] if place in ("span of the web framework", "header and span") else named)
    assert [link.context for link in span.links] == (ambient[-1:] if "_meta" in place else [])
    assert (b"seven" in reply.body) == (place == "header")


async def test_garbage_in_the_trace_context_is_ignored(observed: Observed) -> None:
    """META-06."""
    async with Client(_server(), era="2026") as client:
        meta = {"traceparent": "nonsense", "tracestate": 5, "baggage": None}
        await client.request("tools/call", {"name": "fine", "arguments": {}, "_meta": meta})
    assert served(observed, "tools/call fine").parent is None


async def test_a_protocol_error_marks_the_span_but_is_no_recorded_exception(observed: Observed) -> None:
    async with Client(_server(), era="2026") as client:
        with pytest.raises(PeerError):
            await client.call_tool("needy")
    span = served(observed, "tools/call needy")
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == "Missing required client capability: sampling"
    assert attributes(span)["error.type"] == attributes(span)["rpc.response.status_code"] == "-32021"
    assert not span.events


@both_eras
async def test_a_failed_tool_and_a_crashed_one_are_errors_and_the_crash_is_recorded(
    observed: Observed, era: Any
) -> None:
    """Although both are answered with a result."""
    async with Client(_server(), era=era) as client:
        for name in ("failed", "crashes"):
            with pytest.raises(ToolCallError):
                await client.call_tool(name)
    for name, events in (("failed", []), ("crashes", ["exception"])):
        span = served(observed, f"tools/call {name}")
        assert (span.status.status_code, attributes(span)["error.type"]) == (StatusCode.ERROR, "tool_error")
        assert [event.name for event in span.events] == events


async def test_an_unexpected_exception_is_recorded_and_named_as_the_peer_sees_it(observed: Observed) -> None:
    async with Client(_server(), era="2026") as client:
        with pytest.raises(PeerError, match="Internal server error"):
            await client.request("acme/crash")
    span = served(observed, "acme/crash")
    assert span.status.description == "Internal server error"
    assert attributes(span)["error.type"] == "-32603"
    assert [event.name for event in span.events] == ["exception"]


async def test_notifications_have_spans_too(observed: Observed) -> None:
    async with Client(_server(), era="2025") as client:
        await client.call_tool("fine")
    assert "jsonrpc.request.id" not in attributes(served(observed, "notifications/initialized"))


async def test_a_request_of_the_server_has_a_span_on_both_sides(observed: Observed) -> None:
    async with Client(_server(), era="2025", on_elicit=lambda form: {"value": "Ada"}) as client:
        await client.call_tool("asks")
    call, sent, answered = (
        served(observed, "tools/call asks"),
        observed.span(SpanKind.CLIENT, "elicitation/create"),
        served(observed, "elicitation/create"),
    )
    assert sent.parent is not None
    assert sent.context is not None
    assert answered.parent is not None
    assert (sent.parent.span_id, answered.parent.span_id) == (call.context.span_id, sent.context.span_id)


async def test_what_a_stranger_sends_has_no_say_in_how_much_is_recorded(observed: Observed) -> None:
    long = "x" * 100_000
    async with Client(_server(), era="2025") as client:
        with pytest.raises(PeerError):
            await client.call_tool(long)
        with pytest.raises(PeerError):
            await client.read_resource("x:" + long)
        with pytest.raises(PeerError):
            await client.request(long)
    spans = [span for name in observed.names(SpanKind.SERVER) for span in observed.spans(SpanKind.SERVER, name)]
    assert max(len(span.to_json()) for span in spans) < 5000


# ---------------------------------------------------------------- metrics


@both_eras
async def test_the_duration_of_each_operation_is_measured_on_both_sides(observed: Observed, era: Any) -> None:
    async with serving(_server()) as site, Client(f"http://127.0.0.1:{site.port}/mcp", era=era) as client:
        await client.call_tool("fine")
        with pytest.raises(ToolCallError):
            await client.call_tool("failed")
    shared = {
        "mcp.method.name": "tools/call",
        "gen_ai.operation.name": "execute_tool",
        "mcp.protocol.version": ERAS[era],
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "network.protocol.version": "1.1",
    }
    for side, address in (("client", {"server.address": "127.0.0.1", "server.port": site.port}), ("server", {})):
        points = observed.points(f"mcp.{side}.operation.duration")
        (fine,) = (point for point in points if attributes(point).get("gen_ai.tool.name") == "fine")
        assert attributes(fine) == {**shared, **address, "gen_ai.tool.name": "fine"}
        assert (fine.count, tuple(fine.explicit_bounds)) == (1, BOUNDARIES)
        (failed,) = (point for point in points if attributes(point).get("gen_ai.tool.name") == "failed")
        assert attributes(failed)["error.type"] == "tool_error"


@both_eras
async def test_the_duration_of_each_session_is_measured_on_both_sides(observed: Observed, era: Any) -> None:
    async with Client(_server(), era=era) as client:
        await client.call_tool("fine")
        (active,) = observed.points("gemel.server.active_sessions")
        assert active.value == 1
    (mine,) = observed.points("mcp.client.session.duration")
    (theirs,) = observed.points("mcp.server.session.duration")
    assert (mine.count, theirs.count) == (1, 1)
    assert attributes(mine) == {"mcp.protocol.version": ERAS[era]}
    assert attributes(theirs) == {"mcp.protocol.version": ERAS[era]}
    (active,) = observed.points("gemel.server.active_sessions")
    assert active.value == 0


async def test_names_that_peers_make_up_do_not_multiply_the_metrics(observed: Observed) -> None:
    """Each set of attributes is kept in memory as long as the process lives."""
    async with Client(_server(), era="2026") as client:
        for number in range(50):
            with pytest.raises(PeerError):
                await client.request(f"acme/{number}")
            await client.notify(f"notifications/acme{number}")
            with pytest.raises(PeerError):
                await client.request("tools/call", {"name": f"tool{number}", "arguments": {}})
            with pytest.raises(PeerError):
                await client.read_resource(f"data://{number}")
    assert len(observed.points("mcp.server.operation.duration")) < 10
    assert "_OTHER" in {
        attributes(point)["mcp.method.name"] for point in observed.points("gemel.server.active_requests")
    }


async def test_requests_in_flight_are_counted(observed: Observed) -> None:
    counts: list[int] = []
    server: Server[Any] = Server("counted")

    @server.tool
    async def active() -> str:
        points = observed.points("gemel.server.active_requests")
        counts.extend(point.value for point in points if attributes(point) == {"mcp.method.name": "tools/call"})
        return ""

    async with Client(server) as client:
        await client.call_tool("active")
    assert counts == [1]
    assert {point.value for point in observed.points("gemel.server.active_requests")} == {0}


async def test_subscriptions_are_counted_while_they_are_open(observed: Observed) -> None:
    async with Client(_server(), era="2026") as client, client.listen(tools=True):
        assert [point.value for point in observed.points("gemel.server.active_subscriptions")] == [1]
    assert [point.value for point in observed.points("gemel.server.active_subscriptions")] == [0]


def _streams(observed: Observed) -> int:
    return sum(point.value for point in observed.points("gemel.server.active_streams"))


@pytest.mark.parametrize("kind", ["listen", "GET of a session", "answer", "HTTP+SSE"])
async def test_event_streams_are_counted_while_they_are_open(observed: Observed, kind: str) -> None:
    """Whatever they carry, and however they end; a JSON answer is none."""
    server, counts = _server(), list[int]()

    @server.tool
    async def streams(ctx: Context[Any]) -> str:
        before = _streams(observed)
        await ctx.report_progress(1)
        await until(lambda: _streams(observed) > before or kind == "HTTP+SSE")
        counts.append(_streams(observed))
        return ""

    async with serving(server, sse_path="/sse") as site:
        path: str
        era: Any
        path, era = (
            ("sse", "2025") if kind == "HTTP+SSE" else ("mcp", "2026" if kind in ("listen", "answer") else "2025")
        )
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(Client(f"http://127.0.0.1:{site.port}/{path}", era=era))
            if kind == "listen":
                await stack.enter_async_context(client.listen(tools=True))
            if kind == "answer":
                await client.call_tool("fine")
                assert _streams(observed) == 0
            else:
                await until(lambda: _streams(observed) == 1)
            await client.call_tool("streams", on_progress=lambda progress: None)
            assert counts == [1 if kind in ("answer", "HTTP+SSE") else 2]
        await until(lambda: _streams(observed) == 0)


async def test_messages_that_no_middleware_sees_are_counted_by_their_error(observed: Observed) -> None:
    async with BareEnd(Server("busy"), "2025") as end:
        for _ in range(2):
            end.feed({"jsonrpc": "2.0", "id": 8})
        end.feed({"jsonrpc": "2.0", "id": 9, "method": "ping", "params": {"_meta": {PROTOCOL_VERSION: "2031-01-01"}}})
    points = observed.points("gemel.server.refused_messages")
    assert {point.attributes["error.type"]: point.value for point in points} == {"-32600": 2, "-32602": 1}


async def test_changes_that_a_slow_reader_loses_are_counted(observed: Observed) -> None:
    """More changes than fit its queue become one notification that everything may have changed."""
    server: Server[Any] = Server("busy")

    @server.resource("data://all")
    async def everything() -> str:
        return ""

    @server.resource("data://all/{name}")
    async def data(name: str) -> str:
        return name

    async with Client(server, era="2026") as client, client.listen(resources=["data://all"]) as changes:
        server.notify(Changed("resource", "data://all/first"))
        await anext(changes)  # read, and so not lost
        published = FIXED_LIMITS.queued_changes + 20
        for number in range(published):  # the reader gets no turn meanwhile
            server.notify(Changed("resource", f"data://all/{number}"))
        await until(lambda: observed.points("gemel.server.dropped_changes"))
        assert [point.value for point in observed.points("gemel.server.dropped_changes")] == [published]


async def test_the_lag_of_the_event_loop_is_measured(observed: Observed) -> None:
    server = _server(limits=Limits(stall=0.01))

    async with Client(server), asyncio.timeout(10):
        while not observed.points("gemel.event_loop.lag"):  # noqa: ASYNC110 # a thread measures it
            await asyncio.sleep(0.01)


def test_prometheus_finds_the_metrics_beside_the_endpoint() -> None:
    """In a process of its own, where the provider that is installed stays."""
    code = (
        "import asyncio, gemel, urllib.request\n"
        "from gemel import metrics_app\n"
        "from tests.transports.http_rig import serving\n"
        "app = metrics_app()\n"
        "assert metrics_app() is app\n"
        "server = gemel.Server('x')\n"
        "@server.tool\n"
        "async def fine() -> str: return 'fine'\n"
        "async def main():\n"
        "    async with serving(server, routes={'/metrics': app}) as site:\n"
        "        address = f'http://127.0.0.1:{site.port}'\n"
        "        async with gemel.Client(address + '/mcp') as client: await client.call_tool('fine')\n"
        "        print(await asyncio.to_thread(lambda: urllib.request.urlopen(address + '/metrics').read().decode()))\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    assert 'mcp_server_operation_duration_seconds_count{gen_ai_operation_name="execute_tool"' in done.stdout
    assert "gemel_server_active_requests" in done.stdout


def test_metrics_beside_an_endpoint_with_authentication_need_a_token() -> None:
    code = (
        "import asyncio, gemel\n"
        "from gemel import metrics_app\n"
        "from gemel.auth import StaticTokens\n"
        "from tests.transports.http_rig import serving\n"
        "for options in ({'auth': StaticTokens({'a' * 32: 'ann'})}, {}):\n"
        "    server, more = gemel.Server('x', **options), {} if options else {'authenticate': lambda *_: None}\n"
        "    try: server.http_app(routes={'/metrics': metrics_app()}, **more)\n"
        "    except gemel.DefinitionError as exc: print(exc)\n"
        "    server.http_app(routes={'/metrics': metrics_app(public=True)}, **more)\n"
        "async def main():\n"
        "    async with serving(gemel.Server('x'), routes={'/metrics': metrics_app(token='s3cret')}) as site:\n"
        "        for sent in ({}, {'Authorization': 'Bearer other'}, {'Authorization': 'Bearer s3cret'}):\n"
        "            print((await site.ask(sent, None, 'GET', '/metrics')).status)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    first, second, *statuses = done.stdout.splitlines()
    assert first == second
    assert first.startswith("/metrics would tell everybody what this server has")
    assert statuses == ["401", "401", "200"]


# ---------------------------------------------------------------- without telemetry


def test_without_a_provider_nothing_of_opentelemetry_is_imported() -> None:
    code = (
        "import asyncio, sys, gemel\n"
        "server = gemel.Server('x')\n"
        "@server.tool\n"
        "async def fine() -> str: return 'fine'\n"
        "async def main():\n"
        "    async with gemel.Client(server) as client: await client.call_tool('fine')\n"
        "asyncio.run(main())\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == "[]"


def test_without_a_provider_a_call_takes_no_step_more() -> None:
    """The API alone, imported by another library, adds no function to the path of a call."""
    code = (
        "import asyncio, sys, gemel\n"
        "server = gemel.Server('x')\n"
        "@server.tool\n"
        "async def fine() -> str: return 'fine'\n"
        "def count(client):\n"
        "    functions = []\n"
        "    return functions, lambda frame, event, argument: functions.append(frame.f_code) if event == 'call' else None\n"
        "async def steps():\n"
        "    async with gemel.Client(server) as client:\n"
        "        for _ in range(20): await client.call_tool('fine')\n"
        "        counts = []\n"
        "        for _ in range(5):\n"
        "            functions, profile = count(client)\n"
        "            sys.setprofile(profile)\n"
        "            await client.call_tool('fine')\n"
        "            sys.setprofile(None)\n"
        "            counts.append(len(functions))\n"
        "        return min(counts)\n"
        "without = asyncio.run(steps())\n"
        "import opentelemetry.trace, opentelemetry.metrics\n"
        "print(without, asyncio.run(steps()))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    without, imported = map(int, done.stdout.split())
    assert 0 < imported <= without
