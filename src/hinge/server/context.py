"""What a handler knows and may do: one class for requests and notifications, era-free.

The questions that the eras answer differently (who is the peer, may I log) are asked of the era files here, once.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
import functools
import logging
import queue
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextvars import ContextVar
from math import isfinite
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

import msgspec
from msgspec import UNSET, Raw

from hinge.errors import ChannelClosed, ConnectionLost, HingeError, InvalidParams, ResourceNotFound, ToolError, shorten
from hinge.jsonrpc import ABSENT, RequestId
from hinge.protocol.calls import Call, Record
from hinge.protocol.eras.stateless import STATELESS
from hinge.protocol.revisions.adapt import shape
from hinge.protocol.states import CallState
from hinge.schema.base import Implementation, Result
from hinge.schema.content import TextContent
from hinge.schema.elicitation import ElicitFormParams, ElicitResult, ElicitUrlParams
from hinge.schema.input_required import InputRequiredResult
from hinge.schema.lifecycle import ClientCapabilities
from hinge.schema.notifications import SEVERITY, LoggingLevel, LogParams, ProgressParams
from hinge.schema.prompts import GetPromptResult
from hinge.schema.resources import ReadResourceResult
from hinge.schema.roots import ListRootsResult, Root
from hinge.schema.sampling import CreateMessageParams, CreateMessageResult, SamplingMessage
from hinge.schema.tools import CallToolResult
from hinge.server.composition.namespace import Layer
from hinge.server.elicitation.elicit import (
    Declined,
    InputRequired,
    Questions,
    ask,
    check_askable,
    check_balance,
    check_content,
    sees_contexts,
    step,
)
from hinge.server.elicitation.forms import form_of
from hinge.server.elicitation.request_state import Seal
from hinge.server.threads import Threads
from hinge.session import Session
from hinge.timeouts import PausableTimeout

logger = logging.getLogger("hinge")
if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultTypeVar

    StateT = DefaultTypeVar("StateT", default=Any)
else:
    StateT = TypeVar("StateT")
ResultT = TypeVar("ResultT", bound=Result)
ValueT = TypeVar("ValueT")
#: Calls within calls, at most: deeper ones are taken for a function that calls itself.
_NESTING_LIMIT = 16
FormT = TypeVar("FormT")
StepT = TypeVar("StepT")
StepP = ParamSpec("StepP")

_no_headers: Mapping[str, str] = {}


#: No more log messages of `LogToClient` than this wait to be sent, per call.
_LOG_QUEUE_LIMIT = 1000

#: The call that is being served here: inherited by the tasks and threads of a handler.
current: ContextVar[Context[Any]] = ContextVar("hinge_current_context")


def current_context() -> Context[Any]:
    """The Context of the call that is being served here: in a handler, in what it calls, in its tasks and threads.

    Raises HingeError elsewhere.
    """
    ctx = current.get(None)
    if ctx is None:
        raise HingeError("No call is being served here: current_context() works in handlers and in what they call")
    return ctx


class Context(Record, Generic[StateT]):
    """What a handler knows and may do. Ask for it by annotating a parameter with `Context`.

    `method` and `params` are what arrived (`params` as JSON text); a middleware hands on changed ones with
    `call_next(ctx.replace(method=…, params=…))`. The type parameter is the type of the server's lifespan state.
    """

    session: Session
    call: Call
    #: What the server's lifespan yielded; None without one.
    state: StateT
    seal: Seal
    method: str
    params: Raw
    #: Serves what a handler asks of its own server.
    own: Callable[[Context[Any]], Awaitable[Any]]
    #: The typed params, once they are read.
    read: Any = None
    #: The time limit of the call, if it has one.
    timeout: PausableTimeout | None = None
    #: See `connection_state`.
    conversation_state: Any = None
    #: How many handlers of this server have asked for it, one through the other; 0 for what the client asked.
    depth: int = 0
    #: What stands between the caller and this server: see `outer_names`.
    layers: tuple[Layer, ...] = ()
    #: Log records of `LogToClient` that wait to be sent.
    log_queue: LogQueue | None = None
    _progress: float | None = None
    _questions: Questions | None = None
    _sync: SyncContext | None = None

    def replace(self, *, method: str | None = None, params: Any = UNSET) -> Context[StateT]:
        """This context with another method or other params (JSON text, or any value to be encoded) (A-028)."""
        changed = copy.copy(self)
        if method is not None:
            changed.method = method
        if params is not UNSET:
            changed.params = params if isinstance(params, Raw) else Raw(msgspec.json.encode(params))
        return changed

    # ---------------------------------------------------------------- who and what

    @property
    def request_id(self) -> RequestId | None:
        """The request's id as the client sent it; None for a notification (A-029)."""
        return self.call.id

    @property
    def protocol_version(self) -> str:
        """The revision that governs this call."""
        return self.call.revision

    @property
    def client_info(self) -> Implementation | None:
        """Who the client says it is: display data, never a ground for decisions (REQM-08)."""
        return self.call.era.client_info(self.call.meta, self.session.connection.handshake)

    @property
    def client_capabilities(self) -> ClientCapabilities:
        """What the client declared: on this request, or in its handshake."""
        return self.call.era.client_capabilities(self.call.meta, self.session.connection.handshake)

    def client_extension(self, extension_id: str) -> dict[str, Any] | None:
        """The client's settings of an extension of the protocol: what it declared on this request, or in its handshake.

        None when it didn't declare it; `{}` means that it has no settings (EXT-01, EXT-03).
        """
        declared = self.client_capabilities.extensions
        return declared.get(extension_id) if declared is not None else None

    @property
    def connection_state(self) -> Any:
        """What the server's `connection_lifespan` yielded; None without one, and in methods of the protocol itself."""
        return self.conversation_state

    @property
    def headers(self) -> Mapping[str, str]:
        """The HTTP headers of the request by lower-case name; empty on other transports."""
        return self.call.origin.headers if self.call.origin.headers is not None else _no_headers

    @property
    def principal(self) -> str | None:
        """Who was authenticated for this request, or None."""
        return self.call.origin.principal

    @property
    def scopes(self) -> frozenset[str]:
        """What this request was authorized for; empty without authorization."""
        return self.call.origin.scopes

    @property
    def meta(self) -> dict[str, Any]:
        """The request's whole `_meta`, decoded when asked for."""
        if self.call.params is ABSENT:
            return {}
        found = msgspec.json.decode(self.call.params).get("_meta")
        return found if isinstance(found, dict) else {}

    @property
    def cancelled(self) -> bool:
        """Whether the client no longer wants the answer; for sync functions, which can't be interrupted."""
        return self.call.state is not CallState.RUNNING

    # ---------------------------------------------------------------- functions without async

    @property
    def sync(self) -> SyncContext:
        """This context for functions without async: `ctx.sync.report_progress(1, 3)` waits until it is sent.

        For worker threads, where sync functions run; not for the event loop.
        """
        if self._sync is None:
            self._sync = SyncContext(self, self.session.loop)
        return self._sync

    async def in_thread(self, threads: Threads, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Call a sync function in a worker thread; once nobody waits for it, it can't ask or tell anything more."""
        try:
            return await threads.run(function, arguments)
        except BaseException:
            if self._sync is not None:
                self._sync.end()
            raise

    # ---------------------------------------------------------------- asking the client

    @property
    def questions(self) -> Questions:
        """What this stateless call asks and remembers; made when first needed."""
        if self._questions is None:
            self._questions = Questions(self, self.seal, self.read)
        return self._questions

    @property
    def asked(self) -> Questions | None:
        """The questions of this call, if it has any."""
        return self._questions

    @overload
    async def elicit(self, message: str, form: type[FormT], *, key: str | None = None) -> FormT: ...

    @overload
    async def elicit(self, message: str, form: Mapping[str, Any], *, key: str | None = None) -> dict[str, Any]: ...

    async def elicit(self, message: str, form: Any = str, *, key: str | None = None) -> Any:
        """Ask the user to fill in a form, and wait.

        `form` is a type with plain fields (a dataclass, TypedDict, Struct, model), one plain type, or a JSON Schema, which
        gives a dict. `key` names the question, where its text alone doesn't. Raises Declined when the user doesn't
        answer, MissingClientCapability when the client has no forms. Never ask for secrets in a form (ELIC-18).
        """
        check_askable(self, {"elicitation": {"form": {}}})
        made = None if isinstance(form, Mapping) else form_of(form)
        schema = dict(form) if made is None else made.schema
        params = ElicitFormParams(message=message, requested_schema=schema)
        answer = await ask(self, "elicitation/create", params, ElicitResult, key)
        if answer.action != "accept":
            raise Declined(answer.action, message)
        if made is None:
            return check_content(answer.content, schema)
        try:
            return made.read(answer.content)
        except ValueError as exc:
            raise InvalidParams(f"The answer to {shorten(message)!r} doesn't fit the form: {exc}") from exc

    async def elicit_url(self, message: str, url: str, *, key: str | None = None) -> None:
        """Ask the user to open a page, and wait for consent, which is not completion (ELIC-12). Raises Declined."""
        check_askable(self, {"elicitation": {"url": {}}})
        params = ElicitUrlParams(message=message, url=url, mode="url", elicitation_id=self.call.era.elicitation_id())
        answer = await ask(self, "elicitation/create", params, ElicitResult, key)
        if answer.action != "accept":
            raise Declined(answer.action, message)

    async def sample(
        self,
        messages: str | Sequence[SamplingMessage],
        *,
        max_tokens: int = 1000,
        key: str | None = None,
        **options: Any,
    ) -> CreateMessageResult:
        """Ask the client's model. `options` are the fields of `CreateMessageParams` (`system_prompt`, `tools`, …).

        `include_context` is left out for clients that don't offer it: it is a wish, and the answer comes all the same.
        Raises MissingClientCapability, and PeerError when the user of a handshake client refuses.
        """
        if isinstance(messages, str):
            messages = [SamplingMessage(role="user", content=TextContent(text=messages))]
        check_balance(messages)
        params = CreateMessageParams(messages=list(messages), max_tokens=max_tokens, **options)
        check_askable(self, {"sampling": {"tools": {}} if params.tools or params.tool_choice else {}})
        if params.include_context is not None and not sees_contexts(self.client_capabilities, self.protocol_version):
            params.include_context = None
        return await ask(self, "sampling/createMessage", params, CreateMessageResult, key)

    async def list_roots(self, *, key: str | None = None) -> list[Root]:
        """The folders that the client lets us know. Guidance, not enforcement (ROOT-07). Raises MissingClientCapability."""
        check_askable(self, {"roots": {}})
        return (await ask(self, "roots/list", UNSET, ListRootsResult, key)).roots

    @overload
    async def step(
        self, function: Callable[StepP, Awaitable[StepT]], /, *arguments: StepP.args, **named: StepP.kwargs
    ) -> StepT: ...

    @overload
    async def step(
        self, function: Callable[StepP, StepT], /, *arguments: StepP.args, **named: StepP.kwargs
    ) -> StepT: ...

    async def step(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        """Call a function once over all rounds of this call; its result (any JSON value) is remembered with the questions.

        Put there what must not be done twice, or what varies: charging a card, reading a clock. In the handshake era,
        where a handler runs once, this is a plain call.
        """
        return await step(self, function, *arguments, **named)

    # ---------------------------------------------------------------- its own server

    async def read_resource(self, uri: str) -> ReadResourceResult:
        """Read a resource of this server, as the caller would see it. Raises ResourceNotFound."""
        return await _nested(self, "resources/read", {"uri": uri}, ReadResourceResult)

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> CallToolResult:
        """Call a tool of this server for the same caller; `result.data` is what it returned.

        It may ask the user, too; its progress is left out. Raises ToolError, with its words, when it fails.
        """
        return await _nested_tool(self, name, dict(arguments or {}))

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> GetPromptResult:
        """A prompt of this server, with its arguments. Raises ToolError for one that isn't there or doesn't fit."""
        return await _nested(self, "prompts/get", {"name": name, "arguments": dict(arguments or {})}, GetPromptResult)

    # ---------------------------------------------------------------- telling the client

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the client how far this request got; nothing happens when it didn't ask (PROG-01…PROG-06).

        `progress` must grow from call to call: a value that doesn't is left out, with a debug line in the log. Raises
        HingeError for what is no number that JSON can say.
        """
        given: Any
        for given in (progress, 0 if total is None else total):
            if not isinstance(given, int | float) or not isfinite(given):
                raise HingeError(f"Progress can't be {given!r}: give a number, neither NaN nor infinite")
        meta = self.call.meta
        if meta is None or meta.progress_token is None or self.depth or self.call.state is not CallState.RUNNING:
            return
        if self._progress is not None and progress <= self._progress:
            logger.debug("%s: progress %r is not above %r and is left out", self.method, progress, self._progress)
            return
        self._progress = progress
        params = ProgressParams(progress_token=meta.progress_token, progress=progress, total=total, message=message)
        await self.notify("notifications/progress", params)

    async def log(self, level: LoggingLevel, data: Any, *, logger: str | None = None) -> None:
        """Send a log message, if the client wants that level: per session in the handshake era, per request after it.

        `data` is any JSON value. Never put secrets there (LOG-08).
        """
        if not self.logs(level) or self.call.state is not CallState.RUNNING:
            return
        await self.notify("notifications/message", LogParams(level=level, data=data, logger=logger))

    def logs(self, level: LoggingLevel) -> bool:
        """Whether a message of this level would be sent now (LOG-03, LOG-05). Raises HingeError for no level."""
        if level not in SEVERITY:
            raise HingeError(f"{level!r} is no level of a log message: use one of {', '.join(SEVERITY)}")
        connection = self.session.connection
        default = connection.description.log_level if connection.description is not None else None
        wanted = self.call.era.log_level(self.call.meta, connection.handshake, default)
        return wanted is not None and SEVERITY[level] >= SEVERITY[wanted]

    async def debug(self, data: Any) -> None:
        """`log("debug", …)`."""
        await self.log("debug", data)

    async def info(self, data: Any) -> None:
        """`log("info", …)`."""
        await self.log("info", data)

    async def warning(self, data: Any) -> None:
        """`log("warning", …)`."""
        await self.log("warning", data)

    async def error(self, data: Any) -> None:
        """`log("error", …)`."""
        await self.log("error", data)

    async def close_stream(self, retry: int = 1000) -> bool:
        """Close this request's response stream without ending the request, so that the client polls for the rest.

        It comes back after `retry` milliseconds and finds what was sent meanwhile. False where there is no such stream:
        only handshake sessions over HTTP have one that can be resumed (LHTTP-09).
        """
        close = getattr(self.session.channel, "close_stream", None)
        return bool(close is not None and close(self.call, retry))

    async def notify(self, method: str, params: Any = UNSET) -> None:
        """Send a notification that belongs to this request, on its own stream.

        A client that is gone is no error of the handler: the message is left out, with a debug line (B-016).
        """
        if self.call.id is not None and self.call.state is not CallState.RUNNING:
            return
        shaped = params if params is UNSET else shape(params, self.call.revision)
        try:
            await self.session.notify(method, shaped, about=self.call)
        except (ChannelClosed, ConnectionLost) as exc:
            logger.debug("%s: %s could not be sent: %s", self.method, method, exc)


def is_context(annotation: Any) -> bool:
    """Whether a parameter with this annotation gets the context of the call."""
    return annotation is Context or getattr(annotation, "__origin__", None) is Context


async def _nested(ctx: Context[Any], method: str, params: dict[str, Any], kind: type[ResultT]) -> ResultT:
    """Serve a request of a handler's own, as a part of its call.

    Raises ToolError for what isn't there or doesn't fit, ResourceNotFound, and what the other handler raises.
    """
    if ctx.depth >= _NESTING_LIMIT:
        raise HingeError(f"{method}: {_NESTING_LIMIT} calls within calls are the limit: does it call itself?")
    if ctx.call.era is STATELESS and ctx.call.id is not None:
        ctx.questions  # noqa: B018 - made now, so that both ask and remember in one place
    inner = ctx.replace(method=method, params=params)
    inner.depth = ctx.depth + 1
    inner.layers = ()
    try:
        result = await ctx.own(inner)
    except ResourceNotFound:
        raise
    except InvalidParams as exc:  # the caller asked for something else, and has made no mistake
        raise ToolError(str(exc)) from exc
    if isinstance(result, InputRequiredResult):
        raise InputRequired
    return _as_result(result, method, kind)


def _as_result(result: Any, method: str, kind: type[ResultT]) -> ResultT:
    if isinstance(result, kind):
        return result
    if isinstance(result, Result):
        raise HingeError(f"{method} gave a {type(result).__name__}, which only a client can go on with")
    try:
        return msgspec.json.decode(msgspec.json.encode(result), type=kind)
    except msgspec.ValidationError as exc:
        raise HingeError(f"{method}: its result doesn't fit the protocol: {shorten(str(exc))}") from None


async def _nested_tool(ctx: Context[Any], name: str, arguments: dict[str, Any]) -> CallToolResult:
    """The result as a client reads it. Raises ToolError, with the tool's words, when it failed."""
    result = await _nested(ctx, "tools/call", {"name": name, "arguments": arguments}, CallToolResult)
    if isinstance(result.structured_content, Raw):
        read = msgspec.json.decode(result.structured_content)
        result = msgspec.structs.replace(result, structured_content=read)
    if result.is_error:
        raise ToolError(result.text or f"Tool {name!r} failed")
    return result


class LogQueue:
    """Log messages of one call that wait to be sent before its answer."""

    def __init__(self, ctx: Context[Any]) -> None:
        self._ctx = ctx
        self._waiting: deque[tuple[LoggingLevel, Any, str]] = deque()
        self._dropped = 0
        self._sender: asyncio.Task[None] | None = None
        self._closed = False

    def put(self, level: LoggingLevel, data: Any, name: str) -> None:
        """Send a message soon, from any thread; never waits."""
        if self._closed:
            return
        if len(self._waiting) >= _LOG_QUEUE_LIMIT:
            self._dropped += 1
            return
        self._waiting.append((level, data, name))
        if len(self._waiting) == 1:
            self._ctx.session.loop.call_soon_threadsafe(self._start)

    def _start(self) -> None:
        if self._waiting and not self._closed and (self._sender is None or self._sender.done()):
            # In a context of its own: records made while sending belong to no call, so they can't be queued again.
            self._sender = self._ctx.session.loop.create_task(self._send(), context=contextvars.Context())

    async def _send(self) -> None:
        while self._waiting or self._dropped:
            if self._waiting:
                level, data, name = self._waiting[0]
                await self._ctx.log(level, data, logger=name)
                self._waiting.popleft()
            else:
                dropped, self._dropped = self._dropped, 0
                await self._ctx.log("warning", f"{dropped} log messages were left out", logger="hinge")

    async def close(self) -> None:
        """Send what waits, for a limited time; then nothing more."""
        self._start()
        sender, limit = self._sender, self._ctx.session.connection.limits.teardown
        if sender is not None and not sender.done():
            _, late = await asyncio.wait([sender], timeout=limit)
            for one in late:
                one.cancel()
        self._closed = True
        self._waiting.clear()


class SyncContext:
    """`ctx.sync`: what a sync function says and asks, as plain calls: `ctx.sync.report_progress(1, 3)`, `ctx.sync.elicit(…)`.

    Works in the worker thread that runs the function and in any other thread, not on the event loop: there each method
    raises HingeError. When the call is over (cancelled, out of time, answered), each raises
    concurrent.futures.CancelledError, so that a function that nobody waits for any more comes to its end.
    """

    def __init__(self, ctx: Context[Any], loop: asyncio.AbstractEventLoop) -> None:
        self._ctx = ctx
        self._loop = loop
        self._waiting: set[Future[Any]] = set()
        self._over = False

    def end(self) -> None:
        """The call is over: nobody waits any more."""
        self._over = True
        for future in list(self._waiting):
            future.cancel()

    def _do(self, made: Coroutine[Any, Any, ValueT]) -> ValueT:
        """Let the loop run it, and wait here."""
        return self._begin(made).result()

    def _begin(self, made: Coroutine[Any, Any, ValueT]) -> Future[ValueT]:
        if _on_a_loop():
            made.close()
            raise HingeError("ctx.sync waits, which would hold up the event loop here: await the method of ctx itself")
        if self._over or self._ctx.cancelled:
            made.close()
            raise CancelledError
        future = asyncio.run_coroutine_threadsafe(made, self._loop)
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        self._end_if_over(future)
        return future

    def _end_if_over(self, future: Future[Any]) -> None:
        """The call may have ended while the loop was being asked."""
        if self._over:
            future.cancel()

    # ---------------------------------------------------------------- telling the client

    def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """`Context.report_progress`."""
        self._do(self._ctx.report_progress(progress, total, message))

    def log(self, level: LoggingLevel, data: Any, *, logger: str | None = None) -> None:
        """`Context.log`."""
        self._do(self._ctx.log(level, data, logger=logger))

    def debug(self, data: Any) -> None:
        """`log("debug", …)`."""
        self.log("debug", data)

    def info(self, data: Any) -> None:
        """`log("info", …)`."""
        self.log("info", data)

    def warning(self, data: Any) -> None:
        """`log("warning", …)`."""
        self.log("warning", data)

    def error(self, data: Any) -> None:
        """`log("error", …)`."""
        self.log("error", data)

    def notify(self, method: str, params: Any = UNSET) -> None:
        """`Context.notify`."""
        self._do(self._ctx.notify(method, params))

    # ---------------------------------------------------------------- its own server

    def read_resource(self, uri: str) -> ReadResourceResult:
        """`Context.read_resource`."""
        found: ReadResourceResult = self._do(self._ctx.read_resource(uri))
        return found

    def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> CallToolResult:
        """`Context.call_tool`."""
        result: CallToolResult = self._do(self._ctx.call_tool(name, arguments))
        return result

    def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> GetPromptResult:
        """`Context.get_prompt`."""
        prompt: GetPromptResult = self._do(self._ctx.get_prompt(name, arguments))
        return prompt

    # ---------------------------------------------------------------- asking the client

    @overload
    def elicit(self, message: str, form: type[FormT], *, key: str | None = None) -> FormT: ...

    @overload
    def elicit(self, message: str, form: Mapping[str, Any], *, key: str | None = None) -> dict[str, Any]: ...

    def elicit(self, message: str, form: Any = str, *, key: str | None = None) -> Any:
        """`Context.elicit`."""
        return self._do(self._ctx.elicit(message, form, key=key))

    def elicit_url(self, message: str, url: str, *, key: str | None = None) -> None:
        """`Context.elicit_url`."""
        self._do(self._ctx.elicit_url(message, url, key=key))

    def sample(
        self,
        messages: str | Sequence[SamplingMessage],
        *,
        max_tokens: int = 1000,
        key: str | None = None,
        **options: Any,
    ) -> CreateMessageResult:
        """`Context.sample`."""
        answer: CreateMessageResult = self._do(self._ctx.sample(messages, max_tokens=max_tokens, key=key, **options))
        return answer

    def list_roots(self, *, key: str | None = None) -> list[Root]:
        """`Context.list_roots`."""
        roots: list[Root] = self._do(self._ctx.list_roots(key=key))
        return roots

    def step(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        """`Context.step`; the function runs in this thread."""
        jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

        @functools.wraps(function)
        async def here(*arguments: Any, **named: Any) -> Any:
            done: asyncio.Future[Any] = self._loop.create_future()
            jobs.put(functools.partial(_hand_over, functools.partial(function, *arguments, **named), done))
            return await done

        future = self._begin(self._ctx.step(here, *arguments, **named))
        future.add_done_callback(lambda _: jobs.put(None))
        while (job := jobs.get()) is not None:
            job()
        return future.result()


def _on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _hand_over(job: Callable[[], Any], done: asyncio.Future[Any]) -> None:
    """Run it here, give the result to the loop."""
    try:
        value, error = job(), None
    except Exception as exc:
        value, error = None, exc
    done.get_loop().call_soon_threadsafe(_settle, done, value, error)


def _settle(done: asyncio.Future[Any], value: Any, error: Exception | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(value)
    else:
        done.set_exception(error)
