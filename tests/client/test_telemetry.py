"""Spans of what a client sends, and the trace that goes with it, against the real OpenTelemetry SDK."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from gemel import CallTimeout, Client, Context, InvalidParams, PeerError, Server, ToolCallError, ToolError
from gemel.client.targets import network_attributes
from gemel.transports.http.client.transport import HttpTransport
from gemel.transports.stream.sockets import TcpSocket, UnixSocket
from tests.client.puppet import SILENCE, Puppet, done, legacy, modern
from tests.transports.http_rig import serving

_exporter = InMemorySpanExporter()
both_eras = pytest.mark.parametrize("era", ["2025", "2026"])


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(_exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)  # set_tracer_provider can't be taken back
    _exporter.clear()
    yield _exporter
    _exporter.clear()


def a_server() -> Server[Any]:
    server: Server[Any] = Server("traced")

    @server.tool
    async def fine() -> str:
        return "fine"

    @server.tool
    async def broken() -> str:
        raise ToolError("broken")

    @server.tool
    async def who(ctx: Context[Any]) -> str:
        return await ctx.elicit("Who are you?", str)

    @server.tool
    async def carried() -> str:
        return str(baggage.get_baggage("user"))

    @server.prompt
    async def brief() -> str:
        return "brief"

    @server.resource("data://one")
    async def one() -> str:
        return "one"

    @server.notification("notifications/acme")
    async def noted(ctx: Context[Any], params: Any) -> None:
        return None

    return server


def spans_of(exporter: InMemorySpanExporter, kind: SpanKind, name: str) -> list[ReadableSpan]:
    return [one for one in exporter.get_finished_spans() if one.kind is kind and one.name == name]


def of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@asynccontextmanager
async def reached(route: str, era: Any, **options: Any) -> AsyncIterator[Client]:
    server = a_server()
    if route == "memory":
        async with Client(server, era=era, **options) as client:
            yield client
    else:
        async with serving(server) as site, Client(f"http://127.0.0.1:{site.port}/mcp", era=era, **options) as client:
            yield client


@both_eras
@pytest.mark.parametrize("route", ["memory", "http"])
async def test_the_servers_span_is_a_child_of_the_clients(spans: InMemorySpanExporter, route: str, era: Any) -> None:
    """META-06: through `_meta`, whatever carries it, and the client's span a child of the caller's."""
    tracer = trace.get_tracer("application")
    async with reached(route, era) as client:
        with tracer.start_as_current_span("work") as work:
            await client.call_tool("fine")
    (asked,) = spans_of(spans, SpanKind.CLIENT, "tools/call fine")
    (served,) = spans_of(spans, SpanKind.SERVER, "tools/call fine")
    assert asked.context is not None
    assert served.context is not None
    assert asked.parent is not None
    assert served.parent is not None
    assert asked.parent.span_id == work.get_span_context().span_id
    assert served.parent.span_id == asked.context.span_id
    assert {asked.context.trace_id, served.context.trace_id} == {work.get_span_context().trace_id}
    assert of(asked)["jsonrpc.request.id"] == of(served)["jsonrpc.request.id"]


@both_eras
async def test_a_span_says_what_was_asked_and_nothing_of_what_with(spans: InMemorySpanExporter, era: Any) -> None:
    async with reached("http", era) as client:
        await client.get_prompt("brief")
        await client.read_resource("data://one")
        await client.list_tools()
        with pytest.raises(PeerError):
            await client.request("acme/missing", {"secret": "canary"})
        version = client.protocol_version
    (prompt,) = spans_of(spans, SpanKind.CLIENT, "prompts/get brief")
    found = of(prompt)
    assert found.pop("server.port") > 0
    assert found.pop("jsonrpc.request.id").isdecimal()
    assert ("mcp.session.id" in found) is (era == "2025")
    found.pop("mcp.session.id", None)
    assert found == {
        "mcp.method.name": "prompts/get",
        "gen_ai.prompt.name": "brief",
        "mcp.protocol.version": version,
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "network.protocol.version": "1.1",
        "server.address": "127.0.0.1",
    }
    (read,) = spans_of(spans, SpanKind.CLIENT, "resources/read")
    assert of(read)["mcp.resource.uri"] == "data://one"
    (missing,) = spans_of(spans, SpanKind.CLIENT, "acme/missing")
    assert missing.status.status_code is StatusCode.ERROR
    assert of(missing)["error.type"] == of(missing)["rpc.response.status_code"] == "-32601"
    assert "canary" not in "".join(one.to_json() for one in spans.get_finished_spans())


@both_eras
async def test_a_refusal_that_quotes_the_arguments_is_not_quoted(spans: InMemorySpanExporter, era: Any) -> None:
    """A server may name the values that it refuses."""
    server = a_server()

    @server.request("acme/strict")
    async def strict(ctx: Context[Any], params: Any) -> None:
        raise InvalidParams(f"age: got {params['age']!r}", params["age"])

    async with Client(server, era=era) as client:
        with pytest.raises(PeerError, match="canary"):
            await client.request("acme/strict", {"age": "canary"})
    (span,) = spans_of(spans, SpanKind.CLIENT, "acme/strict")
    assert span.status.description == "Invalid request parameters"
    assert "canary" not in "".join(one.to_json() for one in spans.get_finished_spans())


async def test_a_tools_own_failure_and_a_timeout_are_errors_of_their_kind(spans: InMemorySpanExporter) -> None:
    async with reached("memory", "2026") as client:
        with pytest.raises(ToolCallError):
            await client.call_tool("broken")
        await client.call_tool("fine")
    (broken,) = spans_of(spans, SpanKind.CLIENT, "tools/call broken")
    assert (broken.status.status_code, of(broken)["error.type"]) == (StatusCode.ERROR, "tool_error")
    assert of(broken)["gen_ai.operation.name"] == "execute_tool"
    (fine,) = spans_of(spans, SpanKind.CLIENT, "tools/call fine")
    assert fine.status.status_code is StatusCode.UNSET
    async with Client(modern(tools_call=SILENCE)) as client:
        with pytest.raises(CallTimeout):
            await client.call_tool("mute", idle=0.01)
        call = asyncio.ensure_future(client.call_tool("unwanted"))
        await asyncio.sleep(0.01)
        call.cancel()
        await asyncio.wait([call])
    (mute,) = spans_of(spans, SpanKind.CLIENT, "tools/call mute")
    assert of(mute)["error.type"] == "CallTimeout"
    (unwanted,) = spans_of(spans, SpanKind.CLIENT, "tools/call unwanted")
    assert of(unwanted)["error.type"] == "cancelled"


@both_eras
async def test_every_request_that_leaves_has_its_own_span(spans: InMemorySpanExporter, era: Any) -> None:
    """Opening, rounds of questions and notifications included."""
    async with reached("memory", era, on_elicit=lambda form: {"value": "me"}) as client:
        await client.call_tool("who")
        await client.notify("notifications/acme")
        await client.call_tool("fine")
    opening = "initialize" if era == "2025" else "server/discover"
    (opened,) = spans_of(spans, SpanKind.CLIENT, opening)
    (served,) = spans_of(spans, SpanKind.SERVER, f"{opening}")
    assert opened.context is not None
    assert served.parent is not None
    assert served.parent.span_id == opened.context.span_id
    assert len(spans_of(spans, SpanKind.CLIENT, "tools/call who")) == (1 if era == "2025" else 2)
    (said,) = spans_of(spans, SpanKind.CLIENT, "notifications/acme")
    (heard,) = spans_of(spans, SpanKind.SERVER, "notifications/acme")
    assert said.context is not None
    assert heard.parent is not None
    assert heard.parent.span_id == said.context.span_id


@both_eras
async def test_listening_has_a_span_as_long_as_it_lasts(spans: InMemorySpanExporter, era: Any) -> None:
    async with reached("memory", era) as client:
        async with client.listen(tools=True, resources=["data://one"]):
            assert not spans_of(spans, SpanKind.CLIENT, "subscriptions/listen")
        await client.ping()
    method = "subscriptions/listen" if era == "2026" else "resources/subscribe"
    (span,) = spans_of(spans, SpanKind.CLIENT, method)
    (served,) = spans_of(spans, SpanKind.SERVER, f"{method}")
    assert span.context is not None
    assert served.parent is not None
    assert served.parent.span_id == span.context.span_id


@both_eras
async def test_baggage_travels_too(spans: InMemorySpanExporter, era: Any) -> None:
    """META-06."""
    puppet = Puppet(modern(tools_call=done()).by_method | legacy(tools_call=done()).by_method)
    async with Client(puppet, era=era) as client:
        token = context.attach(baggage.set_baggage("user", "seven"))
        try:
            await client.call_tool("t")
        finally:
            context.detach(token)
    (params,) = puppet.asked("tools/call")
    assert params["_meta"]["baggage"] == "user=seven"
    assert params["_meta"]["traceparent"].startswith("00-")


@both_eras
async def test_a_trace_that_the_caller_gives_goes_before_ours(spans: InMemorySpanExporter, era: Any) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with reached("memory", era) as client:
        await client.call_tool("fine", meta={"traceparent": parent})
    (served,) = spans_of(spans, SpanKind.SERVER, "tools/call fine")
    assert served.parent is not None
    assert f"{served.parent.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"


async def test_only_what_the_specification_knows_is_put_into_meta(
    spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else an application propagates."""
    from opentelemetry import propagate
    from opentelemetry.propagators.textmap import TextMapPropagator

    class Own(TextMapPropagator):
        def inject(self, carrier: Any, context: Any = None, setter: Any = None) -> None:
            carrier["x-own-trace"] = "1"

        def extract(self, carrier: Any, context: Any = None, getter: Any = None) -> Any:
            return context

        @property
        def fields(self) -> set[str]:
            return {"x-own-trace"}

    monkeypatch.setattr(propagate, "propagator", Own())
    puppet = modern(tools_call=done())
    async with Client(puppet) as client:
        await client.call_tool("t")
    assert "x-own-trace" not in puppet.asked("tools/call")[0]["_meta"]


def test_a_place_is_named_without_what_may_be_secret() -> None:
    url = HttpTransport("https://host.example/secret/mcp?token=1")
    assert network_attributes(url) == {
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "server.address": "host.example",
        "server.port": 443,
    }
    assert network_attributes(TcpSocket("::1", 7)) == {
        "network.transport": "tcp",
        "server.address": "::1",
        "server.port": 7,
    }
    assert network_attributes(UnixSocket("/s")) == {"network.transport": "unix", "server.address": "/s"}
    assert network_attributes(Puppet()) == {}


@pytest.mark.parametrize("before", ["", "import opentelemetry.trace\n"])
def test_without_a_provider_nothing_is_written_and_nothing_imported(before: str) -> None:
    code = before + (
        "import asyncio, sys, gemel\n"
        "from tests.client.puppet import modern, done\n"
        "there = set(sys.modules)\n"
        "async def main():\n"
        "    puppet = modern(tools_call=done())\n"
        "    async with gemel.Client(puppet) as client: await client.call_tool('t')\n"
        "    print('traceparent' in puppet.asked('tools/call')[0]['_meta'])\n"
        "asyncio.run(main())\n"
        "print([name for name in set(sys.modules) - there if name.startswith('opentelemetry')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.split("\n")[:2] == ["False", "[]"]
