"""A client that sends what a test says, over any route: for what `gemel.Client` would never send, or would hide.

Knows routes and JSON, nothing of `gemel.client`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from gemel import Server
from tests.wire.routes import Route, memory
from tests.wire.scenario import NEWEST

META = "io.modelcontextprotocol/"


class Refusal(Exception):
    """The server answered with an error: `code`, `message` and `data` (None without)."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(str(error))
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: Any = error.get("data")


class Talk:
    """One client on one route. Ids count from 1 for each client, on purpose.

    `capabilities` are declared in the handshake, with `revision`, or with each request.
    """

    def __init__(
        self,
        route: Route,
        era: str,
        name: str = "talk",
        *,
        revision: str = NEWEST["2025"],
        capabilities: dict[str, Any] | None = None,
    ) -> None:
        self.route = route
        self.era = era
        self.revision = revision
        self.info = {"name": name, "version": "1"}
        self.capabilities: dict[str, Any] = capabilities or {}
        self._last = 0

    async def open(self) -> Talk:
        """Shake hands, where the era wants it."""
        if self.era == "2025":
            params = {"protocolVersion": self.revision, "capabilities": self.capabilities, "clientInfo": self.info}
            await self.say({"id": 0, "method": "initialize", "params": params})
            assert "result" in await self.answer_to(0)
            await self.say({"method": "notifications/initialized"})
        return self

    async def say(self, message: dict[str, Any]) -> None:
        """Send a message; a stateless one gets its `_meta`."""
        if self.era == "2026" and "method" in message:
            meta = {
                f"{META}protocolVersion": NEWEST["2026"],
                f"{META}clientCapabilities": self.capabilities,
                f"{META}clientInfo": self.info,
            }
            params = message.get("params", {})
            message = {**message, "params": {**params, "_meta": {**meta, **params.get("_meta", {})}}}
        await self.route.send(json.dumps({"jsonrpc": "2.0", **message}).encode(), self.era)

    async def begin(self, method: str, **params: Any) -> int:
        """Send a request; its id."""
        self._last += 1
        await self.say({"id": self._last, "method": method, "params": params})
        return self._last

    async def answer_to(self, request_id: Any) -> dict[str, Any]:
        """The answer to a request, once it has come; what else came stays in the inbox."""

        def fits(data: bytes) -> bool:
            message = json.loads(data)
            return "method" not in message and message.get("id") == request_id

        found: dict[str, Any] = json.loads(await self.route.next(fits))
        return found

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """A request and its answer."""
        return await self.answer_to(await self.begin(method, **params))

    async def result(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a request. Raises Refusal."""
        answer = await self.ask(method, **params)
        if "error" in answer:
            raise Refusal(answer["error"])
        found: dict[str, Any] = answer["result"]
        return found

    async def call(self, tool: str, /, **arguments: Any) -> str:
        """The text of a tool's result."""
        answer = await self.ask("tools/call", name=tool, arguments=arguments)
        return str(answer["result"]["content"][0]["text"]) if answer["result"]["content"] else ""

    async def hear(self, method: str) -> dict[str, Any]:
        """The next notification of this method; its params."""
        found: dict[str, Any] = json.loads(await self.route.next(lambda data: json.loads(data).get("method") == method))
        params: dict[str, Any] = found.get("params", {})
        return params

    def heard(self) -> list[dict[str, Any]]:
        """What has come and was not asked for yet, taken out of the inbox."""
        found = [json.loads(data) for data in self.route.inbox]
        self.route.inbox.clear()
        return found


@asynccontextmanager
async def talking(
    server: Server[Any],
    era: str,
    way: Callable[[Server[Any]], AbstractAsyncContextManager[Route]] = memory,
    *,
    shaken: bool = True,
    revision: str = NEWEST["2025"],
    **capabilities: Any,
) -> AsyncIterator[Talk]:
    """A client of this server with these capabilities, on one of the routes; after the handshake, unless the test makes it."""
    async with way(server) as route:
        talk = Talk(route, era, revision=revision, capabilities=capabilities)
        if shaken:
            await talk.open()
        yield talk
