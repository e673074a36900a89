"""Questions that wait for an answer, and the states of the calls that asked them: in the backend, so that any process goes on.

A question is found by a digest of its token, the state of a call by whose call it is. Whoever takes a state has it alone.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Final, Literal, TypeAlias

import msgspec

from gemel.backends.base import store_refusal
from gemel.backends.keys import make_key
from gemel.backends.server_backend import ServerBackend
from gemel.errors import BackendError, GemelError, Overloaded

#: Who may answer: the user of the machine, the principal of the call, or whoever has the link.
Audience: TypeAlias = Literal["local", "principal", "anybody"]

#: Seconds by which the clocks of machines may differ.
_CLOCK_SKEW: Final = 60.0
#: Seconds between two looks at a question that somebody waits for: at first, and at most.
_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
#: Tries to change the list of the questions of one caller.
_TRIES: Final = 50


class OpenQuestion(msgspec.Struct, array_like=True):
    """One question.

    Attributes:
        audience: Who may answer.
        principal: Whose call asks; None if that is not known.
        holder: Whose share of the bounds it takes.
        secret: What the page shows and the answer must repeat.
        server: The server, as people read its name.
        tool: What is called.
        client: The client, as it says.
        message: The question.
        arguments: The arguments of the call, as JSON.
        schema: The schema of the answer, as JSON.
        expires: When it can't be answered any more, in seconds since 1970.
        posted: What was answered before and did not fit, as it was posted.
        errors: Why.
        visitor: A digest of the cookie of the first visitor, who alone may answer; "" for no such bond.
        answer: The answer, as the JSON of an `ElicitResult`; b"" before.
        approves: Whether a policy asks for a yes or no.
    """

    audience: Audience
    principal: str | None
    holder: str
    secret: str
    server: str
    tool: str
    client: str
    message: str
    arguments: bytes
    schema: bytes
    expires: float
    posted: dict[str, list[str]] | None = None
    errors: dict[str, str] = {}
    visitor: str = ""
    answer: bytes = b""
    approves: bool = False


class _Waiting(msgspec.Struct, array_like=True):
    name: str
    expires: float


_questions = msgspec.msgpack.Decoder(OpenQuestion)
_lists = msgspec.msgpack.Decoder(list[_Waiting])


def digest(text: str) -> str:
    """Return a digest under which something secret is stored."""
    return sha256(text.encode()).hexdigest()


class OpenQuestions:
    """Keeps questions and states. All methods raise Overloaded if the backend can't be used, GemelError for what is too large.

    Args:
        backend: Where they are.
        ttl: Seconds in which a question can be answered, and its answer used.
        most: Open questions of one caller.
        most_in_all: Open questions that this process has asked.
    """

    def __init__(self, backend: ServerBackend, *, ttl: float, most: int, most_in_all: int) -> None:
        self.ttl = ttl
        #: Seconds that a call waits: the answer may come at the last moment, and then there is as long again to repeat the call.
        self.call_ttl = 2 * ttl
        self._backend = backend
        self._most = most
        self._most_in_all = most_in_all
        #: When the questions of this process expire, by their names.
        self._own: dict[str, float] = {}

    # ---------------------------------------------------------------- questions

    async def ask(self, question: OpenQuestion) -> str:
        """Keep a new question and return its token. Raises Overloaded if too many wait for an answer already."""
        token = secrets.token_urlsafe(24)
        name, now = digest(token), time.time()
        if len(self._own) >= self._most_in_all:
            self._own = {own: expires for own, expires in self._own.items() if expires > now}
            if len(self._own) >= self._most_in_all:
                raise Overloaded("Too many questions wait for an answer: try again later")
        async with _reachable("A question can't be asked"):
            if not await self._enlist(question.holder, _Waiting(name, question.expires)):
                raise Overloaded(f"{self._most} questions of this caller wait for an answer already: answer them first")
            try:
                await self._backend.set(_place(name), msgspec.msgpack.encode(question), ttl=self.ttl)
            except ValueError as exc:
                raise GemelError(f"The form or the arguments are too large for a page: {exc}") from exc
        self._own[name] = question.expires
        return token

    async def get(self, token: str) -> OpenQuestion | None:
        """Return a question; None if there is none of this token, or it has expired."""
        async with _reachable("A question can't be read"):
            text = await self._backend.get(_place(digest(token)))
        question = None if text is None else _questions.decode(text)
        return question if question is not None and (question.answer or question.expires > time.time()) else None

    async def change(self, token: str, former: OpenQuestion, question: OpenQuestion) -> bool:
        """Replace a question, such as by one that is answered. Returns False if it was changed meanwhile."""
        place = _place(digest(token))
        before, after = msgspec.msgpack.encode(former), msgspec.msgpack.encode(question)
        ttl = self.ttl if question.answer else max(question.expires - time.time(), 1.0)
        async with _reachable("A question can't be answered"):
            return await self._backend.replace(place, before, after, ttl=ttl)

    async def drop(self, token: str, holder: str) -> bool:
        """Forget a question, whose answer is known or not wanted any more. Returns False if somebody has forgotten it already."""
        name = digest(token)
        self._own.pop(name, None)
        async with _reachable("A question can't be ended"):
            is_dropped = await self._backend.delete(_place(name))
            await self._enlist(holder, None, without=name)
        return is_dropped

    async def wait(self, token: str, seconds: float) -> OpenQuestion | None:
        """Wait until a question is answered. Returns it as it is then, or when the time is over; None if it is gone."""
        until, pause = time.monotonic() + seconds, _PAUSE
        while True:
            question = await self.get(token)
            left = until - time.monotonic()
            if question is None or question.answer or left <= 0:
                return question
            await asyncio.sleep(min(pause, left))
            pause = min(pause * 1.5, _LONGEST_PAUSE)

    async def _enlist(self, holder: str, added: _Waiting | None, *, without: str = "") -> bool:
        """Change the list of the open questions of a caller. Returns False if there is no room."""
        key = make_key("ask", "open", digest(holder))
        for _ in range(_TRIES):
            text, now = await self._backend.get(key), time.time()
            listed = [] if text is None else _lists.decode(text)
            listed = [one for one in listed if one.expires > now and one.name != without]
            if added is not None:
                if len(listed) >= self._most:
                    return False
                listed.append(added)
            if await self._backend.replace(key, text, msgspec.msgpack.encode(listed), ttl=self.ttl + _CLOCK_SKEW):
                return True
        raise Overloaded("Too many questions of one caller at once: try again later")

    # ---------------------------------------------------------------- states of calls

    async def keep(self, call: bytes, state: bytes, *, former: bytes | None) -> bool:
        """Keep the state of a call that waits, in place of a former one. Returns False if there is another one."""
        async with _reachable("A call can't wait"):
            try:
                return await self._backend.replace(_call(call), former, state, ttl=self.call_ttl + _CLOCK_SKEW)
            except ValueError as exc:
                raise GemelError(f"What the call has asked and done is too large to be kept: {exc}") from exc

    async def take(self, call: bytes) -> bytes | None:
        """Return the state of a call and forget it: of several callers one gets it. None if there is none."""
        key = _call(call)
        async with _reachable("A call can't go on"):
            state = await self._backend.get(key)
            return state if state is not None and await self._backend.delete(key) else None

    async def peek(self, call: bytes) -> bytes | None:
        """Return the state of a call."""
        async with _reachable("A call can't go on"):
            return await self._backend.get(_call(call))

    # ---------------------------------------------------------------- secrets of visitors

    async def remember(self, kind: str, value: bytes, seconds: float) -> str:
        """Keep something for a visitor. Returns the secret by which it is found."""
        secret = secrets.token_urlsafe(32)
        await self.store(kind, secret, value, seconds)
        return secret

    async def store(self, kind: str, secret: str, value: bytes, seconds: float) -> None:
        """Keep something that a secret finds."""
        async with _reachable("A login can't be kept"):
            await self._backend.set(make_key("ask", kind, digest(secret)), value, ttl=seconds)

    async def find(self, kind: str, secret: str) -> bytes | None:
        """Return what was kept for a secret; None if there is nothing."""
        async with _reachable("A login can't be read"):
            return await self._backend.get(make_key("ask", kind, digest(secret)))

    async def use_up(self, kind: str, secret: str) -> bytes | None:
        """Return the same once."""
        key = make_key("ask", kind, digest(secret))
        async with _reachable("A login can't be read"):
            value = await self._backend.get(key)
            return value if value is not None and await self._backend.delete(key) else None


def new_question(
    audience: Audience,
    *,
    principal: str | None,
    holder: str,
    server: str,
    tool: str,
    client: str,
    message: str,
    arguments: bytes,
    schema: Mapping[str, object],
    ttl: float,
    posted: Mapping[str, Sequence[str]] | None = None,
    errors: Mapping[str, str] | None = None,
    approves: bool = False,
) -> OpenQuestion:
    """Return a question that can be answered for some seconds; see `OpenQuestion`."""
    return OpenQuestion(
        audience=audience,
        principal=principal,
        holder=holder,
        secret=secrets.token_urlsafe(24),
        server=server,
        tool=tool,
        client=client,
        message=message,
        arguments=arguments,
        schema=msgspec.json.encode(schema),
        expires=time.time() + ttl,
        posted=None if posted is None else {name: list(values) for name, values in posted.items()},
        errors=dict(errors or {}),
        approves=approves,
    )


def process_secret() -> str:
    """Return what tells the calls of this process from those of others that share its backend."""
    return os.urandom(16).hex()


def _place(name: str) -> str:
    return make_key("ask", "question", name)


def _call(call: bytes) -> str:
    return make_key("ask", "call", call.hex())


@asynccontextmanager
async def _reachable(what: str) -> AsyncIterator[None]:
    """Raise Overloaded in place of an error of the backend, which callers aren't told."""
    try:
        yield
    except BackendError as exc:
        raise store_refusal(what, exc) from exc
