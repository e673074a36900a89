"""What a handler knows and may do: one class for requests and notifications in both eras, and its form for sync functions."""

from __future__ import annotations

import copy
import functools
import logging
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from contextvars import ContextVar
from decimal import Decimal
from math import isfinite
from numbers import Real
from operator import attrgetter
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    SupportsFloat,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)
from weakref import ref

import msgspec
from msgspec import UNSET, Raw

from gemel.errors import (
    ChannelClosed,
    ConnectionLost,
    DefinitionError,
    GemelError,
    InvalidParams,
    ResourceNotFound,
    ToolError,
    shorten,
)
from gemel.jsonrpc import ABSENT, RequestId
from gemel.protocol.http.request import Principal
from gemel.protocol.records import Call, Record
from gemel.protocol.revisions.adapt import shape
from gemel.protocol.states import CallState
from gemel.schema.base import Implementation, Page, Result
from gemel.schema.content import TextContent
from gemel.schema.elicitation import ElicitationCompleteParams, ElicitFormParams, ElicitResult, ElicitUrlParams
from gemel.schema.input_required import InputRequiredResult
from gemel.schema.lifecycle import ClientCapabilities
from gemel.schema.methods import METHODS, method_in
from gemel.schema.notifications import SEVERITY, LoggingLevel, LogParams, ProgressParams
from gemel.schema.prompts import GetPromptResult, ListPromptsResult, Prompt
from gemel.schema.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
)
from gemel.schema.roots import ListRootsResult, Root
from gemel.schema.sampling import (
    CreateMessageParams,
    CreateMessageResult,
    ModelPreferences,
    SamplingMessage,
    ToolChoice,
)
from gemel.schema.tools import CallToolResult, ListToolsResult, Tool
from gemel.server.elicitation.elicit import (
    ClientInput,
    Declined,
    Unanswered,
    UrlElicitation,
    check_content,
    check_tool_results,
    offers_context,
)
from gemel.server.elicitation.forms import form_of
from gemel.server.elicitation.handshake import request_client
from gemel.server.elicitation.steps import Steps, SyncSteps
from gemel.server.served_call import ServedCall
from gemel.server.threads import LoopCalls
from gemel.values.encoding import encode_value, plain_value

logger = logging.getLogger("gemel")

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultTypeVar

    from gemel.server.session_state import SessionState, SyncSessionState

    StateT = DefaultTypeVar("StateT", default=Any)
else:
    StateT = TypeVar("StateT")
FormT = TypeVar("FormT")
ResultT = TypeVar("ResultT", bound=Result)
PageT = TypeVar("PageT", bound=Page)
P = ParamSpec("P")
ValueT = TypeVar("ValueT")

#: Calls within calls, at most: deeper ones are taken for a function that calls itself.
_NESTING_LIMIT = 16

_no_headers: Mapping[str, str] = {}

#: The call that is being served here: inherited by the tasks and threads of a handler.
current: ContextVar[Context[Any] | ContextOfLarge] = ContextVar("gemel_current_context")
#: Its methods, for the path of every call: CPython 3.11 looks up the method of something imported each time.
set_current, reset_current = current.set, current.reset


def current_context() -> Context[Any]:
    """Return the Context of the call that is being served: in a handler, in what it calls, in its tasks and threads.

    Returns:
        The context that the server made for the call. In what runs on after the call it has no params if these are large, more
        than 4 KiB: pass on what is needed of them.

    Raises:
        GemelError: No call is being served here.
    """
    ctx = find_context()
    if ctx is None:
        raise GemelError("No call is being served here: current_context() works in handlers and in what they call")
    return ctx


def find_context() -> Context[Any] | None:
    """The same, or None where no call is being served."""
    found = current.get(None)
    return found.context if isinstance(found, ContextOfLarge) else found


class ContextOfLarge:
    """The context of a call with large params, for what is inherited: only until nothing else keeps the params.

    A timer that was cancelled stays with the event loop, and a task of a handler runs on; both have inherited this.
    """

    __slots__ = ("context",)

    def __init__(self, context: Context[Any]) -> None:
        self.context = context

    def drop_params(self) -> None:
        """Go on with a copy of the context, of a call that is over and has no params."""
        self.context = ctx = copy.copy(self.context)
        ctx.params = ABSENT
        ctx._served = ctx._served.without_params()


class SampleOptions(TypedDict, total=False):
    """Further fields of a sampling request (client/sampling of the specification)."""

    #: Which kind of model to use.
    model_preferences: ModelPreferences
    system_prompt: str
    #: Left out for clients that don't offer it: the answer comes all the same.
    include_context: str
    temperature: float
    stop_sequences: list[str]
    metadata: dict[str, Any]
    #: Tools that the model may use; the handler runs them.
    tools: list[Tool]
    tool_choice: ToolChoice


class Context(Record, Generic[StateT]):
    """What a handler knows and may do: annotate a parameter with `Context` to get it.

    The type parameter is the type of the server's lifespan state. A middleware passes changed requests on with
    `call_next(ctx.replace(method=…, params=…))`.

    Attributes:
        method: The method of the request or notification.
        params: Its params, as JSON text.
        state: What the server's lifespan yielded; None without one.
        depth: How many handlers of this server called each other to get here; 0 for what the client requested.
    """

    #: What the server needs of the call; see `served_call`.
    _served: ServedCall[Context[Any]]
    method: str
    params: Raw
    state: StateT
    depth: int = 0

    def replace(self, *, method: str | None = None, params: Any = UNSET) -> Context[StateT]:
        """Return this context with another method or other params, for `call_next` in a middleware.

        Args:
            method: The new method; the same by default.
            params: The new params, as JSON text (`msgspec.Raw`) or any value that can be encoded; the same by default.

        Returns:
            A new context of the same call.
        """
        changed = copy.copy(self)
        changed._served = self._served.derive()
        if method is not None:
            changed.method = method
        if params is not UNSET:
            changed.params = params if isinstance(params, Raw) else Raw(encode_value(params))
        return changed

    # ---------------------------------------------------------------- the request and its client

    @property
    def request_id(self) -> RequestId | None:
        """The request's id as the client sent it; None for a notification."""
        return self._served.call.id

    @property
    def protocol_version(self) -> str:
        """The protocol revision that governs this call."""
        return self._served.call.revision

    @property
    def client_info(self) -> Implementation | None:
        """Name and version of the client, as it says; for display, never for decisions."""
        served = self._served
        return served.call.era.client_info(served.call.meta, served.session.connection.handshake)

    @property
    def client_capabilities(self) -> ClientCapabilities:
        """What the client declared: on this request, or in its handshake."""
        served = self._served
        return served.call.era.client_capabilities(served.call.meta, served.session.connection.handshake)

    def client_extension(self, extension_id: str) -> dict[str, Any] | None:
        """Return the client's settings of an extension of the protocol.

        Args:
            extension_id: The id of the extension, such as "com.example/search".

        Returns:
            What the client declared, on this request or in its handshake: `{}` for an extension without settings, None
            if it did not declare the extension.
        """
        declared = self.client_capabilities.extensions
        return declared.get(extension_id) if declared is not None else None

    @property
    def headers(self) -> Mapping[str, str]:
        """The HTTP headers of the request by lower-case name; empty on other transports."""
        headers = self._served.call.origin.headers
        return headers if headers is not None else _no_headers

    @property
    def http_scope(self) -> Mapping[str, Any] | None:
        """The ASGI scope of the HTTP request, read-only: path, query, what middleware of ASGI added. None on other transports.

        Its headers are at `headers`. https://asgi.readthedocs.io/en/latest/specs/www.html
        """
        return self._served.call.origin.http_scope

    @property
    def client_address(self) -> tuple[str, int] | None:
        """Host and port that the request came from; None where there are none, as on stdio, in memory and on Unix sockets.

        Behind a proxy that is one of `trusted_proxies`, the client's own. Names and addresses can be shared: use `principal` to
        tell callers apart.
        """
        return self._served.call.origin.client_address

    @property
    def principal(self) -> str | None:
        """Who was authenticated for this request; None for nobody."""
        return self._served.call.origin.principal

    @property
    def caller(self) -> Principal | None:
        """Who was authenticated for this request, with scopes, claims and client as the token says them; None for nobody."""
        return self._served.call.origin.caller

    @property
    def connection_state(self) -> Any:
        """What the server's `connection_lifespan` yielded.

        None without one, and until a function of yours runs: in middleware before `call_next`.
        """
        return self._served.connection_state

    @property
    def session_state(self) -> SessionState:
        """Values that live as long as the session of the client, in all processes: `await ctx.session_state.get("cart")`.

        The session is the HTTP session of a handshake client, or its connection on other transports.

        Raises:
            NoSession: The call belongs to no session: its client is stateless, the server has no HTTP sessions, or it is a task.
        """
        from gemel.server.session_state import session_state

        return session_state(self._served.session, self._served.call)

    @property
    def scopes(self) -> frozenset[str]:
        """The scopes of this request, and the scopes that those include; empty without authorization."""
        description = self._served.session.connection.description
        granted = self._served.call.origin.scopes or frozenset()
        return granted if description is None else description.scope_hierarchy.expand(granted)

    @property
    def claims(self) -> Mapping[str, Any]:
        """The further claims of the caller's token, read-only; empty without authorization."""
        caller = self._served.call.origin.caller
        return MappingProxyType({} if caller is None else caller.claims)

    @property
    def meta(self) -> dict[str, Any]:
        """The request's whole `_meta`, decoded at each use."""
        params = self._served.call.params
        if params is ABSENT:
            return {}
        meta = msgspec.json.decode(params).get("_meta")
        return meta if isinstance(meta, dict) else {}

    @property
    def decoded_params(self) -> dict[str, Any]:
        """The params of the request as a dict, for middleware; decoded at each use, changed with `replace(params=…)`."""
        decoded = {} if self.params is ABSENT else msgspec.json.decode(self.params)
        return decoded if isinstance(decoded, dict) else {}

    @property
    def cancelled(self) -> bool:
        """Whether the client no longer wants the answer; for sync functions, which can't be interrupted."""
        return self._served.call.state is not CallState.RUNNING

    # ---------------------------------------------------------------- functions without async

    @property
    def sync(self) -> SyncContext:
        """The methods of this context as plain calls, for sync functions in worker threads: `ctx.sync.info("…")`."""
        return SyncContext(self, self._served.calls_from_thread())

    # ---------------------------------------------------------------- input from the client

    def _client_input(
        self, method: str, params: Any, kind: type[Any], read: Callable[[Any], ValueT], key: str | None, label: str
    ) -> ClientInput[ValueT]:
        served = self._served
        requests, task, timeout = served.input_requests, served.suspendable_task, served.timeout
        return ClientInput(requests, method, params, kind, read, label=label, key=key, task=task, timeout=timeout)

    def _check_capabilities(self, **need: Any) -> None:
        self._served.input_requests.check_capabilities(self.client_capabilities, need)

    @overload
    def elicit(self, message: str, *, key: str | None = None) -> ClientInput[str]: ...

    @overload
    def elicit(self, message: str, form: type[FormT], *, key: str | None = None) -> ClientInput[FormT]: ...

    @overload
    def elicit(
        self, message: str, form: Mapping[str, Any], *, key: str | None = None
    ) -> ClientInput[dict[str, Any]]: ...

    def elicit(self, message: str, form: Any = str, *, key: str | None = None) -> ClientInput[Any]:
        """Ask the user to fill in a form: `size = await ctx.elicit("Which size?", int)`.

        In the stateless era the handler ends here and runs again from the start when the client has the answer; put what must
        not happen twice into `step`. Several forms that are created before the first `await` go to the user in one round.

        Args:
            message: What the user is asked. Never ask for secrets in a form.
            form: A type with plain fields (dataclass, TypedDict, Struct, model), one plain type, or a JSON Schema, which
                gives a dict; text by default.
            key: A name for this request, where message and form vary between the rounds of a call.

        Returns:
            An awaitable of the answer, as a value of the form's type.

        Raises:
            Declined: The user did not answer.
            MissingClientCapability: The client has no forms.
            InvalidParams: The answer does not fit the form.
            GemelError: Input can't be requested here: while `initialize` is served; in the stateless era from a notification,
                or from a method other than tools/call, prompts/get and resources/read.
            NotSent: A notification is being served, and over HTTP the client has no stream open (GET) on which it could be asked.

        Specification: client/elicitation, "Form Mode Elicitation Requests".
        """
        self._check_capabilities(elicitation={"form": {}})
        made = None if isinstance(form, Mapping) else form_of(form)
        schema = dict(form) if made is None else made.schema
        if schema.get("type") != "object":
            raise DefinitionError(
                'The JSON Schema of a form is that of an object: {"type": "object", "properties": {…}}'
            )

        def read(answer: ElicitResult) -> Any:
            if answer.action != "accept":
                raise Declined(answer.action, message)
            try:
                return check_content(answer.content, schema) if made is None else made.read(answer.content)
            except ValueError as exc:
                raise InvalidParams(f"The answer to {shorten(message)!r} doesn't fit the form: {exc}") from exc

        params = ElicitFormParams(message=message, requested_schema=schema)
        label = f"ctx.elicit({shorten(message, 60)!r})"
        return self._client_input("elicitation/create", params, ElicitResult, read, key, label)

    def elicit_url(self, message: str, url: str, *, key: str | None = None) -> UrlElicitation:
        """Ask the user to open a page: `await ctx.elicit_url("Please sign in", url)`.

        The answer says that the user agreed to open the page, not that they are done there: see `complete_elicitation`.

        Args:
            message: Why the page should be opened.
            url: The address of the page.
            key: As in `elicit`.

        Returns:
            An awaitable that ends when the user has agreed. Its `elicitation_id` is the id of the page.

        Raises:
            Declined: The user did not agree.
            MissingClientCapability: The client does not open pages.
            GemelError: As in `elicit`.

        Specification: client/elicitation, "URL Mode Elicitation Requests".
        """
        self._check_capabilities(elicitation={"url": {}})

        def read(answer: ElicitResult) -> None:
            if answer.action != "accept":
                raise Declined(answer.action, message)

        served = self._served
        identity = served.call.era.elicitation_id()
        params = ElicitUrlParams(message=message, url=url, mode="url", elicitation_id=identity)
        label = f"ctx.elicit_url({shorten(message, 60)!r})"
        requests, task, timeout = served.input_requests, served.suspendable_task, served.timeout
        return UrlElicitation(
            requests, "elicitation/create", params, ElicitResult, read, label=label, key=key, task=task, timeout=timeout
        )

    async def complete_elicitation(self, elicitation_id: str | None) -> None:
        """Tell the client that the user is done with a page; also after the call is over.

        Only clients of revision 2025-11-25 are told: others have no ids of pages.

        Args:
            elicitation_id: The `elicitation_id` of `elicit_url`, or of a page in an error -32042; with None nothing is sent.

        Specification: client/elicitation of 2025-11-25, "Completion Notifications for URL Mode Elicitation".
        """
        call, method = self._served.call, "notifications/elicitation/complete"
        if elicitation_id is None or method_in(method, call.revision) is None:
            return
        about = call if call.state is CallState.RUNNING else None
        await self._send(method, ElicitationCompleteParams(elicitation_id=elicitation_id), about)

    def sample(
        self,
        messages: str | Sequence[SamplingMessage],
        *,
        max_tokens: int = 1000,
        key: str | None = None,
        **options: Unpack[SampleOptions],
    ) -> ClientInput[CreateMessageResult]:
        """Ask the client's model: `(await ctx.sample("Summarize: …")).text`.

        Args:
            messages: A text, or the messages of a conversation.
            max_tokens: The most tokens that the model may generate.
            key: As in `elicit`.
            **options: Further fields of the request; see `SampleOptions`.

        Returns:
            An awaitable of the model's answer.

        Raises:
            MissingClientCapability: The client has no model, or no tools for it.
            PeerError: The user of a handshake client refused.
            GemelError: As in `elicit`; also for tool results that don't belong to the tool uses before them.

        Specification: client/sampling.
        """
        if isinstance(messages, str):
            messages = [SamplingMessage(role="user", content=TextContent(text=messages))]
        check_tool_results(messages)
        given: dict[str, Any] = dict(options)
        params = CreateMessageParams(messages=list(messages), max_tokens=max_tokens, **given)
        self._check_capabilities(sampling={"tools": {}} if params.tools or params.tool_choice else {})
        if params.include_context is not None and not offers_context(self.client_capabilities, self.protocol_version):
            params.include_context = None
        return self._client_input(
            "sampling/createMessage", params, CreateMessageResult, lambda answer: answer, key, "ctx.sample(…)"
        )

    def list_roots(self, *, key: str | None = None) -> ClientInput[list[Root]]:
        """Ask for the folders that the user has opened for this server: `await ctx.list_roots()`.

        Roots are guidance; they do not restrict what the server can read.

        Args:
            key: As in `elicit`.

        Returns:
            An awaitable of the roots.

        Raises:
            MissingClientCapability: The client has no roots.
            GemelError: As in `elicit`.

        Specification: client/roots.
        """
        self._check_capabilities(roots={})
        return self._client_input(
            "roots/list", UNSET, ListRootsResult, lambda answer: answer.roots, key, "ctx.list_roots()"
        )

    @property
    def step(self) -> Steps:
        """Calls a function once over all rounds of this call: `paid = await ctx.step(charge, card)`.

        For what must not happen twice, or what varies: charging a card, reading a clock. The result is remembered with
        the answers of the user; in a task it is stored, so that the task can go on in another process. In the handshake
        era, where a handler runs once, this is a plain call unless it is a task.

        In the function, `ctx.step.key` identifies the step. `ctx.step.options(retry=False)` is for functions that must not
        run again when a process died while they ran.
        """
        return Steps(lambda: self._served.input_requests)

    # ---------------------------------------------------------------- other requests to the client

    async def ping(self, *, total: float | None = None) -> None:
        """Check whether the client still answers; in the handshake era only.

        Args:
            total: As in `request`.

        Raises:
            CallError: The client did not answer, or can't be asked; see `request`.
            GemelError: As in `request`.

        Specification: basic/utilities/ping of 2025-11-25.
        """
        await request_client(self._served.session, self._served.call, "ping", UNSET, total)

    async def request(self, method: str, params: Any = UNSET, *, total: float | None = None) -> dict[str, Any]:
        """Send a request of an extension or of your own to the client, and wait; in the handshake era only.

        While a request is served it goes on its stream. In handlers of notifications, and when the call is over, it needs a
        stream that the client has opened; over HTTP with GET.

        Args:
            method: The method of the request.
            params: Its params, any value that can be encoded as a JSON object; none by default.
            total: Seconds until it fails; `limits.input_wait` by default.

        Returns:
            The result.

        Raises:
            PeerError: The client answered with an error.
            NotSent: The client has no stream open, or is gone.
            CallError: There is no result for another reason, such as a time limit.
            GemelError: The client is stateless, which can't be sent requests; or `initialize` is being served; or the protocol
                has the method: `elicit`, `sample`, `list_roots` and `ping` send those.
        """
        if method in METHODS:
            raise GemelError(
                f"ctx.request() sends methods of extensions and your own, not {method}: use ctx.elicit(), ctx.sample(), "
                "ctx.list_roots() or ctx.ping()"
            )
        raw = await request_client(self._served.session, self._served.call, method, params, total)
        result: dict[str, Any] = msgspec.json.decode(raw)
        return result

    # ---------------------------------------------------------------- its own server

    async def read_resource(self, uri: str) -> ReadResourceResult:
        """Read a resource of this server, as the caller would see it.

        Args:
            uri: The URI of the resource.

        Returns:
            Its contents.

        Raises:
            ResourceNotFound: There is no such resource for this caller.
        """
        return await self._nested("resources/read", {"uri": uri}, ReadResourceResult)

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> CallToolResult:
        """Call a tool of this server for the same caller. It may request input, too; its progress is not sent.

        Args:
            name: The name of the tool.
            arguments: Its arguments; none by default.

        Returns:
            Its result; `result.data` is what the function returned.

        Raises:
            ToolError: The tool failed, or there is none of this name for this caller.
        """
        return await self._nested_tool(name, arguments)

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> GetPromptResult:
        """Get a prompt of this server.

        Args:
            name: The name of the prompt.
            arguments: Its arguments; none by default.

        Returns:
            Its messages.

        Raises:
            ToolError: There is no such prompt for this caller, or the arguments don't fit.
        """
        params = {"name": name, "arguments": dict(arguments or {})}
        return await self._nested("prompts/get", params, GetPromptResult)

    async def list_tools(self) -> list[Tool]:
        """List the tools of this server, as the caller would see them.

        Returns:
            The tools of all pages.

        Raises:
            GemelError: A middleware gave something that is not a list.
        """
        pages = await self._pages("tools/list", ListToolsResult)
        return [_typed("tools/list", tool, Tool) for page in pages for tool in page.tools]

    async def list_prompts(self) -> list[Prompt]:
        """List the prompts of this server, as the caller would see them.

        Returns:
            The prompts of all pages.

        Raises:
            GemelError: A middleware gave something that is not a list.
        """
        pages = await self._pages("prompts/list", ListPromptsResult)
        return [_typed("prompts/list", prompt, Prompt) for page in pages for prompt in page.prompts]

    async def list_resources(self) -> list[Resource]:
        """List the resources of this server, as the caller would see them, without those that only a template has.

        Returns:
            The resources of all pages.

        Raises:
            GemelError: A middleware gave something that is not a list.
        """
        pages = await self._pages("resources/list", ListResourcesResult)
        return [_typed("resources/list", resource, Resource) for page in pages for resource in page.resources]

    async def list_resource_templates(self) -> list[ResourceTemplate]:
        """List the resource templates of this server, as the caller would see them.

        Returns:
            The templates of all pages.

        Raises:
            GemelError: A middleware gave something that is not a list.
        """
        pages = await self._pages("resources/templates/list", ListResourceTemplatesResult)
        return [
            _typed("resources/templates/list", template, ResourceTemplate)
            for page in pages
            for template in page.resource_templates
        ]

    async def _pages(self, method: str, kind: type[PageT]) -> list[PageT]:
        pages: list[PageT] = []
        cursor: str | None = None
        while not pages or cursor is not None:
            pages.append(await self._nested(method, {} if cursor is None else {"cursor": cursor}, kind))
            cursor = pages[-1].next_cursor
        return pages

    async def _nested(self, method: str, params: dict[str, Any], kind: type[ResultT]) -> ResultT:
        """Serve a request of the handler as a part of its call, through the same middleware and visibility."""
        if self.depth >= _NESTING_LIMIT:
            raise GemelError(f"{method}: {_NESTING_LIMIT} calls within calls are the limit: does it call itself?")
        from gemel.server.elicitation.nested import serve_rounds

        async def serve(given: dict[str, Any]) -> Any:
            inner = self.replace(method=method, params=given)
            inner.depth = self.depth + 1
            inner._served.layers = ()
            return await self._served.serve_nested(inner)

        try:
            result = await serve_rounds(self._served, method, params, serve)
        except ResourceNotFound:
            raise
        except InvalidParams as exc:  # the fault of this handler, not of its caller
            raise ToolError(str(exc)) from exc
        if isinstance(result, InputRequiredResult | Unanswered):
            await self._served.input_requests.suspend(self._served.suspendable_task)
        if isinstance(result, Result) and not isinstance(result, kind):
            raise GemelError(f"{method} gave a {type(result).__name__}, which only a client can go on with")
        return _typed(method, result, kind)

    async def _nested_tool(self, name: str, arguments: Mapping[str, Any] | None) -> CallToolResult:
        params = {"name": name, "arguments": dict(arguments or {})}
        result = await self._nested("tools/call", params, CallToolResult)
        if isinstance(result.structured_content, Raw):
            read = msgspec.json.decode(result.structured_content)
            result = msgspec.structs.replace(result, structured_content=read)
        if result.is_error:
            raise ToolError(result.text or f"Tool {name!r} failed")
        return result

    # ---------------------------------------------------------------- notifications to the client

    async def report_progress(
        self, progress: SupportsFloat, total: SupportsFloat | None = None, message: str | None = None
    ) -> None:
        """Report the progress of this request; nothing is sent to a client that did not ask for it.

        Args:
            progress: The progress so far. It must grow from call to call; a value that doesn't is not sent.
            total: The value at the end, if it is known.
            message: What is being done, for people.

        Raises:
            GemelError: A value is not a finite number.

        Specification: basic/patterns/progress.
        """
        done, whole = _finite(progress), None if total is None else _finite(total)
        call, root = self._served.call, self._served.root or self._served
        meta = call.meta
        if meta is None or meta.progress_token is None or self.depth or call.state is not CallState.RUNNING:
            return
        if root.progress is not None and done <= root.progress:
            logger.debug("%s: progress %r is not above %r and is left out", self.method, done, root.progress)
            return
        root.progress = done
        params = ProgressParams(progress_token=meta.progress_token, progress=done, total=whole, message=message)
        await self._notify("notifications/progress", params)

    async def log(self, level: LoggingLevel, data: Any, *, logger: str | None = None) -> None:
        """Send a log message, if the client wants its level: per session in the handshake era, per request after it.

        Args:
            level: "debug", "info", "notice", "warning", "error", "critical", "alert" or "emergency".
            data: Any JSON value; never secrets.
            logger: The name of the logger.

        Raises:
            GemelError: There is no such level.

        Specification: server/utilities/logging.
        """
        if not self.logs(level) or self._served.call.state is not CallState.RUNNING:
            return
        await self._notify("notifications/message", LogParams(level=level, data=data, logger=logger))

    def logs(self, level: LoggingLevel) -> bool:
        """Return whether a message of this level would be sent now.

        Args:
            level: As in `log`.

        Returns:
            False if the client wants no messages, or only more severe ones.

        Raises:
            GemelError: There is no such level.
        """
        if level not in SEVERITY:
            raise GemelError(f"{level!r} is not a level of a log message: use one of {', '.join(SEVERITY)}")
        call, connection = self._served.call, self._served.session.connection
        default = connection.description.log_level if connection.description is not None else None
        threshold = call.era.log_level(call.meta, connection.handshake, default)
        return threshold is not None and SEVERITY[level] >= SEVERITY[threshold]

    async def debug(self, data: Any, *, logger: str | None = None) -> None:
        """Send a log message of level "debug".

        Args:
            data: As in `log`.
            logger: As in `log`.
        """
        await self.log("debug", data, logger=logger)

    async def info(self, data: Any, *, logger: str | None = None) -> None:
        """Send a log message of level "info".

        Args:
            data: As in `log`.
            logger: As in `log`.
        """
        await self.log("info", data, logger=logger)

    async def warning(self, data: Any, *, logger: str | None = None) -> None:
        """Send a log message of level "warning".

        Args:
            data: As in `log`.
            logger: As in `log`.
        """
        await self.log("warning", data, logger=logger)

    async def error(self, data: Any, *, logger: str | None = None) -> None:
        """Send a log message of level "error".

        Args:
            data: As in `log`.
            logger: As in `log`.
        """
        await self.log("error", data, logger=logger)

    async def close_stream(self, retry: int = 1000) -> bool:
        """Close this request's response stream without ending the request, so that the client polls for the rest.

        Args:
            retry: Milliseconds after which the client should come back.

        Returns:
            False where there is no such stream: only handshake sessions over HTTP have one that can be resumed.

        Specification: basic/transports of 2025-11-25, "Resumability and Redelivery".
        """
        return self._served.session.channel.close_stream(self._served.call, retry)

    async def notify(self, method: str, params: Any = UNSET) -> None:
        """Send a notification that belongs to this request, on its own stream.

        Left out, with a debug line in the log, is what the protocol does not allow: progress and log messages that the client
        did not ask for, what its revision does not have, in the stateless era changes (`Server.notify` reports them to
        subscribers); and everything if the client is gone.

        Args:
            method: The method of the notification.
            params: Its params, any value that can be encoded as a JSON object; none by default.

        Raises:
            GemelError: It is the method of a request.
        """
        row = METHODS.get(method)
        if row is not None and row.result is not None:
            raise GemelError(f"{method} is a request, not a notification")
        if row is None or self._may_notify(method, params):
            await self._notify(method, params)
        else:
            logger.debug("%s: %s is left out: the protocol does not allow it here", self.method, method)

    def _may_notify(self, method: str, params: Any) -> bool:
        """Whether the protocol allows a notification of its own here, and the client wants it."""
        call = self._served.call
        row = method_in(method, call.revision)
        if row is None or row.sender == "client" or not call.era.may_notify(method, call.method):
            return False
        if method == "notifications/message":
            return self.logs(_member(params, "level"))
        token = None if call.meta is None else call.meta.progress_token
        return method != "notifications/progress" or (token is not None and _member(params, "progressToken") == token)

    async def _notify(self, method: str, params: Any) -> None:
        """Send a notification while the call is running."""
        call = self._served.call
        if call.id is None or call.state is CallState.RUNNING:
            await self._send(method, params, call)

    async def _send(self, method: str, params: Any, about: Call | None) -> None:
        shaped = params if params is UNSET else shape(params, self._served.call.revision)
        try:
            await self._served.session.notify(method, shaped, about=about)
        except (ChannelClosed, ConnectionLost) as exc:
            logger.debug("%s: %s could not be sent: %s", self.method, method, exc)


def _typed(method: str, value: Any, kind: type[ValueT]) -> ValueT:
    """A result, or an item of one, as its type; servers elsewhere give JSON. Raises GemelError if it doesn't fit."""
    if isinstance(value, kind):
        return value
    try:
        return msgspec.json.decode(encode_value(value), type=kind)
    except msgspec.ValidationError as exc:
        raise GemelError(f"{method}: its result doesn't fit the protocol: {shorten(str(exc))}") from None


def _finite(value: object) -> float:
    """A number as JSON has it, of any type of number: Decimal and Fraction, too. Raises GemelError for others."""
    if isinstance(value, float | Real | Decimal) and isfinite(value):
        return int(value) if isinstance(value, int) else float(value)
    raise GemelError(f"Progress can't be {value!r}: give a number, neither NaN nor infinite")


def _member(params: Any, name: str) -> Any:
    members = {} if params is UNSET else plain_value(params)
    return members.get(name) if isinstance(members, dict) else None


#: What the server needs of the call of a context: the only way there, for the parts of the server and for extensions. It is no
#: function in Python, since it is on the path of every call.
served_call: Callable[[Context[Any]], ServedCall[Context[Any]]] = attrgetter("_served")


def caller_key(ctx: Context[Any]) -> Hashable:
    """Whom a call is of, for what outlives it, such as subscriptions and sessions with other servers.

    Its session. Where each request is a session of its own (HTTP without HTTP sessions), its principal with the client that
    acts for it, if these are known.
    """
    session, owner = ctx._served.session, ctx._served.call.origin.owner
    if session.channel.kind == "post" and owner is not None:
        return "principal", owner
    return ref(session)


def _blocking(
    method: Callable[Concatenate[Context[Any], P], Coroutine[Any, Any, ValueT]],
) -> Callable[Concatenate[SyncContext, P], ValueT]:
    """A method of `Context` as one that waits for its result."""

    @functools.wraps(method)
    def wait(self: SyncContext, /, *arguments: P.args, **options: P.kwargs) -> ValueT:
        return self._calls.run(method(self._ctx, *arguments, **options))

    return wait


class SyncContext:
    """`ctx.sync`: the methods of a Context as plain calls, for sync functions: `ctx.sync.report_progress(1, 3)`.

    Works in the worker thread that runs the function and in any other thread. On the event loop each method raises
    GemelError. When the call is over (cancelled, out of time, answered), each raises `concurrent.futures.CancelledError`,
    so that a function whose call is over ends, too.
    """

    def __init__(self, ctx: Context[Any], calls: LoopCalls) -> None:
        self._ctx = ctx
        self._calls = calls

    @property
    def session_state(self) -> SyncSessionState:
        """The state of the session as plain calls; see `Context.session_state`.

        Raises:
            NoSession: The call belongs to no session.
        """
        from gemel.server.session_state import SyncSessionState

        return SyncSessionState(self._ctx.session_state, self._calls.run)

    report_progress = _blocking(Context.report_progress)
    log = _blocking(Context.log)
    debug = _blocking(Context.debug)
    info = _blocking(Context.info)
    warning = _blocking(Context.warning)
    error = _blocking(Context.error)
    notify = _blocking(Context.notify)
    ping = _blocking(Context.ping)
    request = _blocking(Context.request)
    read_resource = _blocking(Context.read_resource)
    call_tool = _blocking(Context.call_tool)
    get_prompt = _blocking(Context.get_prompt)
    list_tools = _blocking(Context.list_tools)
    list_prompts = _blocking(Context.list_prompts)
    list_resources = _blocking(Context.list_resources)
    list_resource_templates = _blocking(Context.list_resource_templates)
    complete_elicitation = _blocking(Context.complete_elicitation)

    @overload
    def elicit(self, message: str, *, key: str | None = None) -> str: ...

    @overload
    def elicit(self, message: str, form: type[FormT], *, key: str | None = None) -> FormT: ...

    @overload
    def elicit(self, message: str, form: Mapping[str, Any], *, key: str | None = None) -> dict[str, Any]: ...

    def elicit(self, message: str, form: Any = str, *, key: str | None = None) -> Any:
        """Ask the user to fill in a form, and wait; see `Context.elicit`.

        Args:
            message: What the user is asked. Never ask for secrets in a form.
            form: The type of the answer; text by default.
            key: A name for this request, where message and form vary between the rounds of a call.

        Returns:
            The answer, as a value of the form's type.

        Raises:
            Declined: The user did not answer.
            MissingClientCapability: The client has no forms.
            InvalidParams: The answer does not fit the form.
            GemelError: Input can't be requested here.
        """
        return self._calls.run(self._ctx.elicit(message, form, key=key))

    def elicit_url(self, message: str, url: str, *, key: str | None = None) -> str | None:
        """Ask the user to open a page, and wait until they agree; see `Context.elicit_url`.

        Args:
            message: Why the page should be opened.
            url: The address of the page.
            key: As in `elicit`.

        Returns:
            The id of the page, for `complete_elicitation`; None in revisions without such ids.

        Raises:
            Declined: The user did not agree.
            MissingClientCapability: The client does not open pages.
            GemelError: Input can't be requested here.
        """
        page = self._ctx.elicit_url(message, url, key=key)
        self._calls.run(page)
        return page.elicitation_id

    def sample(
        self,
        messages: str | Sequence[SamplingMessage],
        *,
        max_tokens: int = 1000,
        key: str | None = None,
        **options: Unpack[SampleOptions],
    ) -> CreateMessageResult:
        """Ask the client's model, and wait; see `Context.sample`.

        Args:
            messages: A text, or the messages of a conversation.
            max_tokens: The most tokens that the model may generate.
            key: As in `elicit`.
            **options: Further fields of the request; see `SampleOptions`.

        Returns:
            The model's answer.

        Raises:
            MissingClientCapability: The client has no model, or no tools for it.
            PeerError: The user of a handshake client refused.
            GemelError: Input can't be requested here.
        """
        return self._calls.run(self._ctx.sample(messages, max_tokens=max_tokens, key=key, **options))

    def list_roots(self, *, key: str | None = None) -> list[Root]:
        """Ask for the folders that the user has opened for this server; see `Context.list_roots`.

        Args:
            key: As in `elicit`.

        Returns:
            The roots.

        Raises:
            MissingClientCapability: The client has no roots.
            GemelError: Input can't be requested here.
        """
        return self._calls.run(self._ctx.list_roots(key=key))

    @property
    def step(self) -> SyncSteps:
        """Calls a sync function once over all rounds of this call, in this thread; see `Context.step`."""
        return SyncSteps(self._ctx.step, self._calls.run_with_callback)
