"""Calls are spans of the tracer provider that the application has set."""

import asyncio
from typing import Any

from opentelemetry import trace

from gemel import Client, Server

server = Server("shop")
started: list[str] = []


class Tracer(trace.NoOpTracer):
    """Notes the names of spans."""

    def start_span(self, name: str, *arguments: Any, **options: Any) -> trace.Span:
        """Note it."""
        started.append(name)
        return super().start_span(name, *arguments, **options)


class Provider(trace.TracerProvider):
    """Gives the tracer above to everybody."""

    def get_tracer(self, *arguments: Any, **options: Any) -> trace.Tracer:
        """Give it."""
        return Tracer()


@server.tool
def tea() -> str:
    """Make tea."""
    return "tea"


async def main() -> None:
    trace.set_tracer_provider(Provider())
    async with Client(server) as client:
        await client.call_tool("tea")
    assert started.count("tools/call tea") == 2, started


asyncio.run(main())
