"""A server whose every answer the test writes: it speaks raw messages over memory and knows nothing by itself.

It is a Transport, so a client connects to it as to any other; each connection counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from gemel import Limits
from gemel.channel import Transport
from gemel.transports.memory import connect
from tests.support import DEFAULT_LIMITS, V2025_11, V2026_07, Channel, Outgoing, Serve
from tests.wire.routes import Ear

META = "io.modelcontextprotocol/"
INFO = {"name": "puppet", "version": "7"}

Answer: TypeAlias = Any
#: From a request or notification to what is said in return: a result (a dict), an Error, several messages, or Nothing.
React: TypeAlias = Callable[["Puppet", dict[str, Any]], Answer]


class Error:
    """An error answer."""

    def __init__(self, code: int, message: str = "no", data: Any = None) -> None:
        self.body = {"code": code, "message": message, **({} if data is None else {"data": data})}


class Silence:
    """No answer at all, at least not now."""


class HangUp:
    """The connection ends, without an answer."""


SILENCE, HANG_UP = Silence(), HangUp()


class Puppet(Transport):
    """The server. `by_method` are results, errors or functions of (puppet, message); what it doesn't name is -32601."""

    def __init__(self, by_method: Mapping[str, Answer] | None = None, *, limits: Limits = DEFAULT_LIMITS) -> None:
        self.by_method: dict[str, Answer] = dict(by_method or {})
        self.limits = limits
        #: Everything that came, in order, over all connections.
        self.came: list[dict[str, Any]] = []
        self.connections = 0
        self._channel: Channel | None = None
        self._saying: set[asyncio.Task[None]] = set()

    # ---------------------------------------------------------------- the transport

    async def open(self, serve: Serve, /) -> Channel:
        """A new connection."""
        self.connections += 1

        def begin(channel: Channel) -> Ear:
            self._channel = channel
            return Ear(self._take)

        return await connect(begin, limits=self.limits).open(serve)

    @property
    def channel(self) -> Channel:
        """The newest connection."""
        assert self._channel is not None
        return self._channel

    # ---------------------------------------------------------------- what it hears and says

    def _take(self, data: bytes) -> None:
        message = msgspec.json.decode(data)
        self.came.append(message)
        if "method" not in message:
            return
        answer = self.by_method.get(message["method"], Error(-32601, "Method not found"))
        if callable(answer):
            answer = answer(self, message)
        if answer is HANG_UP:
            self.hang_up()
        elif "id" in message and answer is not SILENCE:
            self.answer(message, answer)

    def answer(self, message: Mapping[str, Any], answer: Answer) -> None:
        """Answer a request."""
        body = {"error": answer.body} if isinstance(answer, Error) else {"result": answer}
        self.say({"id": message["id"], **body})

    def say(self, *messages: Mapping[str, Any]) -> None:
        """Send messages, as they are but for `jsonrpc`."""
        self._start(self._send([msgspec.json.encode({"jsonrpc": "2.0", **message}) for message in messages]))

    def say_raw(self, text: bytes) -> None:
        """Send a text."""
        self._start(self._send([text]))

    async def _send(self, texts: list[bytes]) -> None:
        assert self._channel is not None
        for text in texts:
            await self._channel.send(Outgoing(text))

    def hang_up(self) -> None:
        """End the connection."""
        assert self._channel is not None
        self._start(self._channel.close())

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._saying.add(task)
        task.add_done_callback(self._saying.discard)

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until something has come."""
        async with asyncio.timeout(60):
            while not condition():  # noqa: ASYNC110 (a test looks from outside, there is nothing to be told by)
                await asyncio.sleep(0.001)

    # ---------------------------------------------------------------- what it is asked about

    def methods(self) -> list[str]:
        """The methods that came, in order."""
        return [message["method"] for message in self.came if "method" in message]

    def asked(self, method: str) -> list[dict[str, Any]]:
        """The params of all requests and notifications of this method."""
        return [message.get("params", {}) for message in self.came if message.get("method") == method]


def discovered(*versions: str, **members: Any) -> dict[str, Any]:
    """What `server/discover` answers."""
    meta = {f"{META}serverInfo": INFO}
    found = {"resultType": "complete", "supportedVersions": list(versions or (V2026_07,)), "_meta": meta}
    return {**found, "capabilities": {"tools": {}, "logging": {}}, "ttlMs": 0, "cacheScope": "private", **members}


def shaken(revision: str = V2025_11, **members: Any) -> dict[str, Any]:
    """What `initialize` answers."""
    capabilities: dict[str, Any] = {"tools": {}, "logging": {}}
    return {"protocolVersion": revision, "capabilities": capabilities, "serverInfo": INFO, **members}


def modern(**by_method: Answer) -> Puppet:
    """A stateless server; methods are given with `_` for `/`."""
    return Puppet({"server/discover": discovered(), **_named(by_method)})


def legacy(**by_method: Answer) -> Puppet:
    """A handshake server."""
    return Puppet({"initialize": shaken(), "ping": {}, "logging/setLevel": {}, **_named(by_method)})


def _named(by_method: Mapping[str, Answer]) -> dict[str, Answer]:
    return {name.replace("_", "/"): answer for name, answer in by_method.items()}


def done(text: str = "done", **members: Any) -> dict[str, Any]:
    """The result of a tool."""
    return {"resultType": "complete", "content": [{"type": "text", "text": text}], **members}
