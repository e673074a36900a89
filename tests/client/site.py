"""A server over HTTP without a socket: a Wire that answers by the method and the user of a request, and counts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from gemel.http1.client.wire import HeaderPairs

URL = "https://example.test/mcp"


class Reply:
    """An HTTP response."""

    def __init__(self, message: Mapping[str, Any] | None, status: int = 200, session: str | None = None) -> None:
        self.status = status if message is not None or status != 200 else 202
        self.headers: Mapping[str, str] = {"content-type": "application/json"} | (
            {"mcp-session-id": session} if session else {}
        )
        self._parts = [b"" if message is None else json.dumps(message).encode(), b""]

    async def read(self) -> bytes:
        return self._parts.pop(0) if self._parts else b""

    def close(self, *, drain: bool = False) -> None:
        pass


class Site:
    """A server over HTTP that lists a tool named after the Authorization (or X-User) of the request."""

    def __init__(self, *, scope: str = "private", refuse: Callable[[str], bool] = lambda user: False) -> None:
        self.scope = scope
        self.refuse = refuse
        #: What is answered to a method instead.
        self.replies: dict[str, Callable[[dict[str, Any]], Reply]] = {}
        #: The user and the method of each request.
        self.requests: list[tuple[str, str]] = []
        self.sessions = 0
        #: Set when a request has come; it is answered when the other one is set.
        self.begun = asyncio.Event()
        self.answering = asyncio.Event()
        self.answering.set()

    def __call__(self) -> Site:
        return self

    async def open(self, method: str, url: str, headers: HeaderPairs, body: bytes | None, /) -> Reply:
        if method != "POST" or body is None:
            return Reply(None, 405)
        fields = {name.lower(): value for name, value in headers}
        user = fields.get("authorization") or fields.get("x-user", "")
        message = json.loads(body)
        self.requests.append((user, message["method"]))
        self.begun.set()
        await self.answering.wait()
        if self.refuse(user):
            return Reply(None, 401)
        if message["method"] in self.replies:
            return self.replies[message["method"]](message)
        if message["method"] == "server/discover":
            result: Any = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        elif message["method"] == "initialize":
            self.sessions += 1
            result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}
        elif message["method"] == "tools/list":
            schema = {"type": "object", "required": [user]}
            tools = [{"name": name, "inputSchema": {}, "outputSchema": schema} for name in (f"tool-of-{user}", "any")]
            result = {"tools": tools, "ttlMs": 60_000, "cacheScope": self.scope}
        else:
            result = {"content": [], "structuredContent": {user: 1}}
        if "id" not in message:
            return Reply(None)
        reply = {"jsonrpc": "2.0", "id": message["id"], "result": {"resultType": "complete", **result}}
        return Reply(reply, session=f"s{self.sessions}" if message["method"] == "initialize" else None)

    async def close(self) -> None:
        pass

    def count(self, method: str) -> int:
        """How many requests of a method came."""
        return sum(each == method for _, each in self.requests)

    @property
    def lists(self) -> list[str]:
        """The users that the list was fetched for."""
        return [user for user, method in self.requests if method == "tools/list"]
