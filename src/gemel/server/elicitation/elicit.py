"""Input from the client inside a handler: what is requested, and how the answer is awaited. The eras differ in the way.

In the handshake era a request goes to the client and the handler waits: `handshake.py`. In the stateless era the call ends
with `input_required` and runs again from its top when the client has the answers: `stateless.py`.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Generic, NamedTuple, NoReturn, TypeVar, get_type_hints

import msgspec
from msgspec import UNSET

from gemel.errors import (
    DefinitionError,
    ErrorObject,
    GemelError,
    MissingClientCapability,
    PeerError,
    ToolError,
    shorten,
)
from gemel.protocol.records import Call, Record
from gemel.protocol.revisions.adapt import known_in, shape
from gemel.protocol.states import HandshakeState
from gemel.protocol.validation import compile_schema, first_problem
from gemel.schema.base import Result
from gemel.schema.elicitation import ElicitUrlParams
from gemel.schema.input_required import InputRequiredResult
from gemel.schema.lifecycle import ClientCapabilities, Sampling
from gemel.schema.sampling import SamplingMessage, ToolResultContent, ToolUseContent
from gemel.schema.tools import CallToolResult
from gemel.session import Session
from gemel.timeouts import PausableTimeout
from gemel.values.encoding import encode_value, ordered_text
from gemel.values.reading import read_as

ValueT = TypeVar("ValueT")


class Declined(ToolError):
    """The user did not answer. A tool that does not catch it fails with this text.

    Args:
        action: "decline" if the user refused, "cancel" if the user closed the form.
        message: What the user was asked.

    Specification: client/elicitation, "Response Actions".
    """

    def __init__(self, action: str, message: str) -> None:
        reaction = "declined to answer" if action == "decline" else "closed without answering"
        super().__init__(f"The user {reaction}: {shorten(message)}")
        self.action = action


class InputRefused(PeerError, ToolError):
    """A client answered a request for input with an error. A tool that does not catch it fails with the client's text."""

    def __init__(self, error: ErrorObject, method: str) -> None:
        super().__init__(error)
        self.args = (f"The client did not answer {method}: {self}",)


class InputRequired(BaseException):
    """Ends a sync handler, in its thread, whose call has to wait for input. No Exception, so that `except Exception` passes it."""


class Unanswered(CallToolResult[Any], kw_only=True):
    """The result of a tool call that waits for a person: its text tells the model how the call goes on."""


class ClientInput(Coroutine[Any, Any, ValueT], Generic[ValueT]):
    """Input that is requested from the client: `await` it for the answer.

    In the stateless era all that a handler has created when the first one is awaited without an answer go out together.
    Testing one for truth instead of awaiting it raises DefinitionError, and so does a handler that returns without having
    awaited one.
    """

    def __init__(
        self,
        elicitation: ElicitationStrategy,
        method: str,
        params: Any,
        kind: type[Any],
        read: Callable[[Any], ValueT],
        *,
        label: str,
        key: str | None,
        task: asyncio.Task[Any] | None,
        timeout: PausableTimeout | None,
    ) -> None:
        self.method = method
        self.params = params
        self.kind = kind
        self.label = label
        self.key = key
        #: The task that runs the handler, None for a sync one in a thread; and the time limit of the call.
        self.task = task
        self.timeout = timeout
        self.awaited = False
        #: From the answer, as `kind`, to its value.
        self.read = read
        self._elicitation = elicitation
        self._coroutine: Coroutine[Any, Any, ValueT] | None = None
        elicitation.add(self)

    def __repr__(self) -> str:
        return f"<{self.label}>"

    def __bool__(self) -> NoReturn:
        self.awaited = True
        raise DefinitionError(f"{self.label} is not the answer: write `await {self.label}`, without async `ctx.sync.…`")

    def __await__(self) -> Generator[Any, Any, ValueT]:
        return self._started().__await__()

    def send(self, value: Any, /) -> Any:
        """Continue, as a task does."""
        return self._started().send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an error where it waits, as a task does."""
        return self._started().throw(*error)

    def close(self) -> None:
        """End without an answer: awaiting it from now on raises RuntimeError."""
        self._started().close()

    async def _answer(self) -> ValueT:
        return self.read(await self._elicitation.answer(self))

    def _started(self) -> Coroutine[Any, Any, ValueT]:
        self.awaited = True
        if self._coroutine is None:
            self._coroutine = self._answer()
        return self._coroutine


class UrlElicitation(ClientInput[None]):
    """A page that the user is asked to open: `await` it until the user has agreed to open it.

    Specification: client/elicitation, "URL Mode Elicitation Requests"; client/elicitation of 2025-11-25, "Completion
    Notifications for URL Mode Elicitation".
    """

    @property
    def elicitation_id(self) -> str | None:
        """The id by which the client knows the page; None in revisions other than 2025-11-25, which have none."""
        return getattr(self.params, "elicitation_id", None)


#: Where an object lies, in its repr.
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")


class RunningStep(NamedTuple):
    """A step that is running: the key that services see, and the call that it belongs to.

    The keys of what is requested in the step begin with `scope`, so that it can't be taken for the same request outside.
    """

    key: str
    owner: ElicitationStrategy | None = None
    scope: str = ""


running_step: ContextVar[RunningStep | None] = ContextVar("gemel_running_step", default=None)


def _text_of(value: object) -> str:
    """An argument that JSON can't represent, as text that shows no address of this process.

    What is compared by its value counts with it; a function counts by its name, a connection or a client by its type.
    """
    kind: Any = type(value)
    if kind.__eq__ is object.__eq__ or callable(value):
        return str(getattr(value, "__qualname__", kind.__qualname__))
    return _ADDRESS.sub("", repr(value))


class StepCall:
    """A function to be called once over all rounds of a call; see `Context.step`."""

    def __init__(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any], *, retry: bool
    ) -> None:
        self.name = getattr(function, "__qualname__", type(function).__qualname__)
        #: Whether it may be called again if it is unknown whether it ran.
        self.retry = retry
        self._function = function
        self._arguments = arguments
        self._named = named

    @property
    def arguments(self) -> bytes:
        """The arguments as text, to tell one call from another: the same in another round, and in another process."""
        # A Context is a struct: it would be encoded with all that belongs to its request.
        arguments = [value for value in self._arguments if not isinstance(value, Record)]
        named = {name: value for name, value in self._named.items() if not isinstance(value, Record)}
        try:
            return msgspec.json.encode([arguments, named], order="deterministic", enc_hook=_text_of)
        except (TypeError, ValueError):
            return b""

    async def run(self, step: RunningStep) -> tuple[Any, bytes]:
        """The result, and the same as JSON text. Raises GemelError, in both eras, for what JSON can't represent."""
        token = running_step.set(step)
        try:
            value = self._function(*self._arguments, **self._named)
            if isinstance(value, Awaitable):
                value = await value
        finally:
            running_step.reset(token)
        try:
            return value, encode_value(value)
        except (TypeError, ValueError, msgspec.MsgspecError) as exc:
            raise GemelError(f"ctx.step({self.name}): JSON can't represent its result: {exc}") from exc

    def read(self, text: bytes) -> Any:
        """A remembered result, as the type that the function is annotated with."""
        try:
            kind = get_type_hints(inspect.unwrap(self._function)).get("return", Any)
        except (NameError, TypeError, AttributeError):
            kind = Any
        return read_as(kind, text)


class ElicitationStrategy(ABC):
    """The requests for input of one call, and the steps that it remembers. One class for each era implements it."""

    def __init__(self, session: Session, call: Call) -> None:
        self._session = session
        self._call = call
        self._inputs: list[ClientInput[Any]] = []

    def check_capabilities(self, client: ClientCapabilities, need: Mapping[str, Any]) -> None:
        """Raise MissingClientCapability for what can't be requested of a client.

        GemelError is raised while `initialize` is being answered: the client waits for that.

        Args:
            client: What the client declared.
            need: What is needed, in the shape of ClientCapabilities.
        """
        connection = self._session.connection
        if self._call.inline and connection.handshake.state is HandshakeState.NEGOTIATING:
            raise GemelError("The client can't be asked while initialize is being answered: it would never reply")
        if not connection.handshake.lasting and not offers(client, need):
            raise MissingClientCapability(dict(need), "which needs an HTTP session, and this server keeps none")
        require(client, need)

    def add(self, item: ClientInput[Any]) -> None:
        """Enter a request for input. Raises GemelError where the protocol allows none."""
        item.params = shape(item.params, self._call.revision)
        self._inputs.append(item)

    @contextmanager
    def at_work(self, what: object = None) -> Iterator[None]:
        """Inside the block, let no round end: something is done that must not be cut off, or may request more.

        Args:
            what: The key of a step; None for other work.
        """
        yield

    @property
    def has_ended_round(self) -> bool:
        """Whether the present round ends, or has ended, with what was requested here."""
        return False

    @property
    def task_id(self) -> str | None:
        """The id of the task as which the call runs; None for other calls."""
        return None

    def is_repeated(self, error: BaseException | None) -> bool:
        """Whether the call is made again after this end, because the run of its task does not count or another one goes on.

        Args:
            error: What the call has raised; None for a result.
        """
        return False

    def check_awaited(self) -> None:
        """Raise DefinitionError if the handler has returned without awaiting what it requested."""
        for item in self._inputs:
            if not item.awaited:
                is_sync = item.task is None  # `await` is not possible there
                written = item.label.replace("ctx.", "ctx.sync.", 1) if is_sync else f"await {item.label}"
                raise DefinitionError(f"{item.label} was not awaited: write `{written}`")

    def end(self) -> None:
        """The call is over. Breaks reference cycles, which would keep its params."""
        self._inputs.clear()

    # What is kept of nested requests that are served in rounds: see `nested.py`. Where handlers run once, nothing needs to be.

    def nested_key(self, method: str, params: Mapping[str, Any]) -> str:
        """The key of a nested request."""
        return ""

    async def recall(self, key: str) -> bytes | None:
        """What an earlier round of the call has kept under a key."""
        return None

    def remember(self, key: str, value: bytes | None) -> None:
        """Keep something for the next round of the call; None for nothing. Forget what was requested under this key."""
        return

    def is_relayed(self, result: InputRequiredResult) -> bool:
        """Whether a nested request is served elsewhere, and what it requires can be requested here."""
        return False

    @abstractmethod
    async def answer(self, item: ClientInput[Any]) -> Any:
        """The client's answer, as the item's type."""

    @abstractmethod
    async def step(self, call: StepCall) -> Any:
        """The result of a step, which may be that of an earlier round."""

    @abstractmethod
    async def suspend(self, task: asyncio.Task[Any] | None) -> NoReturn:
        """End the handler, because its call has to wait for input: cancel the task that runs it.

        Raises InputRequired if there is none: the caller raises it in the thread of a sync handler.
        """
        raise NotImplementedError

    @abstractmethod
    async def settle(self, task: asyncio.Task[Any], error: BaseException | None) -> Result | None:
        """The result of a call whose handler was suspended; None for any other end. `task` runs on as before."""


class KeyedElicitation(ElicitationStrategy):
    """Of a handler that can run again: what it requested, and its steps, are found again by keys."""

    def __init__(self, session: Session, call: Call) -> None:
        super().__init__(session, call)
        #: What this run requested, by key.
        self._requested: dict[str, ClientInput[Any]] = {}
        self._counts: dict[str, int] = {}

    def add(self, item: ClientInput[Any]) -> None:
        """Give a request for input its key. Raises GemelError for a key that is used already, and for a notification."""
        if self._call.id is None:
            raise GemelError(
                f"{self._call.method} is a notification: its handler can't request input from a stateless client"
            )
        super().add(item)
        if item.key is None:
            item.key = self._numbered(f"{item.method.partition('/')[0]}-{_digest(_repeated_text(item.params))[:32]}")
        else:
            item.key = self._scope() + item.key
            if item.key in self._requested:
                raise GemelError(
                    f"{self._call.method}: input with the key {item.key!r} is requested already: give this one another key"
                )
        self._requested[item.key] = item

    def end(self) -> None:
        super().end()
        self._requested.clear()

    def nested_key(self, method: str, params: Mapping[str, Any]) -> str:
        return self._numbered(f"nested-{_digest(method.encode() + ordered_text(params))[:32]}") + "/"

    def is_relayed(self, result: InputRequiredResult) -> bool:
        return True

    def _step_key(self, call: StepCall) -> str:
        """The key of a step: the function, its arguments, and a number for repetitions."""
        return self._numbered(f"{call.name}-{_digest(call.arguments)[:8]}")

    def _running_step(self, call_id: str, key: str) -> RunningStep:
        """A step of the call with this id."""
        return RunningStep(_digest(f"{call_id}:{key}".encode())[:32], self, scope_of_step(key))

    def _numbered(self, key: str) -> str:
        key = self._scope() + key
        count = self._counts[key] = self._counts.get(key, 0) + 1
        return key if count == 1 else f"{key}-{count}"

    def _scope(self) -> str:
        """What keys begin with here: in a step of this call, the scope of the step."""
        step = running_step.get()
        return step.scope if step is not None and step.owner is self else ""


def _repeated_text(params: Any) -> bytes:
    """The params of a request for input as text that is the same in each round: the id of a page is not."""
    if params is UNSET:
        return b""
    if isinstance(params, ElicitUrlParams) and params.elicitation_id is not None:
        params = msgspec.structs.replace(params, elicitation_id=None)
    return ordered_text(params)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def scope_of_step(key: str) -> str:
    """What the keys of requests and steps within a step begin with; also those of steps within them."""
    outer, slash, _ = key.rpartition("/")
    return f"{outer}{slash}step-{_digest(key.encode())[:16]}/"


def require(have: ClientCapabilities, need: Mapping[str, Any]) -> None:
    """Raise MissingClientCapability for what a client did not declare. `need` has the shape of ClientCapabilities."""
    if not offers(have, need):
        raise MissingClientCapability(dict(need))


def offers(have: ClientCapabilities, need: Mapping[str, Any]) -> bool:
    """Whether a client declared what is needed; see `require`."""
    declared = msgspec.to_builtins(have)
    elicitation = declared.get("elicitation")
    if elicitation is not None and "url" not in elicitation:
        elicitation.setdefault("form", {})  # an empty object means form mode (client/elicitation, "Capabilities")
    return _covers(declared, need)


def _covers(have: Mapping[str, Any], need: Mapping[str, Any]) -> bool:
    return all(key in have and _covers(have[key], value) for key, value in need.items())


def check_content(content: Mapping[str, Any] | None, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Check the answer to a form that was given as a JSON Schema. Raises ValueError with the first problem."""
    answer = dict(content or {})
    problem = first_problem(compile_schema(dict(schema)), answer)
    if problem is not None:
        raise ValueError(problem)
    return answer


def offers_context(client: ClientCapabilities, revision: str) -> bool:
    """Whether `includeContext` may be sent: where the revision has a capability for it, the client must declare that."""
    declared = client.sampling is not None and client.sampling.context is not None
    return declared or not known_in(Sampling, "context", revision)


def check_tool_results(messages: Sequence[SamplingMessage]) -> None:
    """Raise GemelError unless tool results stand alone and answer all tool uses of the message before them.

    Specification: client/sampling, "Tool Result Messages" and "Tool Use and Result Balance".
    """
    open_uses: set[str] = set()
    for message in messages:
        blocks = message.content if isinstance(message.content, list) else [message.content]
        results = {block.tool_use_id for block in blocks if isinstance(block, ToolResultContent)}
        if results and any(not isinstance(block, ToolResultContent) for block in blocks):
            raise GemelError("A message with tool results must hold nothing else")
        if results != open_uses:
            raise GemelError(
                f"Tool uses without a result right after them, or results without a use: {results ^ open_uses}"
            )
        open_uses = {block.id for block in blocks if isinstance(block, ToolUseContent)}
    if open_uses:
        raise GemelError(f"Tool uses without a result: {open_uses}")
