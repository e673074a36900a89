"""The bare client's end of a conversation with a server in this process: says exactly what a test wants said, in both eras.

It is a channel that keeps what the server sends, and feeds the real session; nothing of `gemel.client` is in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Literal, Self

import msgspec

from gemel import Server
from gemel.session import Session
from tests.support import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    PROTOCOL_VERSION,
    V2025_11,
    V2026_07,
    Call,
    ChannelKind,
    Origin,
    Outgoing,
)

Era = Literal["2025", "2026"]
Answer = Callable[[str, Any], Any]


class BareEnd:
    """One conversation. `capabilities` are declared on each request, or in the handshake, as is `revision` of that era."""

    def __init__(
        self,
        server: Server[Any],
        era: Era = "2026",
        *,
        capabilities: Mapping[str, Any] | None = None,
        origin: Origin | None = None,
        answer: Answer | None = None,
        kind: ChannelKind = "memory",
        revision: str = V2025_11,
    ) -> None:
        self.era = era
        self.capabilities = dict(capabilities or {})
        self.origin = origin or Origin()
        #: What the server sent besides the answers to our requests.
        self.heard: list[dict[str, Any]] = []
        self._kind: ChannelKind = kind
        self._revision = revision
        self._answer = answer
        self._next_id = 0
        self._arrived = asyncio.Event()
        self._listening: asyncio.Task[Any] | None = None
        self.session: Session = server.serve(self)

    @property
    def kind(self) -> ChannelKind:
        """As which transport it passes."""
        return self._kind

    def close_stream(self, call: Call, retry_ms: int, /) -> bool:
        return False

    def set_revision(self, revision: str, /) -> None:
        pass

    async def send(self, message: Outgoing, /) -> None:
        """The server says something; questions are answered at once if there is an answer for them."""
        heard = msgspec.json.decode(message.data)
        self.heard.append(heard)
        self._arrived.set()
        if "id" in heard and "method" in heard and self._answer is not None:
            result = self._answer(heard["method"], heard.get("params"))
            self.feed({"jsonrpc": "2.0", "id": heard["id"], "result": result})

    async def close(self) -> None:
        """There is nothing to close."""

    def feed(self, message: Mapping[str, Any]) -> Any:
        """Give the session one message."""
        return self.session.receive(msgspec.json.encode(message), self.origin)

    async def __aenter__(self) -> Self:
        if self.era == "2025":
            params = {
                "protocolVersion": self._revision,
                "capabilities": self.capabilities,
                "clientInfo": {"name": "bare", "version": "1"},
            }
            self.welcome = await self.ask("initialize", params)
            await self.tell("notifications/initialized")
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.session.close("the test is over")
        await self.session.wait_closed()
        if self._listening is not None:
            await self._listening

    def _params(self, params: Mapping[str, Any] | None) -> dict[str, Any]:
        found = dict(params or {})
        if self.era == "2026":
            meta = {PROTOCOL_VERSION: V2026_07, CLIENT_CAPABILITIES: self.capabilities}
            meta[CLIENT_INFO] = {"name": "bare", "version": "1"}
            found["_meta"] = {**meta, **found.get("_meta", {})}
        return found

    def begin(self, method: str, params: Mapping[str, Any] | None = None) -> Call | Outgoing:
        """Send a request, without its being served yet."""
        self._next_id += 1
        request = {"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": self._params(params)}
        got = self.feed(request)
        assert isinstance(got, Call | Outgoing)
        return got

    async def reply(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The whole answer to a request: a message with `result` or `error`."""
        got = self.begin(method, params)
        if isinstance(got, Call):
            answered = await self.session.answer(got)
            assert answered is not None, "no answer"
            got = answered
        reply: dict[str, Any] = msgspec.json.decode(got.data)
        return reply

    async def ask(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The result of a request, which must be one."""
        reply = await self.reply(method, params)
        assert "result" in reply, reply
        result: dict[str, Any] = reply["result"]
        return result

    async def refusal(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The error of a request, which must be one."""
        reply = await self.reply(method, params)
        assert "error" in reply, reply
        error: dict[str, Any] = reply["error"]
        return error

    async def tell(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification."""
        got = self.feed({"jsonrpc": "2.0", "method": method, "params": self._params(params)})
        if isinstance(got, Call):
            await self.session.answer(got)

    async def listen(self, key: str, wanted: Any = True) -> None:
        """Hear of changes from now on: by a stream of its own in the stateless era, unasked before."""
        if self.era == "2026":
            call = self.begin("subscriptions/listen", {"notifications": {key: wanted}})
            assert isinstance(call, Call)
            self._listening = asyncio.create_task(self.session.answer(call))
            await self.wait_for("notifications/subscriptions/acknowledged")

    async def call_tool(self, name: str, **arguments: Any) -> dict[str, Any]:
        """The result of a tool."""
        return await self.ask("tools/call", {"name": name, "arguments": arguments})

    async def text_of(self, params: Mapping[str, Any]) -> str:
        """The text of a tool's result, for a call with these params."""
        result = await self.ask("tools/call", params)
        return "\n".join(block["text"] for block in result["content"])

    async def text(self, name: str, **arguments: Any) -> str:
        """The text of a tool's result."""
        result = await self.call_tool(name, **arguments)
        return "\n".join(block["text"] for block in result["content"])

    async def names(self, kind: str = "tools") -> list[str]:
        """The names in a list, of all pages (the URIs of resources)."""
        method = "resources/templates/list" if kind == "resourceTemplates" else f"{kind}/list"
        names: list[str] = []
        params: dict[str, Any] = {}
        while True:
            page = await self.ask(method, params)
            names += [item.get("uri") or item.get("uriTemplate") or item["name"] for item in page[kind]]
            if "nextCursor" not in page:
                return names
            params = {"cursor": page["nextCursor"]}

    async def wait_for(self, method: str) -> dict[str, Any]:
        """The params of the first notification or question of this method, when it has come."""
        async with asyncio.timeout(5):
            while True:
                found = next((one for one in self.heard if one.get("method") == method), None)
                if found is not None:
                    params: dict[str, Any] = found.get("params", {})
                    return params
                self._arrived.clear()
                await self._arrived.wait()
