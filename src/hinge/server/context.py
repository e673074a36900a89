"""What a handler knows and may do: one class for requests and notifications, era-free.

The questions that the eras answer differently (who is the peer, may I log) are asked of the era files here, once.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

import msgspec
from msgspec import UNSET, Raw

from hinge.errors import ChannelClosed, ConnectionLost, HingeError, InvalidParams, shorten
from hinge.jsonrpc import ABSENT, RequestId
from hinge.protocol.calls import Call, Record
from hinge.protocol.eras import stateless as era_2026
from hinge.protocol.revisions.adapt import shape
from hinge.protocol.states import CallState
from hinge.schema.base import Implementation
from hinge.schema.content import TextContent
from hinge.schema.elicitation import ElicitFormParams, ElicitResult, ElicitUrlParams
from hinge.schema.lifecycle import ClientCapabilities
from hinge.schema.notifications import SEVERITY, LoggingLevel, LogParams, ProgressParams
from hinge.schema.prompts import GetPromptResult
from hinge.schema.resources import ReadResourceResult
from hinge.schema.roots import ListRootsResult, Root
from hinge.schema.sampling import CreateMessageParams, CreateMessageResult, SamplingMessage
from hinge.schema.tools import CallToolResult
from hinge.server.clock import Clock
from hinge.server.composition.namespace import Layer
from hinge.server.elicitation.elicit import (
    Declined,
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
from hinge.server.nested import call_tool, use
from hinge.server.sync_context import SyncContext
from hinge.server.threads import Threads

if TYPE_CHECKING:
    from hinge.session import Session

logger = logging.getLogger("hinge")
if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultTypeVar

    StateT = DefaultTypeVar("StateT", default=Any)
else:
    StateT = TypeVar("StateT")
FormT = TypeVar("FormT")
StepT = TypeVar("StepT")
StepP = ParamSpec("StepP")

_no_headers: Mapping[str, str] = {}


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
    clock: Clock | None = None
    #: See `connection_state`.
    conversation_state: Any = None
    #: How many handlers of this server have asked for it, one through the other; 0 for what the client asked.
    depth: int = 0
    #: What stands between the caller and this server: see `outer_names`.
    layers: tuple[Layer, ...] = ()
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
        if self.call.era == "2026":
            return era_2026.client_info(self.call.meta)
        return self.session.connection.handshake.client_info

    @property
    def client_capabilities(self) -> ClientCapabilities:
        """What the client declared: on this request, or in its handshake."""
        if self.call.era == "2026":
            return era_2026.client_capabilities(self.call.meta)
        return self.session.connection.handshake.capabilities

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
        """The same for functions without async: `ctx.sync.progress(1, 3)` waits where `await ctx.progress(1, 3)` would.

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
        from secrets import token_urlsafe

        identity = token_urlsafe(16) if self.call.era == "2025" else None
        params = ElicitUrlParams(message=message, url=url, mode="url", elicitation_id=identity)
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
        return await use(self, "resources/read", {"uri": uri}, ReadResourceResult)

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> CallToolResult:
        """Call a tool of this server for the same caller; `result.data` is what it returned.

        It may ask the user, too; its progress is left out. Raises ToolError, with its words, when it fails.
        """
        return await call_tool(self, name, dict(arguments or {}))

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> GetPromptResult:
        """A prompt of this server, with its arguments. Raises ToolError for one that isn't there or doesn't fit."""
        return await use(self, "prompts/get", {"name": name, "arguments": dict(arguments or {})}, GetPromptResult)

    # ---------------------------------------------------------------- telling the client

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
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
        if self.call.era == "2026":
            wanted = era_2026.log_level(self.call.meta)
            return wanted is not None and SEVERITY[level] >= SEVERITY[wanted]
        connection = self.session.connection
        wanted = connection.handshake.log_level
        if wanted is None and connection.description is not None:
            wanted = connection.description.log_level
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
        return bool(close is not None and self.call.era == "2025" and close(self.call, retry))

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
