"""A peer that says exactly what a test makes it say, bytes that are no message included, and tells clearly what it didn't get.

It plays a server to the client under test, or a client to the server under test. It knows the two greetings, and nothing else
of the protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Literal, Self, cast

import msgspec

from hinge.channel import Channel, Serve
from hinge.errors import ChannelClosed, ErrorObject
from hinge.protocol.eras.base import EraName
from hinge.protocol.eras.handshake import HANDSHAKE
from hinge.protocol.eras.stateless import STATELESS
from hinge.protocol.limits import DEFAULT_LIMITS, Limits
from hinge.schema.base import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION
from hinge.server.server import Server
from hinge.testing.ends import (
    ByteEnd,
    Ear,
    End,
    Inbox,
    Listening,
    MemoryEnd,
    Over,
    close_quietly,
    memory_ends,
    pipes,
)
from hinge.testing.expectations import Expected, Message, brief, problem_of, shown, words_of
from hinge.testing.greetings import INFO, discovered, initialized


class ScriptedPeer:
    """A peer whose every word the test writes.

    As a server: `async with ScriptedPeer() as peer: client = Client(peer)`; each connection of a client begins anew, and
    `script(peer)`, if there is one, runs for each. As a client: `async with ScriptedPeer.to(server) as peer`.

    `over` is what carries the messages: "memory" (each `send` is a message), "stdio" (two pipes as between a process and its
    child, without a process) or "socket" (TCP on loopback; `peer.url` is for clients elsewhere). `patience` is how many
    seconds it waits for what it expects; then AssertionError says what was expected and what came. At the end of the block,
    what a script raised is raised.
    """

    def __init__(
        self,
        script: Callable[[ScriptedPeer], Awaitable[object]] | None = None,
        *,
        over: Over = "memory",
        patience: float = 5.0,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.limits = limits
        self.patience = patience
        #: Everything that came, over all connections: messages as dicts, other lines as bytes.
        self.received: list[Message | bytes] = []
        #: How often a client has connected.
        self.connections = 0
        self._script = script
        self._over: Over = over
        self._server: Server[Any] | None = None
        self._inbox = Inbox()
        self._end: End | None = None
        self._ends: list[End | Channel] = []
        self._made = asyncio.Event()
        self._listening: Listening | None = None
        self._scripts: list[asyncio.Task[object]] = []
        self._resources = AsyncExitStack()
        self._next_id = 0

    @classmethod
    def to(cls, server: Server[Any], *, over: Over = "memory", patience: float = 5.0) -> ScriptedPeer:
        """A client of this server: connected within `async with`."""
        peer = cls(over=over, patience=patience, limits=server.limits)
        peer._server = server
        return peer

    @classmethod
    def on(cls, end: End, inbox: Inbox, *, patience: float = 5.0) -> ScriptedPeer:
        """A peer on an end that is there already, with the inbox that it fills; whoever made them closes them."""
        peer = cls(patience=patience)
        peer._inbox, peer._end = inbox, end
        peer._made.set()
        return peer

    # ---------------------------------------------------------------- life

    async def __aenter__(self) -> Self:
        if self._server is not None:
            await self._resources.enter_async_context(self._server.running())
            await self._connect(self._server)
        elif self._over == "socket":
            self._listening = await Listening.start(lambda: ByteEnd(self._connected(), self._accept))
        return self

    async def __aexit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        scripts, self._scripts = self._scripts, []
        if scripts:
            await asyncio.wait(scripts, timeout=0 if exc is not None else self.patience)
        for script in scripts:
            script.cancel()
        await asyncio.gather(*scripts, return_exceptions=True)
        if self._listening is not None:
            self._listening.stop()
        for end in self._ends:
            await close_quietly(end)
        await self._resources.aclose()
        for script in scripts:
            failure = None if script.cancelled() else script.exception()
            if failure is not None and failure is not exc:
                raise failure

    @property
    def url(self) -> str:
        """Where clients elsewhere find it; for `over="socket"`."""
        assert self._listening is not None, 'only a server over="socket" has an address, within its block'
        return "tcp://{}:{}".format(*self._listening.address)

    async def open(self, serve: Serve, /) -> Channel:
        """A client's way here: it is a target for `Client`."""
        if self._listening is not None:
            from hinge.transports.stream.sockets import TcpSocket

            return await TcpSocket(*self._listening.address, limits=self.limits).open(serve)
        assert self._over != "socket", "use it in `async with`"
        inbox = self._connected()
        if self._over == "memory":
            ours, theirs = memory_ends(self.limits, server=False)
            self._ends += [ours]
            ours.begin(Ear(inbox))
            self._accept(MemoryEnd(ours))
            theirs.begin(serve(theirs))
            return theirs
        end = ByteEnd(inbox)
        channel = pipes(end, self.limits, server=False)
        self._ends += [end, channel]
        self._accept(end)
        channel.begin(serve(channel))
        return channel

    def _connected(self) -> Inbox:
        """A new connection: what came on the one before, and wasn't expected, is forgotten."""
        self._inbox = Inbox()
        self.connections += 1
        return self._inbox

    def _accept(self, end: End) -> None:
        self._end = end
        if end not in self._ends:
            self._ends.append(end)
        self._made.set()
        if self._script is not None:
            self._scripts.append(asyncio.ensure_future(_run(self._script, self)))

    async def _connect(self, server: Server[Any]) -> None:
        inbox = self._connected()
        if self._over == "memory":
            ours, theirs = memory_ends(self.limits, server=True)
            theirs.begin(server.serve(theirs))
            ours.begin(Ear(inbox))
            self._ends.append(ours)
            self._accept(MemoryEnd(ours))
        elif self._over == "stdio":
            end = ByteEnd(inbox)
            channel = pipes(end, self.limits, server=True)
            conversation = server.serve(channel)
            channel.begin(conversation)
            self._ends += [end, channel]
            self._resources.push_async_callback(conversation.finish)
            self._accept(end)
        else:
            from hinge.transports.stream.sockets import SocketServer

            serving = SocketServer(server.serve, port=0, limits=self.limits)
            await serving.start()
            self._resources.push_async_callback(serving.stop)
            loop = asyncio.get_running_loop()
            await loop.create_connection(
                lambda: ByteEnd(inbox, self._accept), *cast("tuple[str, int]", serving.address)
            )

    async def connected(self) -> None:
        """Wait until a client has connected."""
        async with self._patiently("a client to connect"):
            await self._made.wait()

    # ---------------------------------------------------------------- saying

    async def send(self, message: Mapping[str, Any] | bytes) -> None:
        """Send a message, a dict in which `jsonrpc` may be left out; or bytes, exactly these: mind the line's end on pipes.

        Raises AssertionError when the connection is over.
        """
        await self.connected()
        assert self._end is not None
        try:
            if isinstance(message, bytes):
                await self._end.send(message, whole=False)
            else:
                await self._end.send(msgspec.json.encode({"jsonrpc": "2.0", **message}), whole=True)
        except ChannelClosed as exc:
            raise AssertionError(f"The peer could not send {shown(message)}: {exc}") from exc

    async def answer(
        self, request: Mapping[str, Any], result: Any = None, *, error: Mapping[str, Any] | ErrorObject | None = None
    ) -> None:
        """Answer a request with a result (an empty one by default) or an error, `{"code": …, "message": …}`."""
        body = {"result": {} if result is None else result} if error is None else {"error": error}
        await self.send({"id": request["id"], **body})

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification."""
        await self.send({"method": method} if params is None else {"method": method, "params": params})

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, era: EraName = "2025", **capabilities: Any
    ) -> Message:
        """Send a request with a new id and give it back. In era "2026" it gets the `_meta` that the era wants.

        `capabilities` are those that a client declares there (`elicitation={"form": {}}`).
        """
        self._next_id += 1
        message: Message = {"jsonrpc": "2.0", "id": self._next_id, "method": method}
        if era == "2026":
            meta = {PROTOCOL_VERSION: STATELESS.latest, CLIENT_CAPABILITIES: capabilities, CLIENT_INFO: INFO}
            given = dict(params or {})
            message["params"] = {**given, "_meta": {**meta, **given.get("_meta", {})}}
        elif params is not None:
            message["params"] = dict(params)
        await self.send(message)
        return message

    async def ask(
        self, method: str, params: Mapping[str, Any] | None = None, *, era: EraName = "2025", **capabilities: Any
    ) -> Message:
        """Send a request and wait for its answer, past all else that comes: a message with `result` or `error`."""
        message = await self.request(method, params, era=era, **capabilities)
        return await self.expect_answer(message)

    async def close(self) -> None:
        """End this connection, without another word."""
        await self.connected()
        assert self._end is not None
        await close_quietly(self._end)

    # ---------------------------------------------------------------- hearing

    async def expect(self, what: Expected | None = None) -> Message:
        """The next message, which has to be this one: a method, or a dict whose members the message has to have.

        Raises AssertionError that says what came instead, or that nothing came.
        """
        wanted = words_of(what)
        got = await self._next(wanted)
        problem = problem_of(what, got)
        if problem is not None:
            raise AssertionError(f"The peer expected {wanted}, but {problem}{self._before()}")
        return cast(Message, got)

    async def expect_answer(self, request: Mapping[str, Any]) -> Message:
        """The answer to a request of this peer, past all else that comes; that is in `received`."""
        return await self.until(lambda message: "method" not in message and message.get("id") == request["id"], request)

    async def until(
        self, what: Expected | Callable[[Message], object], about: Mapping[str, Any] | None = None
    ) -> Message:
        """The next message that is this one, past all others. Raises AssertionError with what came when it doesn't come."""
        wanted = f"an answer to {shown(about)}" if about is not None else words_of(what)
        while True:
            got = await self._next(wanted)
            if isinstance(got, bytes):
                continue
            if what(got) if callable(what) else problem_of(what, got) is None:
                return got

    async def expect_nothing(self, seconds: float = 0.1) -> None:
        """Nothing comes for so long, not even the end of the connection."""
        await self.connected()
        try:
            async with asyncio.timeout(seconds):
                data = await self._inbox.take()
        except TimeoutError:
            return
        came = "the connection was ended" if data is None else f"the peer got {shown(self._noted(data))}"
        raise AssertionError(f"The peer expected nothing for {seconds:g} seconds, but {came}")

    async def expect_end(self) -> None:
        """The other side ends the connection, without another message."""
        await self.connected()
        async with self._patiently("the end of the connection"):
            data = await self._inbox.take()
        if data is not None:
            raise AssertionError(f"The peer expected the end of the connection, but got {shown(self._noted(data))}")

    async def _next(self, wanted: str) -> Message | bytes:
        await self.connected()
        async with self._patiently(wanted):
            data = await self._inbox.take()
        if data is None:
            self._inbox.put(None)  # it is over for whoever asks next, too
            raise AssertionError(f"The peer expected {wanted}, but the connection was ended{self._before()}")
        return self._noted(data)

    def _noted(self, data: bytes) -> Message | bytes:
        try:
            found = msgspec.json.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            found = None
        got: Message | bytes = found if isinstance(found, dict) else data
        self.received.append(got)
        return got

    def _before(self) -> str:
        """What came earlier, in short."""
        earlier = [brief(message) for message in self.received[-11:-1]]
        return f". Before that it got: {', '.join(earlier)}" if earlier else ""

    @asynccontextmanager
    async def _patiently(self, wanted: str) -> AsyncIterator[None]:
        """A time limit that fails a test in words."""
        try:
            async with asyncio.timeout(self.patience):
                yield
        except TimeoutError:
            got = ", ".join(map(brief, self.received[-10:])) or "nothing"
            raise AssertionError(
                f"The peer expected {wanted}, but nothing came within {self.patience:g} seconds. It got: {got}"
            ) from None

    # ---------------------------------------------------------------- the greetings

    async def greet(
        self,
        era: EraName | Literal["both"] = "both",
        *,
        capabilities: Mapping[str, Any] | None = None,
        info: Mapping[str, Any] | None = None,
        revision: str | None = None,
    ) -> EraName:
        """Open the conversation; gives back the era that it is in.

        A server answers the client's `server/discover` or `initialize`: of an `era` pinned to "2025" it knows no discovery,
        of one pinned to "2026" no handshake. A client does the handshake; in era "2026" there is nothing to be said.
        `capabilities` are those of this side ({"tools": {}} for a server).
        """
        if self._server is not None:
            return await self._greet_server("2025" if era == "both" else era, capabilities, info, revision)
        while True:
            hello = await self.expect()
            if hello.get("method") == "initialize" and era != "2026":
                asked = hello["params"]["protocolVersion"]
                await self.answer(hello, initialized(revision or asked, capabilities, info))
                await self.expect("notifications/initialized")
                return "2025"
            if hello.get("method") == "server/discover" and era != "2025":
                await self.answer(hello, discovered(revision or STATELESS.latest, capabilities, info))
                return "2026"
            if hello.get("method") not in ("server/discover", "initialize"):
                raise AssertionError(f"The peer expected a greeting, but got {shown(hello)}{self._before()}")
            await self.answer(hello, error={"code": -32601, "message": "Method not found"})

    async def _greet_server(
        self,
        era: EraName,
        capabilities: Mapping[str, Any] | None,
        info: Mapping[str, Any] | None,
        revision: str | None,
    ) -> EraName:
        if era == "2025":
            params = {
                "protocolVersion": revision or HANDSHAKE.latest,
                "capabilities": dict(capabilities or {}),
                "clientInfo": dict(info or INFO),
            }
            reply = await self.ask("initialize", params)
            if "error" in reply:
                raise AssertionError(f"The server refused the handshake: {shown(reply)}")
            await self.notify("notifications/initialized")
        return era


async def _run(script: Callable[[ScriptedPeer], Awaitable[object]], peer: ScriptedPeer) -> None:
    await script(peer)
