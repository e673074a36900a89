"""Spans of requests and notifications, against the real OpenTelemetry SDK."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from hinge import Client, MissingClientCapability, PeerError, Server
from tests.support import V2025_11

_exporter = InMemorySpanExporter()


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(_exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)  # set_tracer_provider can't be taken back
    _exporter.clear()
    yield _exporter
    _exporter.clear()


def _server() -> Server[Any]:
    server: Server[Any] = Server("traced")

    @server.tool
    async def fine() -> str:
        return "fine"

    @server.tool
    async def needy() -> str:
        raise MissingClientCapability({"sampling": {}})

    @server.request("acme/crash")
    async def crash(ctx: Any, params: Any) -> None:
        raise RuntimeError("boom")

    return server


def _span(exporter: InMemorySpanExporter, name: str) -> ReadableSpan:
    return next(span for span in exporter.get_finished_spans() if span.name == name)


async def test_a_request_is_one_server_span_named_by_its_method_and_target(spans: InMemorySpanExporter) -> None:
    """A-060, A-061, A-062, A-063, A-069."""
    async with Client(_server(), era="2026") as client:
        await client.call_tool("fine")
    span = _span(spans, "MCP handle tools/call fine")
    assert span.kind is SpanKind.SERVER
    assert span.attributes is not None
    assert span.attributes["mcp.method.name"] == "tools/call"
    assert span.attributes["jsonrpc.request.id"].__class__ is str
    assert span.status.status_code is not StatusCode.ERROR


async def test_the_parent_comes_from_the_trace_context_in_meta(spans: InMemorySpanExporter) -> None:
    """A-064, META-05, META-06."""
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with Client(_server(), era="2026") as client:
        await client.request("tools/call", {"name": "fine", "arguments": {}, "_meta": {"traceparent": parent}})
    span = _span(spans, "MCP handle tools/call fine")
    assert span.parent is not None
    assert f"{span.parent.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"


async def test_garbage_in_the_trace_context_is_ignored(spans: InMemorySpanExporter) -> None:
    """META-06."""
    async with Client(_server(), era="2026") as client:
        meta = {"traceparent": "nonsense", "tracestate": 5, "baggage": None}
        await client.request("tools/call", {"name": "fine", "arguments": {}, "_meta": meta})
    assert _span(spans, "MCP handle tools/call fine").parent is None


async def test_a_protocol_error_marks_the_span_but_is_no_recorded_exception(spans: InMemorySpanExporter) -> None:
    """A-065, A-066."""
    async with Client(_server(), era="2026") as client:
        with pytest.raises(PeerError):
            await client.call_tool("needy")
    span = _span(spans, "MCP handle tools/call needy")
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == "Missing required client capability: sampling"
    assert not span.events


@pytest.mark.foreign_words("a tool whose name is a number")
async def test_what_a_client_sent_never_stands_in_a_span(spans: InMemorySpanExporter) -> None:
    """A-067."""
    async with Client(_server(), era="2026") as client:
        with pytest.raises(PeerError):
            await client.request("tools/call", {"name": 5, "arguments": {}})
    span = _span(spans, "MCP handle tools/call")
    assert span.status.description == "Invalid request parameters"


async def test_a_clients_names_are_cut_and_a_revision_is_said_once_it_is_agreed(spans: InMemorySpanExporter) -> None:
    """A-060: what a stranger sends has no say in how much is kept of it."""
    long = "x" * 100_000
    async with Client(_server(), era="2025") as client:
        with pytest.raises(PeerError):
            await client.call_tool(long)
        with pytest.raises(PeerError):
            await client.request(long)
    served = [span for span in spans.get_finished_spans() if span.kind is SpanKind.SERVER]
    assert all(len(span.name) < 500 for span in served)
    said = {span.name: dict(span.attributes or {}).get("mcp.protocol.version") for span in served}
    assert said.pop("MCP handle initialize") is None
    assert set(said.values()) == {V2025_11}


async def test_an_unexpected_exception_is_recorded(spans: InMemorySpanExporter) -> None:
    """A-068."""
    async with Client(_server(), era="2026") as client:
        with pytest.raises(PeerError, match="Internal server error"):
            await client.request("acme/crash")
    span = _span(spans, "MCP handle acme/crash")
    assert span.status.description == "boom"
    assert [event.name for event in span.events] == ["exception"]


async def test_notifications_have_spans_too(spans: InMemorySpanExporter) -> None:
    """A-022, A-024."""
    async with Client(_server(), era="2025") as client:
        await client.call_tool("fine")
    span = _span(spans, "MCP handle notifications/initialized")
    assert span.attributes is not None
    assert "jsonrpc.request.id" not in span.attributes


def test_without_a_provider_nothing_of_opentelemetry_is_imported() -> None:
    code = (
        "import asyncio, sys, hinge\n"
        "server = hinge.Server('x')\n"
        "@server.tool\n"
        "async def fine() -> str: return 'fine'\n"
        "async def main():\n"
        "    async with hinge.Client(server) as client: await client.call_tool('fine')\n"
        "asyncio.run(main())\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == "[]"
