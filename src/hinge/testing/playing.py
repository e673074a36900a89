"""A recording that plays the server: each request gets what the same request got when it was recorded.

It speaks through a session of the real kernel, so it serves on every transport. Knows what is chance in a message and maps
it; must not know files.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import msgspec
from msgspec import UNSET

from hinge.channel import Channel
from hinge.errors import CallError, ErrorObject, HingeError, MethodNotFound, PeerError, ProtocolError, shorten
from hinge.protocol.calls import Call, Outgoing
from hinge.protocol.connection import Connection
from hinge.protocol.description import ServerDescription
from hinge.protocol.eras.detect import ERAS
from hinge.protocol.limits import DEFAULT_LIMITS, Limits
from hinge.schema.base import SUBSCRIPTION_ID, Implementation
from hinge.schema.lifecycle import ServerCapabilities
from hinge.session import Session
from hinge.testing.comparing import differences, key_of, nearest, plain, request_of, subject
from hinge.testing.script import LISTEN, Await, Exchange, Question, Say, Script, Step
from hinge.testing.tape import Entry, Redact, redacted

_GREETINGS = frozenset({"initialize", "server/discover", "ping"})
#: Asked again, they are answered as the last time: they change nothing.
_REPEATABLE = _GREETINGS | {"resources/read", "prompts/get"}


class Elsewhere(Protocol):
    """Where a request goes that isn't in the recording."""

    async def ask(self, front: Session, call: Call) -> Any:
        """Its result."""
        ...

    async def tell(self, front: Session, call: Call) -> Any:
        """A notification."""
        ...

    def hello(self, front: Session, params: Any) -> None:
        """What the client said in its handshake with the recording."""


class Play(msgspec.Struct, kw_only=True, frozen=True):
    """How a recording is played; see Recording for what the members mean."""

    name: str
    ignore: Sequence[str] = ()
    repeat: bool = False
    redact: Redact | None = None
    patience: float = 5.0
    limits: Limits = DEFAULT_LIMITS


class Player:
    """Plays the server of one recording to any number of clients, which share it: each exchange is given once."""

    def __init__(self, script: Script, play: Play, elsewhere: Elsewhere | None = None) -> None:
        self._script = script
        self._play = play
        self._elsewhere = elsewhere
        self._waiting: dict[bytes, deque[Exchange]] = {}
        self._given: dict[bytes, list[Exchange]] = {}
        for exchange in script.exchanges:
            self._waiting.setdefault(self._key(exchange.method, exchange.params, exchange.id), deque()).append(exchange)
        #: The client's messages that came, by their number in the recording, and who waits for one.
        self._reached: set[int] = set()
        self._watchers: list[tuple[int, asyncio.Future[None]]] = []
        #: What could not be answered from the recording, in words.
        self.missed: list[str] = []
        nobody = Implementation(name=f"a recording: {play.name}", version="0")
        self._description = ServerDescription(nobody, ServerCapabilities, eras=tuple(ERAS.values()), log_level="debug")

    def serve(self, channel: Channel) -> Session:
        """Start a conversation over a channel."""
        kind = channel.kind
        connection = Connection(
            self._description, limits=self._play.limits, one_shot=kind == "post", shared=kind not in ("post", "session")
        )
        return Session(connection, channel, self._handle)

    def unplayed(self) -> list[Exchange]:
        """The exchanges that nobody asked for. How often a client greets is a matter of how slow the server was."""
        left = [one for some in self._waiting.values() for one in some]
        return sorted(
            (one for one in left if one.id is not None and one.method not in _GREETINGS), key=lambda one: one.number
        )

    def _key(self, method: str, params: Any, request_id: object) -> bytes:
        if request_id is None:  # of notifications only that they came counts
            return key_of(method, {}, ())
        own = msgspec.json.decode(msgspec.json.encode({"method": method, "params": params}))
        own = redacted(own, self._play.redact)
        return key_of(method, own.get("params", {}), self._play.ignore)

    # ---------------------------------------------------------------- finding

    async def _handle(self, session: Session, call: Call) -> Any:
        params = msgspec.json.decode(call.params) if call.params else {}
        exchange = self._find(call, params)
        opening = not self._reached
        if exchange is not None:
            self._reach(exchange.number)
            if call.method == "initialize" and self._elsewhere is not None:
                self._elsewhere.hello(session, params)
        part = _Part(self, session, call, exchange)
        if opening:
            part.later(self._script.opening)
        if exchange is None:
            return await self._missing(session, call, params)
        try:
            return await part.perform(exchange)
        finally:
            part.later(exchange.followers)

    def failure(self, method: str, params: Any) -> Entry | None:
        """How the transport failed this request, if that is what happened to it when it was recorded."""
        waiting = self._waiting.get(self._key(method, params, 0))
        if not waiting or waiting[0].ending != "failed":
            return None
        exchange = waiting.popleft()
        self._reach(exchange.number)
        return exchange.answer

    def _find(self, call: Call, params: Any) -> Exchange | None:
        key = self._key(call.method, params, call.id)
        waiting = self._waiting.get(key)
        if waiting:
            exchange = waiting.popleft()
            self._given.setdefault(key, []).append(exchange)
            return exchange
        given = self._given.get(key)
        again = self._play.repeat or call.method in _REPEATABLE or call.method.endswith("/list")
        if not given or not again:
            return None
        last = given[-1]
        return Exchange(last.number, last.entry, last.steps, last.answer, last.ending)

    async def _missing(self, session: Session, call: Call, params: Any) -> Any:
        if self._elsewhere is not None:
            ask = self._elsewhere.tell if call.id is None else self._elsewhere.ask
            return await ask(session, call)
        if call.id is None:
            return None
        if call.method == "ping":
            return {}
        words = self._words(call.method, params)
        if not (call.method == "server/discover" and self._has("initialize")):  # a client that finds out the era
            self.missed.append(words)
        raise ProtocolError(words, code=-32601)

    def _has(self, method: str) -> bool:
        return any(exchange.method == method for exchange in self._script.exchanges)

    def _words(self, method: str, params: Any) -> str:
        """What to say of a request that isn't in the recording: what is most like it, and what to do."""
        name, asked = self._play.name, request_of(method, params, self._play.ignore)
        given = self._given.get(self._key(method, params, 0))
        advice = "To add it: Recording(path, target, record='missing')"
        if given:
            lines = ", ".join(str(exchange.entry.line) for exchange in given)
            often = "once" if len(given) == 1 else f"{len(given)} times"
            return (
                f"{subject(method, params)} was asked more often than in the recording {name}, which has it {often} "
                f"(line {lines}). To have the last answer again: repeat=True. {advice}"
            )
        like = [one for one in self._script.exchanges if one.method == method and one.id is not None]
        found = nearest(asked, ((one, request_of(method, one.params, self._play.ignore)) for one in like))
        if found is None:
            known = ", ".join(sorted({one.method for one in self._script.exchanges if one.id is not None})) or "nothing"
            return f"{subject(method, params)} is not in the recording {name}, which has {shorten(known)}. {advice}"
        exchange, places = found
        differing = "; ".join(f"{path}: {old!r} is recorded, {new!r} was asked" for path, old, new in places[:3])
        return (
            f"{subject(method, params)} is not in the recording {name} like this. The nearest is in line "
            f"{exchange.entry.line}: {shorten(differing, 600)}. {advice}"
        )

    # ---------------------------------------------------------------- places

    def _reach(self, number: int) -> None:
        """The client has said this one: what waits for it may come."""
        self._reached.add(number)
        for wanted, future in self._watchers:
            if wanted == number and not future.done():
                future.set_result(None)
        self._watchers = [pair for pair in self._watchers if not pair[1].done()]

    async def place(self, number: int) -> None:
        """Wait until the client has said this one."""
        if number and number not in self._reached:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            watcher = number, future
            self._watchers.append(watcher)
            try:
                await future
            finally:
                if watcher in self._watchers:
                    self._watchers.remove(watcher)

    # ---------------------------------------------------------------- comparing

    def compare_answer(self, question: Question, answer: Mapping[str, Any]) -> None:
        """What the client answers must be what it answered then: all that follows is a reaction to it."""
        assert question.answer is not None
        then, ignore = question.answer.message, self._play.ignore
        own = redacted(msgspec.json.decode(msgspec.json.encode(answer)), self._play.redact)
        for member in ("result", "error"):
            old, new = plain({member: then.get(member)}, ignore), plain({member: own.get(member)}, ignore)
            if member == "error":  # in which words is the client's own matter
                old, new = _code(old), _code(new)
            for path, before, now in differences(old[member], new[member], path=member):
                asked = question.entry.message
                words = (
                    f"The client answered {asked['method']} (line {question.entry.line} of {self._play.name}) "
                    f"differently: {path}: {before!r} is recorded, {now!r} was answered"
                )
                self.missed.append(words)
                raise ProtocolError(words)

    @property
    def play(self) -> Play:
        """How it is played."""
        return self._play


def _code(found: Any) -> Any:
    error = found.get("error")
    return {"error": error.get("code") if isinstance(error, Mapping) else error}


class _Part:
    """One call, served from the recording."""

    def __init__(self, player: Player, session: Session, call: Call, exchange: Exchange | None) -> None:
        self._player = player
        self._session = session
        self._call = call
        self._tokens = {exchange.id: call.id} if exchange is not None else {}
        recorded = exchange.params.get("_meta", {}).get("progressToken") if exchange is not None else None
        self._token = (recorded, call.meta.progress_token if call.meta is not None else None)
        self._asked: dict[Question, asyncio.Task[dict[str, Any]]] = {}

    async def perform(self, exchange: Exchange) -> Any:
        """Everything that belongs to the exchange, then its end."""
        try:
            for step in exchange.steps:
                await self._step(step, wait=exchange.method == LISTEN)
            return await self._end(exchange)
        finally:
            for task in self._asked.values():
                task.cancel()

    def later(self, steps: Sequence[Step]) -> None:
        """What the server said when nothing was being served: soon, behind the answer."""
        if steps and self._session.connection.closed is None:
            task = self._session.loop.create_task(self._say_later(steps))
            _talking.add(task)
            task.add_done_callback(_talking.discard)

            async def stop() -> None:
                task.cancel()

            self._session.on_close(stop)

    async def _say_later(self, steps: Sequence[Step]) -> None:
        await asyncio.sleep(0)
        with suppress(HingeError):
            for step in steps:
                await self._step(step, wait=True, about=None)

    async def _step(self, step: Step, *, wait: bool, about: Call | msgspec.UnsetType | None = UNSET) -> None:
        call = self._call if about is UNSET else about
        if isinstance(step, Await):
            if step.question in self._asked:
                answer = await self._asked[step.question]
                if call is not None:
                    self._player.compare_answer(step.question, answer)
            return
        if isinstance(step, Say) and wait:
            await self._player.place(step.after)
        if step.entry.kind == "text":
            await self._session.channel.send(Outgoing(step.entry.text, about=call))
            return
        method, params = str(step.entry.message["method"]), step.entry.message.get("params", UNSET)
        params = self._mapped(params)
        if isinstance(step, Question):
            self._asked[step] = self._session.loop.create_task(self._ask(method, params, call))
            await asyncio.sleep(0)
        elif method != "notifications/progress" or self._wants(step.entry):
            await self._session.notify(method, params, about=call)

    async def _ask(self, method: str, params: Any, about: Call | None) -> dict[str, Any]:
        limit = self._player.play.limits.question
        try:
            result = await self._session.request(method, params, about=about, total=limit)
        except PeerError as exc:
            return {"error": {"code": exc.code, "message": exc.message}}
        return {"result": msgspec.json.decode(result)}

    def _wants(self, entry: Entry) -> bool:
        """Progress goes to those who gave a token."""
        token = entry.message.get("params", {}).get("progressToken")
        return token != self._token[0] or self._token[1] is not None

    def _mapped(self, params: Any) -> Any:
        """Ids and tokens of the recording as those of this conversation."""
        if not isinstance(params, Mapping):
            return params
        found = dict(params)
        if "progressToken" in found and found["progressToken"] == self._token[0]:
            found["progressToken"] = self._token[1]
        return self._remapped(found)

    def _remapped(self, found: dict[str, Any]) -> dict[str, Any]:
        meta = found.get("_meta")
        if isinstance(meta, Mapping) and meta.get(SUBSCRIPTION_ID) in self._tokens:
            found["_meta"] = {**meta, SUBSCRIPTION_ID: self._tokens[meta[SUBSCRIPTION_ID]]}
        return found

    async def _end(self, exchange: Exchange) -> Any:
        call, about, name = self._call, subject(exchange.method, exchange.params), self._player.play.name
        if call.id is None:
            return None
        if exchange.ending == "answered":
            return self._answer(exchange)
        if exchange.ending == "cut":
            await self._session.channel.close()
            return {}
        if exchange.ending == "failed":
            status = exchange.answer.status if exchange.answer is not None else None
            words = exchange.answer.words if exchange.answer is not None else ""
            how = f"HTTP {status}" if status else words
            raise ProtocolError(
                f"{about} failed in the recording {name}: {how}", {"status": status} if status else UNSET
            )
        if exchange.method == LISTEN:
            await self._until_over()
            return {}
        if (
            exchange.method == "server/discover"
        ):  # too slow for the client's patience then: it went on without an answer
            raise MethodNotFound(exchange.method)
        if exchange.ending == "cancelled":
            await asyncio.sleep(self._player.play.patience)
        raise ProtocolError(f"{about} has no answer in the recording {name} (line {exchange.entry.line})")

    async def _until_over(self) -> None:
        over = asyncio.Event()
        forget = self._session.on_ending(over.set)
        try:
            await over.wait()
        finally:
            forget()

    def _answer(self, exchange: Exchange) -> Any:
        assert exchange.answer is not None
        message = exchange.answer.message
        if "error" in message:
            raise _error(message["error"])
        result = message.get("result")
        return self._remapped(dict(result)) if isinstance(result, Mapping) else result


#: What is still to be said; the event loop itself would not keep these tasks alive.
_talking: set[asyncio.Task[None]] = set()


def _error(recorded: Any) -> Exception:
    try:
        error = msgspec.convert(recorded, ErrorObject)
    except msgspec.ValidationError:
        return CallError("the recorded error is none")
    return ProtocolError(error.message, error.data, code=error.code)
