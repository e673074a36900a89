"""Asking the user, the model or the roots from inside a handler: one face for both eras.

In the handshake era a question is a request to the client, and the handler waits. In the stateless era it ends the call
with `input_required`; on the retry the handler runs again from its top, and what was answered or remembered before is
handed back: answers by what was asked, steps by what was called, both carried in the sealed `requestState`.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, get_type_hints

import msgspec
from msgspec import UNSET, Raw

from hinge.errors import ErrorObject, HingeError, InvalidParams, MissingClientCapability, PeerError, ToolError, shorten
from hinge.jsonrpc import RequestId
from hinge.protocol.calls import Call
from hinge.protocol.eras.handshake import HANDSHAKE
from hinge.protocol.revisions.adapt import known_in, shape
from hinge.protocol.states import HandshakeState
from hinge.protocol.validation import compile_schema, first_problem
from hinge.schema.base import Result
from hinge.schema.input_required import InputRequest, InputRequiredResult
from hinge.schema.lifecycle import ClientCapabilities, Sampling
from hinge.schema.methods import METHODS
from hinge.schema.sampling import SamplingMessage, ToolResultContent, ToolUseContent
from hinge.server.elicitation.request_state import Seal
from hinge.session import Session
from hinge.timeouts import PausableTimeout

AnswerT = TypeVar("AnswerT", bound=Result)


class Declined(ToolError):
    """The user did not answer: `action` is "decline" or "cancel". Uncaught, it is the tool's failure, in plain words."""

    def __init__(self, action: str, message: str) -> None:
        said = "declined to answer" if action == "decline" else "closed without answering"
        super().__init__(f"The user {said}: {shorten(message)}")
        self.action = action


class Unanswered(PeerError, ToolError):
    """A handshake client answered a question with an error. Uncaught, it is the tool's failure, in the client's words."""

    def __init__(self, error: ErrorObject, method: str) -> None:
        super().__init__(error)
        self.args = (f"The client did not answer {method}: {self}",)


class InputRequired(BaseException):
    """Ends a handler that can't go on without an answer. No Exception, so that `except Exception` lets it pass."""


class Asker(Protocol):
    """What asking needs of a context."""

    @property
    def call(self) -> Call:
        """The call being served."""
        ...

    @property
    def session(self) -> Session:
        """Its conversation."""
        ...

    @property
    def method(self) -> str:
        """What is being served."""
        ...

    @property
    def params(self) -> Raw:
        """Its params, as JSON text."""
        ...

    @property
    def request_id(self) -> RequestId | None:
        """None for a notification."""
        ...

    @property
    def protocol_version(self) -> str:
        """The revision that governs it."""
        ...

    @property
    def client_capabilities(self) -> ClientCapabilities:
        """What the client declared."""
        ...

    @property
    def principal(self) -> str | None:
        """Who asks."""
        ...

    @property
    def questions(self) -> Questions:
        """What it asks and remembers."""
        ...


class _State(msgspec.Struct, array_like=True):
    """What travels in `requestState`: answers and step results by key, as JSON text, and which questions are open."""

    answers: dict[str, bytes]
    steps: dict[str, bytes]
    asked: list[str]


_state_decoder = msgspec.msgpack.Decoder(_State)


class Questions:
    """What one stateless call asks and remembers, over all its rounds."""

    def __init__(self, ctx: Asker, seal: Seal, params: Any) -> None:
        self._ctx = ctx
        self._seal = seal
        self._open: dict[str, InputRequest] = {}
        self._used: set[str] = set()
        self._counts: dict[str, int] = {}
        self._state = _State({}, {}, [])
        state = getattr(params, "request_state", UNSET)
        if state is not UNSET:
            self._state = _state_decoder.decode(seal.open(state, self._bound()))
        self._take(getattr(params, "input_responses", Raw(b"")), restored=state is not UNSET)

    def _take(self, responses: Raw, *, restored: bool) -> None:
        """The answers of this round; keys that nobody asked for are ignored (MRTR-16)."""
        text = bytes(responses)
        if text in (b"", b"null"):
            return
        try:
            found = msgspec.json.decode(text, type=dict[str, Raw])
        except msgspec.MsgspecError:
            raise InvalidParams("inputResponses must be an object of answers by key") from None
        for key, value in found.items():
            if not restored or key in self._state.asked:
                self._state.answers[key] = bytes(value)

    def _bound(self) -> bytes:
        """What a state is tied to: who asks, which method, which params (MRTR-12)."""
        params = msgspec.json.decode(self._ctx.params)
        for key in ("_meta", "inputResponses", "requestState"):
            params.pop(key, None)
        text = msgspec.json.encode([self._ctx.principal, self._ctx.method, params], order="deterministic")
        return hashlib.sha256(text).digest()

    async def ask(self, method: str, params: Any, kind: type[AnswerT], key: str | None) -> AnswerT:
        """The answer, if an earlier round brought it; else the call ends here, together with its sister questions."""
        if key is None:
            text = msgspec.json.encode(params, order="deterministic") if params is not UNSET else b""
            key = self._numbered(f"{method.partition('/')[0]}-{hashlib.sha256(text).hexdigest()[:8]}")
        elif key in self._used or key in self._open:
            raise HingeError(
                f"{self._ctx.method}: there is a question {key!r} already: give this one another key (MRTR-04)"
            )
        answer = self._state.answers.get(key)
        if answer is not None:
            self._used.add(key)
            return _read(answer, kind, key)
        self._open[key] = InputRequest(method=method, params=params)
        for _ in range(3):
            await asyncio.sleep(0)  # let questions asked together (gather) join this round
        raise InputRequired

    def recall(self, key: str) -> bytes | None:
        """The remembered result of a step, as JSON text."""
        return self._state.steps.get(key)

    def remember(self, key: str, text: bytes) -> None:
        """Keep the result of a step for later rounds."""
        self._state.steps[key] = text

    def step_key(self, name: str, arguments: bytes) -> str:
        """The key of a step: what is called with what, and the how-manieth time."""
        return self._numbered(f"{name}-{hashlib.sha256(arguments).hexdigest()[:8]}")

    def _numbered(self, key: str) -> str:
        count = self._counts[key] = self._counts.get(key, 0) + 1
        return key if count == 1 else f"{key}-{count}"

    @property
    def open(self) -> bool:
        """Whether a question waits for its answer."""
        return bool(self._open)

    def result(self) -> InputRequiredResult:
        """The interim answer of this round. Raises HingeError when the handler no longer asks what was answered."""
        forgotten = set(self._state.answers) - self._used
        if forgotten & set(self._state.asked):
            raise HingeError(
                f"{self._ctx.method}: question {sorted(forgotten)[0]!r} was answered, but this round did not ask it again: a "
                "handler must ask the same in every round; what varies (time, chance, I/O) belongs in ctx.step"
            )
        self._state.asked = [*self._used, *self._open]
        payload = msgspec.msgpack.encode(self._state)
        return InputRequiredResult(
            input_requests=dict(self._open), request_state=self._seal.seal(payload, self._bound())
        )


def _read(text: bytes, kind: type[AnswerT], key: str) -> AnswerT:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError as exc:
        raise InvalidParams(f"inputResponses.{key} is no valid answer: {exc}") from None


async def ask(ctx: Asker, method: str, params: Any, kind: type[AnswerT], key: str | None = None) -> AnswerT:
    """One question, in the way of the call's era. Raises HingeError where the protocol allows none."""
    if ctx.request_id is None:
        raise HingeError("A notification handler can't ask: there is no request that the question could belong to")
    params = shape(params, ctx.protocol_version) if params is not UNSET else params
    if ctx.call.era is HANDSHAKE:
        raw = await _waiting(ctx, method, params)
        try:
            return msgspec.json.decode(raw, type=kind)
        except msgspec.MsgspecError as exc:
            raise ToolError(f"The client's answer to {method} can't be read: {exc}") from exc
    row = METHODS.get(ctx.call.method)
    if row is None or not row.may_ask:  # MRTR-02
        raise HingeError(f"{ctx.call.method} can't ask: only tools, prompts and resources can")
    return await ctx.questions.ask(method, params, kind, key)


async def _waiting(ctx: Asker, method: str, params: Any) -> Raw:
    """A question to a handshake client; meanwhile the call's own time limit stands still."""
    timeout: PausableTimeout | None = getattr(ctx, "timeout", None)
    if timeout is not None:
        timeout.pause()
    try:
        return await ctx.session.request(method, params, about=ctx.call, total=ctx.session.connection.limits.question)
    except PeerError as exc:
        raise Unanswered(exc.error, method) from exc
    finally:
        if timeout is not None:
            timeout.resume()


def check_askable(ctx: Asker, need: Mapping[str, Any]) -> None:
    """Before asking: `require`, and a HingeError while `initialize` is being answered, when nothing is agreed yet (A-033)."""
    if ctx.call.inline and ctx.session.connection.handshake.state is HandshakeState.NEGOTIATING:
        raise HingeError("The client can't be asked while initialize is being answered: it would never reply")
    require(ctx.client_capabilities, need)


def require(have: ClientCapabilities, need: Mapping[str, Any]) -> None:
    """Check before asking (REQM-06, T-27). `need` has the shape of ClientCapabilities. Raises MissingClientCapability."""
    declared = {key: value for key, value in msgspec.to_builtins(have).items() if value is not None}
    elicitation = declared.get("elicitation")
    if elicitation is not None and "url" not in elicitation:
        elicitation.setdefault("form", {})  # ELIC-01: nothing said means form
    if not _covers(declared, need):
        raise MissingClientCapability(dict(need))


def _covers(have: Any, need: Mapping[str, Any]) -> bool:
    return isinstance(have, dict) and all(key in have and _covers(have[key], value) for key, value in need.items())


def check_content(content: Mapping[str, Any] | None, schema: Mapping[str, Any]) -> dict[str, Any]:
    """An answer to a form that was given as a JSON Schema. Raises InvalidParams with the first problem (C-091)."""
    found = dict(content or {})
    problem = first_problem(compile_schema(dict(schema)), found)
    if problem is not None:
        raise InvalidParams(f"The answer doesn't fit the form: {problem}")
    return found


def sees_contexts(client: ClientCapabilities, revision: str) -> bool:
    """Whether a model may be given what servers said: once there is a capability for that, it must be declared (SAMP-09)."""
    declared = client.sampling is not None and client.sampling.context is not None
    return declared or not known_in(Sampling, "context", revision)


def check_balance(messages: Sequence[SamplingMessage]) -> None:
    """Tool results stand alone, and answer all the tool uses right before them (SAMP-06, SAMP-07). Raises HingeError."""
    wanted: set[str] = set()
    for message in messages:
        blocks = message.content if isinstance(message.content, list) else [message.content]
        results = {block.tool_use_id for block in blocks if isinstance(block, ToolResultContent)}
        if results and any(not isinstance(block, ToolResultContent) for block in blocks):
            raise HingeError("A message with tool results must hold nothing else")
        if results != wanted:
            raise HingeError(
                f"Tool uses without a result right after them, or results without a use: {results ^ wanted}"
            )
        wanted = {block.id for block in blocks if isinstance(block, ToolUseContent)}
    if wanted:
        raise HingeError(f"Tool uses without a result: {wanted}")


async def step(ctx: Asker, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Run once over all rounds: the first round calls, later ones are handed the recorded result."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    if ctx.call.era is HANDSHAKE:
        value = await _call(function, arguments, named)
        _written(value, name)  # a mistake that would show in the other era shows in both
        return value
    try:
        given = msgspec.json.encode([arguments, named], order="deterministic", enc_hook=repr)
    except (TypeError, ValueError):
        given = b""
    key = ctx.questions.step_key(name, given)
    text = ctx.questions.recall(key)
    if text is None:
        text = _written(await _call(function, arguments, named), name)
        ctx.questions.remember(key, text)
    kind = _returned(function)
    return msgspec.json.decode(text) if kind is None else msgspec.json.decode(text, type=kind)


def _written(value: Any, name: str) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, msgspec.MsgspecError) as exc:
        raise HingeError(f"ctx.step({name}): its result can't be remembered, JSON can't say it: {exc}") from exc


async def _call(function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    value = function(*arguments, **named)
    return await value if isinstance(value, Awaitable) else value


def _returned(function: Any) -> Any:
    """The type that a step's result is read back into; None for what is not annotated."""
    try:
        found = get_type_hints(inspect.unwrap(function)).get("return")
    except (NameError, TypeError, AttributeError):
        return None
    return found if found is not Any else None
