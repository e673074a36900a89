"""Replay the server of a recording: each request gets the recorded response."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import UNSET

from gemel.channel import Channel, Serve, SessionLike, Transport
from gemel.errors import (
    CallError,
    ConnectionLost,
    ErrorObject,
    GemelError,
    HttpStatus,
    MethodNotFound,
    PeerError,
    ProtocolError,
    shorten,
)
from gemel.protocol.connection import Connection
from gemel.protocol.description import ServerDescription
from gemel.protocol.eras.detect import ERAS
from gemel.protocol.limits import DEFAULT_LIMITS, Limits
from gemel.protocol.records import Call, Outgoing
from gemel.schema.base import SUBSCRIPTION_ID, Implementation
from gemel.schema.lifecycle import ServerCapabilities
from gemel.session import Session
from gemel.testing.comparison import (
    comparable,
    comparable_request,
    describe_request,
    differences,
    find_nearest,
    request_key,
)
from gemel.testing.raw_client import LiveServer
from gemel.testing.recording_file import (
    LISTEN,
    ClientAnswer,
    RecordedCall,
    RecordedLine,
    RecordedSession,
    RecordedStep,
    Redact,
    ServerMessage,
    ServerRequest,
    redact_message,
)
from gemel.testing.wire_log import ForwardingChannel
from gemel.values.encoding import plain_value

_GREETINGS = frozenset({"initialize", "server/discover", "ping"})
#: Requests that change nothing: repeated ones get the last response again.
_REPEATABLE = _GREETINGS | {"resources/read", "prompts/get"}


class ReplayOptions(msgspec.Struct, kw_only=True, frozen=True):
    """How a recording is replayed; see Recording."""

    name: str
    ignore: Sequence[str] = ()
    repeat: bool = False
    redact: Redact | None = None
    patience: float = 5.0
    limits: Limits = DEFAULT_LIMITS


class ReplayServer:
    """Serves a recording to any number of clients, which share it: each recorded response is used once.

    It runs in sessions of the real kernel, so it works on every transport.
    """

    def __init__(self, recording: RecordedSession, options: ReplayOptions, live: LiveServer | None = None) -> None:
        self._recording = recording
        self._options = options
        self._live = live
        self._waiting: dict[bytes, deque[RecordedCall]] = {}
        self._given: dict[bytes, list[RecordedCall]] = {}
        for recorded in recording.calls:
            self._waiting.setdefault(self._key(recorded.method, recorded.params, recorded.id), deque()).append(recorded)
        #: The numbers of the recorded client messages that came, and what waits for one.
        self._reached: set[int] = set()
        self._watchers: list[tuple[int, asyncio.Future[None]]] = []
        #: What could not be answered from the recording, described.
        self.missed: list[str] = []
        nobody = Implementation(name=f"recording {options.name}", version="0")
        self._description = ServerDescription(nobody, ServerCapabilities, eras=tuple(ERAS.values()), log_level="debug")

    def serve(self, channel: Channel) -> Session:
        """Start a session on a channel."""
        kind = channel.kind
        connection = Connection(
            self._description,
            limits=self._options.limits,
            one_shot=kind == "post",
            shared=kind not in ("post", "session"),
        )
        return Session(connection, channel, self._handle)

    def unplayed(self) -> list[RecordedCall]:
        """The calls that nobody asked for. How often a client greets is a matter of how slow the server was."""
        unplayed = [one for some in self._waiting.values() for one in some]
        return sorted(
            (one for one in unplayed if one.id is not None and one.method not in _GREETINGS), key=lambda one: one.number
        )

    def _key(self, method: str, params: object, request_id: object) -> bytes:
        if request_id is None:  # the params of notifications don't count
            return request_key(method, {}, ())
        own = plain_value({"method": method, "params": params})
        own = redact_message(own, self._options.redact)
        return request_key(method, own.get("params", {}), self._options.ignore)

    # ---------------------------------------------------------------- finding

    async def _handle(self, session: Session, call: Call) -> Any:
        params = msgspec.json.decode(call.params) if call.params else {}
        recorded = self._find(call, params)
        if call.method == "notifications/initialized" and call.id is None:
            session.connection.handshake.finish()
        opening = not self._reached
        if recorded is not None:
            self._reach(recorded.number)
            if call.method == "initialize" and self._live is not None:
                self._live.remember_initialize(session, params)
        part = _ReplayedCall(self, session, call, recorded)
        if opening:
            part.send_later(self._recording.opening)
        if recorded is None:
            return await self._missing(session, call, params)
        try:
            return await part.perform(recorded)
        finally:
            part.send_later(recorded.followers)

    def failure(self, method: str, params: object) -> RecordedLine | None:
        """Return how the transport failed this request when it was recorded, if it did."""
        waiting = self._waiting.get(self._key(method, params, 0))
        if not waiting or waiting[0].ending != "failed":
            return None
        recorded = waiting.popleft()
        self._reach(recorded.number)
        return recorded.answer

    def _find(self, call: Call, params: object) -> RecordedCall | None:
        key = self._key(call.method, params, call.id)
        waiting = self._waiting.get(key)
        if waiting:
            recorded = waiting.popleft()
            self._given.setdefault(key, []).append(recorded)
            return recorded
        given = self._given.get(key)
        again = self._options.repeat or call.method in _REPEATABLE or call.method.endswith("/list")
        if not given or not again:
            return None
        last = given[-1]
        return RecordedCall(last.number, last.entry, last.steps, last.answer, last.ending)

    async def _missing(self, session: Session, call: Call, params: object) -> Any:
        if self._live is not None:
            forward = self._live.notify if call.id is None else self._live.request
            return await forward(session, call)
        if call.id is None:
            return None
        if call.method == "ping":
            return {}
        words = self._words(call.method, params)
        if not (call.method == "server/discover" and self._has("initialize")):  # the client negotiates the era
            self.missed.append(words)
        raise ProtocolError(words, code=-32601)

    def _has(self, method: str) -> bool:
        return any(recorded.method == method for recorded in self._recording.calls)

    def _words(self, method: str, params: object) -> str:
        """Describe a request that is not in the recording: the most similar one, and how to add it."""
        name, asked = self._options.name, comparable_request(method, params, self._options.ignore)
        given = self._given.get(self._key(method, params, 0))
        advice = "To add it: Recording(path, target, record='missing')"
        if given:
            lines = ", ".join(str(recorded.entry.line) for recorded in given)
            often = "once" if len(given) == 1 else f"{len(given)} times"
            return (
                f"{describe_request(method, params)} was sent more often than in the recording {name}, which has it {often} "
                f"(line {lines}). For the last response again: repeat=True. {advice}"
            )
        like = [one for one in self._recording.calls if one.method == method and one.id is not None]
        nearest = find_nearest(
            asked, ((one, comparable_request(method, one.params, self._options.ignore)) for one in like)
        )
        if nearest is None:
            methods = (
                ", ".join(sorted({one.method for one in self._recording.calls if one.id is not None})) or "nothing"
            )
            return f"{describe_request(method, params)} is not in the recording {name}, which has {shorten(methods)}. {advice}"
        recorded, places = nearest
        differing = "; ".join(f"{path}: {old!r} is recorded, {new!r} was sent" for path, old, new in places[:3])
        return (
            f"{describe_request(method, params)} is not in the recording {name} like this. The most similar is in line "
            f"{recorded.entry.line}: {shorten(differing, 600)}. {advice}"
        )

    # ---------------------------------------------------------------- order

    def _reach(self, number: int) -> None:
        """Wake up what waits for this message of the client."""
        self._reached.add(number)
        for awaited, future in self._watchers:
            if awaited == number and not future.done():
                future.set_result(None)
        self._watchers = [pair for pair in self._watchers if not pair[1].done()]

    async def reached(self, number: int) -> None:
        """Wait for a message of the client, by its number in the recording."""
        if number and number not in self._reached:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            watcher = number, future
            self._watchers.append(watcher)
            try:
                await future
            finally:
                if watcher in self._watchers:
                    self._watchers.remove(watcher)

    # ---------------------------------------------------------------- responses of the client

    def compare_answer(self, request: ServerRequest, answer: Mapping[str, Any]) -> None:
        """Require the recorded response of the client: what follows in the recording depends on it."""
        assert request.answer is not None
        then, ignore = request.answer.message, self._options.ignore
        own = redact_message(plain_value(answer), self._options.redact)
        for member in ("result", "error"):
            old, new = comparable({member: then.get(member)}, ignore), comparable({member: own.get(member)}, ignore)
            if member == "error":  # the text does not matter
                old, new = _code(old), _code(new)
            for path, before, now in differences(old[member], new[member], path=member):
                asked = request.entry.message
                words = (
                    f"The client answered {asked['method']} (line {request.entry.line} of {self._options.name}) "
                    f"differently: {path}: {before!r} is recorded, {now!r} was sent"
                )
                self.missed.append(words)
                raise ProtocolError(words)

    @property
    def options(self) -> ReplayOptions:
        """How it is replayed."""
        return self._options


def _code(given_error: Any) -> Any:
    error = given_error.get("error")
    return {"error": error.get("code") if isinstance(error, Mapping) else error}


class _ReplayedCall:
    """One call that is served from the recording."""

    def __init__(self, server: ReplayServer, session: Session, call: Call, recorded: RecordedCall | None) -> None:
        self._server = server
        self._session = session
        self._call = call
        self._tokens = {recorded.id: call.id} if recorded is not None else {}
        token = recorded.params.get("_meta", {}).get("progressToken") if recorded is not None else None
        self._token = (token, call.meta.progress_token if call.meta is not None else None)
        self._requests: dict[ServerRequest, asyncio.Task[dict[str, Any]]] = {}

    async def perform(self, recorded: RecordedCall) -> Any:
        """Send everything that belongs to the call, then its result."""
        try:
            for step in recorded.steps:
                await self._step(step, wait=recorded.method == LISTEN)
            return await self._end(recorded)
        finally:
            for task in self._requests.values():
                task.cancel()

    def send_later(self, steps: Sequence[RecordedStep]) -> None:
        """Send what came outside of calls soon after the response."""
        if steps and self._session.connection.closed is None:
            task = self._session.loop.create_task(self._send_later(steps))
            _sending.add(task)
            task.add_done_callback(_sending.discard)

            async def stop() -> None:
                task.cancel()

            self._session.on_close(stop)

    async def _send_later(self, steps: Sequence[RecordedStep]) -> None:
        await asyncio.sleep(0)
        with suppress(GemelError):
            for step in steps:
                await self._step(step, wait=True, about=None)

    async def _step(self, step: RecordedStep, *, wait: bool, about: Call | msgspec.UnsetType | None = UNSET) -> None:
        call = self._call if about is UNSET else about
        if isinstance(step, ClientAnswer):
            if step.request in self._requests:
                answer = await self._requests[step.request]
                if call is not None:
                    self._server.compare_answer(step.request, answer)
            return
        if isinstance(step, ServerMessage) and wait:
            await self._server.reached(step.after)
        if step.entry.text is not None:
            await self._session.channel.send(Outgoing(step.entry.text.encode(), about=call))
            return
        method, params = str(step.entry.message["method"]), step.entry.message.get("params", UNSET)
        params = self._mapped(params)
        if isinstance(step, ServerRequest):
            self._requests[step] = self._session.loop.create_task(self._request(method, params, call))
            await asyncio.sleep(0)
        elif method != "notifications/progress" or self._wants(step.entry):
            await self._session.notify(method, params, about=call)

    async def _request(self, method: str, params: object, about: Call | None) -> dict[str, Any]:
        limit = self._server.options.limits.input_wait
        try:
            result = await self._session.request(method, params, about=about, total=limit)
        except PeerError as exc:
            return {"error": {"code": exc.code, "message": exc.message}}
        return {"result": msgspec.json.decode(result)}

    def _wants(self, entry: RecordedLine) -> bool:
        """Return whether a progress notification is wanted: the request has a token."""
        token = entry.params.get("progressToken")
        return token != self._token[0] or self._token[1] is not None

    def _mapped(self, params: object) -> Any:
        """Replace recorded ids and tokens by those of this session."""
        if not isinstance(params, Mapping):
            return params
        mapped = dict(params)
        if "progressToken" in mapped and mapped["progressToken"] == self._token[0]:
            mapped["progressToken"] = self._token[1]
        return self._remapped(mapped)

    def _remapped(self, mapped: dict[str, Any]) -> dict[str, Any]:
        meta = mapped.get("_meta")
        if isinstance(meta, Mapping) and meta.get(SUBSCRIPTION_ID) in self._tokens:
            mapped["_meta"] = {**meta, SUBSCRIPTION_ID: self._tokens[meta[SUBSCRIPTION_ID]]}
        return mapped

    async def _end(self, recorded: RecordedCall) -> Any:
        call, about, name = self._call, describe_request(recorded.method, recorded.params), self._server.options.name
        if call.id is None:
            return None
        if recorded.ending == "answered":
            return self._answer(recorded)
        if recorded.ending == "cut":
            await self._session.channel.close()
            return {}
        if recorded.ending == "failed":
            status = recorded.answer.status if recorded.answer is not None else None
            error = recorded.answer.error if recorded.answer is not None else ""
            how = f"HTTP {status}" if status else error
            raise ProtocolError(
                f"{about} failed in the recording {name}: {how}", {"status": status} if status else UNSET
            )
        if recorded.method == LISTEN:
            await self._until_over()
            return {}
        if recorded.method == "server/discover":  # it timed out when it was recorded
            raise MethodNotFound(recorded.method)
        if recorded.ending == "cancelled":
            await asyncio.sleep(self._server.options.patience)
        raise ProtocolError(f"{about} has no response in the recording {name} (line {recorded.entry.line})")

    async def _until_over(self) -> None:
        over = asyncio.Event()
        self._session.on_end_of_input(over.set)
        try:
            await over.wait()
        finally:
            self._session.forget_end_of_input(over.set)

    def _answer(self, recorded: RecordedCall) -> Any:
        assert recorded.answer is not None
        message = recorded.answer.message
        if "error" in message:
            raise _error(message["error"])
        result = message.get("result")
        return self._remapped(dict(result)) if isinstance(result, Mapping) else result


#: Keeps the tasks alive: the event loop only has weak references.
_sending: set[asyncio.Task[None]] = set()


def _error(recorded: object) -> Exception:
    try:
        error = msgspec.convert(recorded, ErrorObject)
    except msgspec.ValidationError:
        return CallError("the recorded error is not an error object")
    return ProtocolError(error.message, error.data, code=error.code)


class ReplayTransport(Transport):
    """The transport of a client to a recording: requests fail on it that the transport failed in the recording."""

    def __init__(self, transport: Transport, server: ReplayServer) -> None:
        self._transport = transport
        self._server = server

    async def open(self, serve: Serve, /) -> Channel:
        """Open a channel."""

        def begin(channel: Channel) -> SessionLike:
            return serve(_ReplayChannel(channel, self._server))

        return await self._transport.open(begin)


class _ReplayChannel(ForwardingChannel):
    """The channel of the client."""

    def __init__(self, channel: Channel, server: ReplayServer) -> None:
        super().__init__(channel)
        self._server = server

    async def send(self, message: Outgoing, /) -> None:
        """Send a message, or fail as in the recording."""
        if message.pending is not None and message.method is not None:
            params = msgspec.json.decode(message.data).get("params", {})
            entry = self._server.failure(message.method, params)
            if entry is not None and entry.status:
                raise HttpStatus(f"{message.method} got HTTP {entry.status} in the recording", entry.status, {})
            if entry is not None:
                raise ConnectionLost(f"{message.method} failed in the recording: {entry.error}")
        await super().send(message)
