"""Two small conversations for the tests of channels: a server's that echoes, and a client's that asks."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
from msgspec import Raw

from gemel import ChannelClosed, ConnectionLost, ErrorObject, ParseError, ProtocolError
from gemel.protocol.eras.handshake import HANDSHAKE
from gemel.protocol.states import CallState
from tests.support import UNKNOWN_ORIGIN, Batch, Call, Channel, Inbound, LostAnswer, Origin, Outgoing, jsonrpc
from tests.transports.quiet_session import QuietSession


class EchoConversation(QuietSession):
    """Answers `echo` with its params, `sleep` after params.seconds, `fail` by breaking the contract, and so on.

    `initialize` is inline. `seen` lists the methods as they came, `cancelled` the calls that were stopped.
    """

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.seen: list[str] = []
        self.cancelled: list[str] = []
        self.closed: list[str] = []
        self.expired: list[str] = []
        self.origins: list[Origin] = []
        self.running: dict[Call, asyncio.Task[Any]] = {}
        self.finished = 0
        #: Ends calls of `listen`.
        self.listening = asyncio.Event()
        #: Ends calls of `sleep` and `initialize` with params.held.
        self.released = asyncio.Event()

    def receive(self, data: bytes | Inbound, origin: Origin = UNKNOWN_ORIGIN, /) -> Call | Batch | Outgoing | None:
        assert isinstance(data, bytes)
        self.origins.append(origin)
        try:
            message = jsonrpc.decode(data)
        except ProtocolError as exc:
            found = getattr(exc, "request_id", None)
            return Outgoing.failure(jsonrpc.encode_failure(found, exc.error), found, exc, 400)
        if isinstance(message, jsonrpc.Response | jsonrpc.Failure):
            return None
        self.seen.append(message.method)
        if message.method == "explode":
            raise RuntimeError("a bug in the conversation")
        request_id = message.id if isinstance(message, jsonrpc.Request) else None
        call = Call(request_id, message.method, message.params, meta=None, era=HANDSHAKE, revision="x", origin=origin)
        call.inline = message.method == "initialize"
        return call

    async def answer(self, call: Call | Batch, /) -> Outgoing | None:
        assert isinstance(call, Call)
        if self.closed:
            return None
        task = asyncio.current_task()
        assert task is not None
        self.running[call] = task
        try:
            result = await self.run(call)
        except asyncio.CancelledError:
            if call.state is CallState.RUNNING:
                raise
            self.cancelled.append(call.method)
            task.uncancel()
            return None
        finally:
            del self.running[call]
        if call.id is None:
            return None
        return Outgoing(jsonrpc.encode_response(call.id, result), call.id)

    async def run(self, call: Call) -> Any:
        params = msgspec.json.decode(call.params) if bytes(call.params) else {}
        match call.method:
            case "sleep" | "initialize":
                if params.get("held"):
                    await self.released.wait()
                await asyncio.sleep(params.get("seconds", 0))
            case "listen":
                await self.listening.wait()
                return "ended"
            case "block":
                time.sleep(params["seconds"])  # noqa: ASYNC251 (a handler that blocks the loop is the case)
            case "fail":
                raise RuntimeError("answer must not raise, and does")
            case "print":
                print(params["text"])
            case "notify":
                for number in range(params["times"]):
                    await self.channel.send(Outgoing(jsonrpc.encode_notification("tick", {"number": number})))
            case "big":
                return "x" * params["size"]
        return Raw(bytes(call.params)) if bytes(call.params) else {}

    def cancel(self, call: Call | Batch, reason: str, /) -> None:
        assert isinstance(call, Call)
        call.state = CallState.CANCELLED
        if call in self.running:
            self.running[call].cancel()

    def end_input(self, reason: str, /) -> None:
        self.listening.set()

    def stop(self, reason: str, /) -> list[Outgoing]:
        self.expired.append(reason)
        return []

    def close(self, reason: str, /) -> None:
        self.closed.append(reason)
        for call in list(self.running):
            self.cancel(call, reason)

    async def wait_closed(self) -> None:
        self.finished += 1
        if self.running:
            await asyncio.wait(list(self.running.values()), timeout=5)


class AskConversation(QuietSession):
    """Asks and waits; `heard` keeps the notifications, `broken` the answers that are none."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.waiting: dict[object, asyncio.Future[Any]] = {}
        self.heard: list[Any] = []
        self.broken: list[LostAnswer] = []
        self.closed: list[str] = []
        self.finished = 0
        self._ids = 0

    def receive(self, data: bytes | Inbound, origin: Origin = UNKNOWN_ORIGIN, /) -> Call | Batch | Outgoing | None:
        if isinstance(data, LostAnswer):
            self.broken.append(data)
            return None
        assert isinstance(data, bytes)
        message = jsonrpc.decode(data)
        if isinstance(message, jsonrpc.Response):
            self.waiting.pop(message.id).set_result(msgspec.json.decode(message.result))
        elif isinstance(message, jsonrpc.Failure):
            if message.id in self.waiting:
                self.waiting.pop(message.id).set_exception(RuntimeError(message.error.message))
        elif isinstance(message, jsonrpc.Request):
            error = ErrorObject(-32601, "Method not found")
            return Outgoing(jsonrpc.encode_failure(message.id, error), message.id)
        else:
            self.heard.append(msgspec.json.decode(message.params))
        return None

    async def ask(self, method: str, **params: Any) -> Any:
        if self.closed:
            raise ChannelClosed(self.closed[0])
        self._ids += 1
        number = self._ids
        self.waiting[number] = asyncio.get_running_loop().create_future()
        answer = self.waiting[number]
        await self.channel.send(Outgoing(jsonrpc.encode_request(number, method, params), number, method))
        return await answer

    async def tell(self, method: str, **params: Any) -> None:
        await self.channel.send(Outgoing(jsonrpc.encode_notification(method, params), None, method))

    def close(self, reason: str, /) -> None:
        self.closed.append(reason)
        for answer in self.waiting.values():
            if not answer.done():
                answer.set_exception(ConnectionLost(reason))
        self.waiting.clear()

    async def wait_closed(self) -> None:
        self.finished += 1


def request(request_id: object, method: str, **params: Any) -> bytes:
    """The line of a request."""
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}) + b"\n"


#: What a server answers to a line that isn't JSON.
NOT_JSON = ParseError.code
