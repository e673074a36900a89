"""A raw HTTP server on loopback that does exactly what a test says, and the least conversation a channel can have."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Self

import msgspec

from gemel import Limits, PeerError
from gemel.jsonrpc import Message, RequestId, decode, encode_request, encode_response
from gemel.protocol.eras.handshake import HANDSHAKE
from gemel.protocol.states import CallState, PendingState
from gemel.transports.http.client.transport import HttpChannel, HttpTransport
from tests.support import (
    DEFAULT_LIMITS,
    UNKNOWN_ORIGIN,
    Batch,
    Call,
    Channel,
    Inbound,
    LostAnswer,
    Notification,
    Origin,
    Outgoing,
    Pending,
    Request,
    Response,
)
from tests.transports.quiet_session import QuietSession


class Asked:
    """One request that the server got."""

    def __init__(self, method: str, path: str, headers: dict[str, str], body: bytes, at: float) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        self.body = body
        #: When it was read, by the loop's clock.
        self.at = at

    @property
    def message(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class Answer:
    """Writes what the test wants, byte for byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def raw(self, data: bytes) -> None:
        """Any bytes."""
        self.writer.write(data)
        await self.writer.drain()

    async def body(
        self,
        data: bytes = b"",
        kind: str = "application/json",
        status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """A whole response with a length."""
        lines = [f"HTTP/1.1 {status} X", f"content-length: {len(data)}"]
        if kind:
            lines.append(f"content-type: {kind}")
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        await self.raw(("\r\n".join(lines) + "\r\n\r\n").encode() + data)

    async def json(self, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """A whole JSON response."""
        await self.body(json.dumps(value).encode(), status=status, headers=headers)

    async def result(self, asked: Asked, result: Any = None, headers: Mapping[str, str] | None = None) -> None:
        """The JSON answer to the request in `asked`."""
        await self.json(result_of(asked, result), headers=headers)

    async def stream(self, headers: Mapping[str, str] | None = None, kind: str = "text/event-stream") -> None:
        """The head of an event stream."""
        lines = ["HTTP/1.1 200 OK", f"content-type: {kind}", "transfer-encoding: chunked"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        await self.raw(("\r\n".join(lines) + "\r\n\r\n").encode())

    async def chunk(self, data: bytes) -> None:
        """One chunk of a stream."""
        await self.raw(b"%x\r\n%b\r\n" % (len(data), data))

    async def event(self, value: Any, id: str | None = None, retry: int | None = None) -> None:
        """One event: a message, or nothing for an empty string."""
        lines = [] if id is None else [f"id: {id}"]
        lines += [] if retry is None else [f"retry: {retry}"]
        lines.append("data: " + ("" if value == "" else json.dumps(value)))
        await self.chunk(("\n".join(lines) + "\n\n").encode())

    async def end(self) -> None:
        """The end of a stream, in good order."""
        await self.raw(b"0\r\n\r\n")

    async def gone(self) -> None:
        """Wait until the client has closed this connection."""
        try:
            while await self.reader.read(65536):
                pass
        except ConnectionError:
            pass

    def close(self) -> None:
        """Close the connection."""
        self.writer.close()

    def reset(self) -> None:
        """Break the connection off with an RST."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Script = Callable[[Asked, Answer], Awaitable[None]]


class ScriptedServer:
    """Serves each request with the script; a script that fails shows when the server ends."""

    def __init__(self, script: Script, tls: ssl.SSLContext | None = None) -> None:
        self._script = script
        self._tls = tls
        self.asked: list[Asked] = []
        self.connections = 0
        #: Connections that are open now, and the most that there were.
        self.open = 0
        self.most = 0
        self.failures: list[BaseException] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._tls, backlog=1024)
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}/mcp"
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self.failures:
            raise self.failures[0]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            while (asked := await self._read(reader)) is not None:
                self.asked.append(asked)
                await self._script(asked, Answer(reader, writer))
        except (ConnectionError, asyncio.CancelledError):
            pass
        except BaseException as exc:
            self.failures.append(exc)
        finally:
            self.open -= 1
            self._tasks.discard(task)
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> Asked | None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            method, path, _ = head[0].split(" ")
            headers = {
                name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)
            }
            body = await reader.readexactly(int(headers.get("content-length", "0")))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        return Asked(method, path, headers, body, asyncio.get_running_loop().time())

    def messages(self, method: str) -> list[Asked]:
        """The POSTs whose message has this JSON-RPC method."""
        return [asked for asked in self.asked if asked.method == "POST" and asked.message.get("method") == method]

    def by(self, http_method: str) -> list[Asked]:
        """The requests with this HTTP method."""
        return [asked for asked in self.asked if asked.method == http_method]


def result_of(asked: Asked, result: Any = None) -> dict[str, Any]:
    """The JSON-RPC answer to the request in `asked`."""
    return {"jsonrpc": "2.0", "id": asked.message["id"], "result": {} if result is None else result}


def notification(method: str, **params: Any) -> dict[str, Any]:
    """A JSON-RPC notification."""
    return {"jsonrpc": "2.0", "method": method, "params": params}


def request(request_id: RequestId, method: str, **params: Any) -> dict[str, Any]:
    """A JSON-RPC request of the server."""
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


class Settling(QuietSession):
    """The least conversation: it settles requests by their ids, keeps what came, answers calls with their method."""

    def __init__(self) -> None:
        self.waiting: dict[RequestId, Pending] = {}
        self.received: list[Message] = []
        self.cancelled: list[str] = []
        #: The methods of what was answered or, where nobody waits, heard.
        self.served: list[str] = []
        #: Set when a notification or a request arrives.
        self.heard = asyncio.Event()
        #: Answers wait for this.
        self.gate = asyncio.Event()
        self.gate.set()
        self._last = 0

    def ask(self, method: str = "tools/call", headers: Mapping[str, str] | None = None, **params: Any) -> Outgoing:
        """A request, entered and ready to be sent."""
        self._last += 1
        pending = self.waiting[self._last] = Pending(self._last, method)
        return Outgoing(
            encode_request(pending.id, method, params),
            pending.id,
            method,
            pending=pending,
            headers=tuple((headers or {}).items()),
        )

    def receive(self, data: bytes | Inbound, origin: Origin = UNKNOWN_ORIGIN, /) -> Call | Batch | Outgoing | None:
        """Settle answers; make calls of the rest."""
        assert not isinstance(data, Call | LostAnswer), "a client reads no calls itself, and answers are short"
        message = decode(data) if isinstance(data, bytes) else data
        self.received.append(message)
        if isinstance(message, Request | Notification):
            self.heard.set()
            request_id = message.id if isinstance(message, Request) else None
            return Call(request_id, message.method, message.params, meta=None, era=HANDSHAKE, revision="")
        pending = self.waiting.pop(message.id, None) if message.id is not None else None
        if pending is not None:
            pending.state = PendingState.ANSWERED
            if isinstance(message, Response):
                pending.result = message.result
            else:
                pending.error = PeerError(message.error)
            if pending.wake is not None:
                pending.wake()
        return None

    async def answer(self, call: Call | Batch, /) -> Outgoing | None:
        """Answer with the method."""
        assert isinstance(call, Call)
        await self.gate.wait()
        self.served.append(call.method)
        call.state = CallState.ANSWERED
        return None if call.id is None else Outgoing(encode_response(call.id, {"for": call.method}), call.id)

    def cancel(self, call: Call | Batch, reason: str, /) -> None:
        """Remember that it was."""
        self.cancelled.append(reason)

    def methods(self) -> list[str]:
        """The methods of what the server sent unasked."""
        return [message.method for message in self.received if isinstance(message, Request | Notification)]


class Talking:
    """A client channel with its conversation, closed at the end."""

    def __init__(self, url: str, limits: Limits = DEFAULT_LIMITS, **options: Any) -> None:
        self.talk = Settling()
        self._transport = HttpTransport(url, limits=limits, **options)

    async def __aenter__(self) -> Self:
        channel = await self._transport.open(lambda made: self._serve(made))
        assert isinstance(channel, HttpChannel)
        self.channel = channel
        return self

    def _serve(self, channel: Channel) -> Settling:
        return self.talk

    async def __aexit__(self, *exc_info: object) -> None:
        await self.channel.close()

    async def call(self, method: str = "tools/call", headers: Mapping[str, str] | None = None, **params: Any) -> Any:
        """Send a request and give back its result. Raises what the exchange ends with."""
        message = self.talk.ask(method, headers, **params)
        assert message.pending is not None
        await self.channel.send(message)
        if message.pending.error is not None:
            raise message.pending.error
        assert message.pending.state is PendingState.ANSWERED
        return msgspec.json.decode(message.pending.result)

    async def notify(self, method: str) -> None:
        """Send a notification."""
        await self.channel.send(Outgoing(json.dumps(notification(method)).encode(), None, method))

    async def handshake(self, revision: str = "2025-11-25") -> None:
        """Initialize, adopt the revision, say initialized."""
        await self.call("initialize")
        self.channel.set_revision(revision)
        await self.notify("notifications/initialized")


async def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait until something has become true; fail if it doesn't."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 # any condition, not only events
            await asyncio.sleep(0.005)


SESSION = {"mcp-session-id": "s-1"}


async def legacy(asked: Asked, answer: Answer) -> None:
    """A server of the handshake era with sessions, without a stream of its own."""
    if asked.method != "POST":
        await answer.body(status=405)
    elif asked.message.get("method") == "initialize":
        await answer.result(asked, headers=SESSION)
    elif "id" in asked.message and "method" in asked.message:
        await answer.result(asked)
    else:
        await answer.body(status=202)


async def tunnel(asked: Asked, answer: Answer) -> None:
    """A proxy that connects to what CONNECT names."""
    assert asked.method == "CONNECT"
    host, _, port = asked.path.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    await answer.raw(b"HTTP/1.1 200 Connection established\r\n\r\n")

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            target.write(data)

    try:
        await asyncio.gather(copy(answer.reader, writer), copy(reader, answer.writer))
    finally:
        writer.close()
