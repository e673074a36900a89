"""A server of the stateless era never sends a request: what a handler tries is an error at its own end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gemel import Context, GemelError, Server
from tests.wire import routes
from tests.wire.talk import Talk

ATTEMPTS: dict[str, Callable[[Context[Any]], Awaitable[Any]]] = {
    "elicit": lambda ctx: ctx.elicit("Who?", str),
    "elicit_url": lambda ctx: ctx.elicit_url("Look", "https://example.org"),
    "sample": lambda ctx: ctx.sample("Say something", max_tokens=5),
    "list_roots": lambda ctx: ctx.list_roots(),
}


@pytest.mark.parametrize("channel", ["memory", "unix", "http"])
async def test_a_request_to_a_stateless_client_raises_and_nothing_is_sent(channel: str) -> None:
    """BASE-14, MRTR-01: outside of the methods that have rounds."""
    server: Server[Any] = Server("asks")
    raised: list[str] = []

    @server.request("acme/ask")
    async def ask(ctx: Context[Any], params: Any) -> dict[str, Any]:
        for name, attempt in ATTEMPTS.items():
            try:
                await attempt(ctx)
            except GemelError:
                raised.append(name)
        return {}

    async with getattr(routes, channel)(server) as route:
        talk = Talk(route, "2026")
        talk.capabilities = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
        answer = await talk.ask("acme/ask")
        assert "result" in answer
        assert [message for message in talk.heard() if "id" in message] == []
    assert raised == list(ATTEMPTS)
