"""A client without any cleverness, for tests of what a server says: one memory channel, one answer for each request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from gemel import Server
from gemel.transports.memory import connect
from tests.support import UNKNOWN_ORIGIN, V2025_11, V2026_07, Batch, Call, Channel, Inbound, Origin, Outgoing

ERAS = ("2025", "2026")
_META = "io.modelcontextprotocol/"
REVISIONS = {"2025": V2025_11, "2026": V2026_07}


class Refusal(Exception):
    """The server answered with an error: `code`, `message` and `data` (None without)."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(str(error))
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: Any = error.get("data")


class Peer:
    """The client's end. `heard` keeps the notifications, as method and params."""

    def __init__(self, channel: Channel, era: str) -> None:
        self._channel = channel
        self.era = era
        self.heard: list[tuple[str, Any]] = []
        self._came = asyncio.Event()
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        #: What this client can do, in the stateless era said with every request.
        self.capabilities: dict[str, Any] = {}

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a request. Raises Refusal."""
        answer = await self.begin(method, **params)
        if "error" in answer:
            raise Refusal(answer["error"])
        result: dict[str, Any] = answer["result"]
        return result

    def begin(self, method: str, **params: Any) -> asyncio.Future[dict[str, Any]]:
        """Send a request; the future gets the whole answer."""
        number = len(self._waiting) + 1
        if self.era == "2026":
            said = {"protocolVersion": REVISIONS["2026"], "clientCapabilities": self.capabilities}
            params["_meta"] = {f"{_META}{key}": value for key, value in said.items()}
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        self._send(message)
        return future

    def _send(self, message: dict[str, Any]) -> None:
        self._sending = asyncio.ensure_future(self._channel.send(Outgoing(msgspec.json.encode(message))))

    async def hears(self, method: str) -> Any:
        """The params of the next notification of this method, taken off `heard`."""
        async with asyncio.timeout(5):
            while True:
                for place, (found, params) in enumerate(self.heard):
                    if found == method:
                        del self.heard[place]
                        return params
                self._came.clear()
                await self._came.wait()

    async def shake_hands(self) -> None:
        """What comes first in the handshake era."""
        info = {"name": "peer", "version": "0"}
        await self.ask("initialize", protocolVersion=REVISIONS["2025"], capabilities=self.capabilities, clientInfo=info)
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    # ---------------------------------------------------------------- what the channel calls

    def receive(self, data: bytes | Inbound, origin: Origin = UNKNOWN_ORIGIN, /) -> None:
        assert isinstance(data, bytes)
        message = msgspec.json.decode(data)
        if "method" in message:
            self.heard.append((message["method"], message.get("params")))
            self._came.set()
        else:
            self._waiting[message["id"]].set_result(message)

    async def answer(self, call: Call | Batch, /) -> Outgoing | None:
        raise AssertionError("nobody asks this client")

    def note(self, deviation: str, detail: str = "", /) -> None:
        """Do nothing: no deviation matters here."""

    def cancel(self, call: Call | Batch, reason: str, /) -> None:
        raise AssertionError("nothing to cancel")

    def end_input(self, reason: str, /) -> None: ...

    def stop(self, reason: str, /) -> list[Outgoing]:
        return []

    def close(self, reason: str, /) -> None:
        for future in self._waiting.values():
            future.cancel()

    async def wait_closed(self) -> None: ...


@asynccontextmanager
async def talking_to(server: Server[Any], era: str, **capabilities: Any) -> AsyncIterator[Peer]:
    """A conversation with a server, ready for requests."""
    peers: list[Peer] = []

    def serve(channel: Channel) -> Peer:
        peers.append(Peer(channel, era))
        return peers[0]

    async with server.running():
        channel = await connect(server.serve).open(serve)
        peers[0].capabilities = capabilities
        if era == "2025":
            await peers[0].shake_hands()
        yield peers[0]
        await channel.close()
