"""The typed methods of a client, and what its middleware receives: `(ctx, call_next) -> result`."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack, overload

import msgspec
from msgspec import UNSET, UnsetType

from gemel.client.cache import CacheMode
from gemel.client.call_options import CallOptions, OnProgress, RequestOptions
from gemel.client.negotiation import Discovery
from gemel.client.subscriptions import Subscription
from gemel.client.tasks import ClientTasks, ToolTask
from gemel.client.tools import FOR_THE_MODEL, KnownTool, ToolIndex, converted, is_wrapped, refused
from gemel.errors import (
    CallError,
    CallTimeout,
    DefinitionError,
    InvalidResponse,
    MethodNotFound,
    NotSent,
    PeerError,
    ToolCallError,
)
from gemel.jsonrpc import RequestId
from gemel.options import check_names, similar
from gemel.protocol.changes import filter_of_lists
from gemel.protocol.deviations import Deviation, Deviations
from gemel.protocol.eras.base import EraName
from gemel.protocol.eras.detect import ERAS
from gemel.protocol.limits import Limits
from gemel.schema.base import Implementation, Page
from gemel.schema.completion import CompleteResult, Completion
from gemel.schema.content import ResourceLink
from gemel.schema.lifecycle import ServerCapabilities
from gemel.schema.prompts import GetPromptResult, ListPromptsResult, Prompt
from gemel.schema.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
)
from gemel.schema.subscriptions import SubscriptionFilter
from gemel.schema.tools import CallToolResult, DataT, ListToolsResult, Tool
from gemel.values.unicode import as_uri, is_unicode

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    ResultT = TypeVar("ResultT", default=dict[str, Any])
else:
    from typing import TypeVar

    ResultT = TypeVar("ResultT")
PageT = TypeVar("PageT", bound=Page)


#: The headers of one request that identify its caller; others, like those for tracing, may differ in each request.
_CREDENTIAL_HEADERS = frozenset({"authorization", "cookie"})

#: What options of other libraries are called here.
_OPTION_ADVICE = {
    "timeout": "did you mean 'total'?",
    "read_timeout_seconds": "did you mean 'total'?",
    "progress_handler": "did you mean 'on_progress'?",
    "progress_callback": "did you mean 'on_progress'?",
}

#: Credentials of the client, and those of one request.
Caller: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]


class ClientContext(msgspec.Struct, kw_only=True, eq=False):
    """One request or notification on its way through the middleware of a client.

    Pass a changed copy on with `call_next(ctx.replace(params=…))`. An inbound message has only `client`, `method`, `params`
    and `request_id`.

    Attributes:
        client: The client that sends or received it.
        method: The method, for example "tools/call".
        params: The params without what the client adds to them.
        inbound: Whether the server sent it.
        notification: Whether it is a notification, which has no result.
        request_id: The id of a request of the server; None for other messages.
        meta: Keys for the `_meta` of the params, besides those of the client.
        headers: HTTP headers of this request, which replace those of the client.
        idle: Seconds without a message from the server until the request fails; None for no limit.
        total: Seconds until the request fails; None for no limit.
        on_progress: Called with the progress of the request.
        safe: Whether the request may be repeated when it is unknown whether it ran; None if that follows from the method.
        result: The type that the result is read into; None for a dict.
        cache: How the cache of the client is used.
        on_size: Called with the size of the result in bytes.
        on_session: Called with the session that the request is about to be sent in. What it raises ends the request.
        credentials: What the request was sent with, as an opaque text; set when there is a result.
        accepts: Values of `resultType`, of extensions, with which the result is returned as it is.
    """

    client: ClientMethods
    method: str
    params: dict[str, Any]
    inbound: bool = False
    notification: bool = False
    request_id: RequestId | None = None
    meta: Mapping[str, Any] | None = None
    headers: Mapping[str, str] | None = None
    idle: float | None = None
    total: float | None = None
    on_progress: OnProgress | None = None
    safe: bool | None = None
    result: Any = None
    cache: CacheMode = "use"
    on_size: Callable[[int], None] | None = None
    on_session: Callable[[object], None] | None = None
    credentials: str = ""
    accepts: Collection[str] = ()

    @property
    def era(self) -> EraName:
        """The era of the connection."""
        return self.client.era

    @property
    def protocol_version(self) -> str:
        """The protocol revision of the connection."""
        return self.client.protocol_version

    @property
    def server(self) -> str:
        """The name of the server in its client group; empty outside of one."""
        return self.client.name_in_group

    @property
    def caller(self) -> Caller:
        """Whom the request was sent for: its credentials and those among its own headers."""
        if not self.headers:
            return self.credentials, ()
        own = [(name.lower(), value) for name, value in self.headers.items()]
        return self.credentials, tuple(sorted(header for header in own if header[0] in _CREDENTIAL_HEADERS))

    def replace(
        self,
        *,
        method: str | None = None,
        params: Mapping[str, Any] | None = None,
        meta: Mapping[str, Any] | UnsetType | None = UNSET,
        headers: Mapping[str, str] | UnsetType | None = UNSET,
        idle: float | UnsetType | None = UNSET,
        total: float | UnsetType | None = UNSET,
    ) -> ClientContext:
        """Copy this context with changes.

        Args:
            method: Another method.
            params: Other params.
            meta: Other keys for `_meta`, None for none.
            headers: Other HTTP headers, None for none.
            idle: Another limit for silence in seconds, None for no limit.
            total: Another limit for the request in seconds, None for no limit.

        Returns:
            The changed copy.
        """
        changes: dict[str, Any] = {"meta": meta, "headers": headers, "idle": idle, "total": total}
        changes = {name: value for name, value in changes.items() if value is not UNSET}
        if method is not None:
            changes["method"] = method
        if params is not None:
            changes["params"] = dict(params)
        return msgspec.structs.replace(self, **changes)


class CursorLost(NotSent):
    """The session that gave a cursor has ended: the list begins anew."""


CallNext: TypeAlias = Callable[[ClientContext], Awaitable[Any]]


class ClientMethods(ABC):
    """The typed methods of a client, on top of `request`.

    Every method that sends a request takes the options of `CallOptions`: `idle`, `total`, `on_progress`, `meta` and
    `headers`. The `total` of a list is the limit of all its pages.

    Args:
        send: Sends a message.
        tools: What is known about the listed tools.
        limits: Time limits and sizes.
        on_progress: Called with the progress of requests that have no `on_progress` of their own.
        check_results: Whether structured content is checked against the output schema of its tool.
        deviations: Notes how the server deviates from the specification.

    Attributes:
        name_in_group: The name of the server in the client group that made this client; empty without one.
    """

    name_in_group: str = ""

    def __init__(
        self,
        send: CallNext,
        tools: ToolIndex,
        limits: Limits,
        *,
        on_progress: OnProgress | None,
        check_results: bool,
        deviations: Deviations,
    ) -> None:
        self.limits = limits
        self.deviations = deviations
        #: Sends a message through the middleware.
        self._chain = send
        self._tools = tools
        self._on_progress = on_progress
        self._check_results = check_results

    # ---------------------------------------------------------------- any message

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        result: type[ResultT] | None = None,
        **options: Unpack[RequestOptions],
    ) -> ResultT:
        """Send any request, for example one of an extension.

        Args:
            method: The method, for example "tools/list".
            params: The params.
            result: The type that the result is read into; a dict by default.
            **options: See `RequestOptions`.

        Returns:
            The result.

        Raises:
            PeerError: The server answered with an error.
            CallError: There is no result for another reason; `outcome` says whether the request may have run.
            DefinitionError: A key of `meta` or a header is not allowed.
        """
        value: ResultT = await self._chain(self._context(method, dict(params or {}), result, options))
        return value

    async def request_raw(
        self, method: str, params: Mapping[str, Any], accepts: Collection[str], options: CallOptions
    ) -> dict[str, Any]:
        """Send a request whose result may be of a type that an extension adds, which is not resolved; for extensions.

        Args:
            method: The method.
            params: The params.
            accepts: The values of `resultType` that are returned as they are.
            options: See `CallOptions`.

        Returns:
            The result.

        Raises:
            CallError: As `request` does.
        """
        request = self._context(method, dict(params), None, options)
        request.accepts = accepts
        value: dict[str, Any] = await self._chain(request)
        return value

    def _context(
        self, method: str, params: dict[str, Any], result: type | None, options: RequestOptions | CallOptions
    ) -> ClientContext:
        limits = self.limits
        context = ClientContext(
            client=self,
            method=method,
            params=params,
            idle=limits.call_idle,
            total=limits.call_total,
            on_progress=self._on_progress,
            result=result,
        )
        if not options:
            return context
        own: dict[str, Any] = {name: value for name, value in options.items() if value is not UNSET}
        own["on_progress"] = options.get("on_progress") or self._on_progress
        try:
            return msgspec.structs.replace(context, **own)
        except TypeError:
            known, advice = RequestOptions.__annotations__, dict(_OPTION_ADVICE)
            if "arguments" in context.params:
                argument = "did you mean an argument? They are passed as one mapping: {%r: …}"
                advice |= {name: argument % name for name in options if name not in advice and not similar(name, known)}
            check_names(options, known, method, advice)
            raise

    async def request_pages(
        self, method: str, page: type[PageT], *, cache: CacheMode = "use", **options: Unpack[CallOptions]
    ) -> list[PageT]:
        """Request all pages of a list.

        See https://modelcontextprotocol.io/specification/draft/server/utilities/pagination.

        Args:
            method: The method, for example "tools/list".
            page: The type of a page, a struct with `next_cursor`.
            cache: "use" the cache, "refresh" its entries, or "bypass" it.
            **options: See `CallOptions`; `total` is the limit of all pages.

        Returns:
            The pages.

        Raises:
            InvalidResponse: The pages do not end within `limits.pages`, or have more than `limits.reply` bytes together. Its
                `pages` are those that came.
            CallError: A page could not be fetched.
        """
        limits = self.limits
        pages: list[PageT] = []
        cursors: set[str] = set()
        cursor: str | None = None
        listed_in: object = None
        size = 0

        def add_size(of_page: int) -> None:
            nonlocal size
            size += of_page
            if size > limits.reply:
                raise InvalidResponse(
                    f"{method}: the pages have more than {limits.reply} bytes together. "
                    "Raise `limits.reply` to accept them"
                )

        def check_session(session: object) -> None:
            """A cursor may be valid in the session of the page before only."""
            nonlocal listed_in
            if cursor is not None and listed_in not in (None, session):
                raise CursorLost(f"{method}: the connection of the page before has ended")
            listed_in = session

        request = self._context(method, {}, page, options)
        request.cache = cache
        request.on_size, request.on_session = add_size, check_session
        total, start, restarts = request.total, time.monotonic(), 0
        while True:
            try:
                pages.append(await self._chain(request))
                cursor = pages[-1].next_cursor
                if cursor is None:
                    return pages
                is_repeated = cursor in cursors
                deviation = ERAS[self.era].deviation_of_cursor(cursor, is_repeated=is_repeated)
                if deviation:
                    self.deviations.note(deviation, f"{method}: {cursor}" if cursor else method)
                    return pages[:-1] if pages[-1] in pages[:-1] else pages  # such a server may ignore cursors
                if is_repeated or len(cursors) >= limits.pages:
                    endless = InvalidResponse(f"{method}: the pages of the server don't end")
                    endless.pages = pages
                    raise endless
                cursors.add(cursor)
                changes: dict[str, Any] = {"params": {"cursor": cursor}}
            except CursorLost:
                if restarts == limits.retries:
                    raise
                restarts += 1
                pages, cursors, cursor, size = [], set(), None, 0
                changes = {"params": {}}
            seconds = None if total is None else total - (time.monotonic() - start)
            if seconds is not None and seconds <= 0:
                raise CallTimeout(f"{method}: {len(pages)} pages came within {total:g} seconds, and there are more")
            request = msgspec.structs.replace(request, total=seconds, **changes)

    async def notify(
        self, method: str, params: Mapping[str, Any] | None = None, *, meta: Mapping[str, Any] | None = None
    ) -> None:
        """Send any notification.

        Args:
            method: The method.
            params: The params.
            meta: Keys for the `_meta` of the params, with a prefix of your own.

        Raises:
            NotSent: The client is not connected.
            ChannelClosed: The connection was lost before it was sent.
            DefinitionError: A key of `meta` is not allowed.
        """
        await self._chain(
            ClientContext(client=self, method=method, params=dict(params or {}), notification=True, meta=meta)
        )

    # ---------------------------------------------------------------- the server

    @property
    @abstractmethod
    def discovery(self) -> Discovery:
        """What the negotiation found out. Save it and pass it as `discovery=` to connect later without a round trip.

        Raises:
            NotSent: The client was not connected yet.
        """

    @abstractmethod
    async def credentials(self) -> str:
        """Get what identifies the caller of a request that is sent now, for what is kept of results.

        Returns:
            An opaque text, another one if `auth` or `headers` give something else; "" if they never change.

        Raises:
            NotSent: A function for `auth` or `headers` failed.
        """

    @property
    @abstractmethod
    def mirrors_arguments(self) -> bool:
        """Whether HTTP headers repeat tool arguments: in the stateless era over HTTP."""

    @property
    @abstractmethod
    def tasks(self) -> ClientTasks:
        """Tasks at the server, by their ids."""

    @property
    def warnings(self) -> list[Deviation]:
        """How the server deviated from the specification and was understood all the same, since this client was made.

        Each of these was logged once at level WARNING.
        """
        return list(self.deviations)

    @property
    def era(self) -> EraName:
        """The protocol generation in use: "2025" (handshake) or "2026" (stateless)."""
        return self.discovery.era

    @property
    def protocol_version(self) -> str:
        """The protocol revision in use, for example "2026-07-28"."""
        return self.discovery.revision

    @property
    def server_info(self) -> Implementation | None:
        """The name and version that the server gives itself, for display only."""
        return self.discovery.server_info

    @property
    def server_capabilities(self) -> ServerCapabilities:
        """The capabilities that the server declares."""
        return self.discovery.capabilities

    @property
    def instructions(self) -> str | None:
        """How the server wants to be used, in its own words."""
        return self.discovery.instructions

    def server_extension(self, extension_id: str) -> dict[str, Any] | None:
        """Get the server's settings of a protocol extension.

        Args:
            extension_id: The id of the extension, for example "io.modelcontextprotocol/ui".

        Returns:
            The settings, or None if the server does not declare the extension.
        """
        offered = self.discovery.capabilities.extensions
        return offered.get(extension_id) if offered else None

    # ---------------------------------------------------------------- tools

    async def list_tools(self, *, cache: CacheMode = "use", **options: Unpack[CallOptions]) -> list[Tool]:
        """List all tools, over all pages (`tools/list`).

        Over HTTP in the stateless era, tools whose `x-mcp-header` annotations are invalid are left out and logged.

        Args:
            cache: "use" the cache of the client, "refresh" it, or "bypass" it.
            **options: See `CallOptions`.

        Returns:
            The tools, in the order of the server.

        Raises:
            CallError: The list could not be fetched.
        """
        pages = await self.request_pages("tools/list", ListToolsResult, cache=cache, **options)
        return self._tools.take([tool for page in pages for tool in page.tools], mirrored=self.mirrors_arguments)

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        returns: type[DataT] | UnionType | None = None,
        raise_on_error: bool = True,
        task: Literal[False] = False,
        **options: Unpack[CallOptions],
    ) -> CallToolResult[DataT]: ...

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        returns: type[DataT] | UnionType | None = None,
        raise_on_error: bool = True,
        task: Literal[True],
        task_ttl: float | None = None,
        **options: Unpack[CallOptions],
    ) -> ToolTask[DataT]: ...

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        returns: type[DataT] | UnionType | None = None,
        raise_on_error: bool = True,
        task: bool = False,
        task_ttl: float | None = None,
        **options: Unpack[CallOptions],
    ) -> CallToolResult[DataT] | ToolTask[DataT]:
        """Call a tool (`tools/call`).

        A call is repeated after a lost connection only if it did not run, or if the tool was listed as read-only or
        idempotent.

        Args:
            name: The name of the tool.
            arguments: The arguments, by name.
            returns: The type of `data` of the result: a dataclass, a TypedDict, a msgspec struct, a pydantic model or a
                built-in type. By default `data` is the structured content as decoded JSON.
            raise_on_error: Whether a result that is marked as an error raises ToolCallError. Otherwise look at `is_error`;
                the `data` of an error does not have the type `returns`. A call that the server refuses with -32602 (an
                unknown tool, arguments that don't fit) or -32021 (the tool asks what this client can't answer) then gives such
                a result, too, for the model to read.
            task: Whether the server may run the call as a task: then this returns its handle at once. A server or tool
                without tasks is called plainly, and the handle has its result.
            task_ttl: Seconds for which the server is to keep the task; only servers of 2025-11-25 are told.
            **options: See `CallOptions`.

        Returns:
            The result with `content`, `structured_content`, `text` and `data`. With `task=True` a `ToolTask`, whose
            `result()` waits for that.

        Raises:
            ToolCallError: The tool reported an error. It is a ToolError, too.
            InvalidResponse: The structured content does not fit the output schema of the listed tool, or `returns`.
            CallError: There is no result; `outcome` says whether the tool may have run.
            DefinitionError: The arguments are not a mapping.

        Example:
            >>> result = await client.call_tool("forecast", {"city": "Oslo"}, returns=Forecast)
            >>> result.data.high
        """
        tool = self._tools.by_name.get(name)
        params = {"name": _name(name, "call_tool", "tool"), "arguments": _arguments(arguments, name)}
        if task:
            return await self.tasks.start(
                name, params["arguments"], returns=returns, raise_on_error=raise_on_error, ttl=task_ttl, options=options
            )
        request = self._context("tools/call", params, CallToolResult, options)
        if tool is not None:
            if tool.needs_task and self.server_capabilities.tasks:
                return await self._call_as_task(request, returns, raise_on_error=raise_on_error, options=options)
            request.safe = tool.safe
        try:
            result: CallToolResult[DataT] = await self._chain(request)
        except PeerError as exc:
            if not raise_on_error and exc.code in FOR_THE_MODEL:
                return refused(exc)
            if tool is not None or exc.code != MethodNotFound.code or not self.server_capabilities.tasks:
                raise
            if not any(
                listed.name == name and self._tools.by_name[name].needs_task for listed in await self.list_tools()
            ):
                raise
            return await self._call_as_task(request, returns, raise_on_error=raise_on_error, options=options)
        if tool is None and returns is None and not result.is_error:
            return result
        checks = tool is not None and self._check_results and request.caller == self._tools.caller
        return self._finished(name, tool, result, returns, raise_on_error=raise_on_error, checks=checks)

    async def _call_as_task(
        self, request: ClientContext, returns: Any, *, raise_on_error: bool, options: CallOptions
    ) -> CallToolResult[Any]:
        """Call a tool that must be a task, and wait for its result within the time limit of the call."""
        name, arguments = request.params["name"], request.params["arguments"]
        task: ToolTask[Any] = await self.tasks.start(
            name, arguments, returns=returns, raise_on_error=raise_on_error, ttl=None, options=options
        )
        try:
            return await task.result(total=request.total)
        except (CallTimeout, asyncio.CancelledError):
            with suppress(CallError):
                await task.cancel()
            raise

    def finish_tool_result(
        self, name: str, result: CallToolResult[Any], *, returns: object = None, raise_on_error: bool = True
    ) -> CallToolResult[Any]:
        """Check a result that came in another way than as the answer to a call, and give it its `data`; for extensions.

        Args:
            name: The name of the tool.
            result: The result.
            returns: The type of `data`.
            raise_on_error: Whether a result that is marked as an error raises ToolCallError.

        Returns:
            The result, as `call_tool` returns it.

        Raises:
            ToolCallError: The tool reported an error.
            InvalidResponse: The structured content does not fit the output schema of the listed tool, or `returns`.
        """
        tool = self._tools.by_name.get(name)
        return self._finished(name, tool, result, returns, raise_on_error=raise_on_error, checks=self._check_results)

    def _finished(
        self,
        name: str,
        tool: KnownTool | None,
        result: CallToolResult[Any],
        returns: object,
        *,
        raise_on_error: bool,
        checks: bool,
    ) -> CallToolResult[Any]:
        if result.is_error:
            if raise_on_error:
                raise ToolCallError(result.text or f"Tool {name!r} failed without a message", result)
            return result
        if tool is not None and checks:
            tool.check(result)
        if returns is not None:
            vars(result)["_converted"] = converted(returns, result, name, wraps=tool is not None and tool.wraps)
        elif is_wrapped(result.structured_content) and tool is not None and tool.wraps:
            vars(result)["_converted"] = result.structured_content["result"]
        return result

    # ---------------------------------------------------------------- resources

    async def list_resources(self, *, cache: CacheMode = "use", **options: Unpack[CallOptions]) -> list[Resource]:
        """List all resources, over all pages (`resources/list`).

        Args:
            cache: "use" the cache of the client, "refresh" it, or "bypass" it.
            **options: See `CallOptions`.

        Returns:
            The resources, in the order of the server.

        Raises:
            CallError: The list could not be fetched.
        """
        pages = await self.request_pages("resources/list", ListResourcesResult, cache=cache, **options)
        return [item for page in pages for item in page.resources]

    async def list_resource_templates(
        self, *, cache: CacheMode = "use", **options: Unpack[CallOptions]
    ) -> list[ResourceTemplate]:
        """List all resource templates, over all pages (`resources/templates/list`).

        Args:
            cache: "use" the cache of the client, "refresh" it, or "bypass" it.
            **options: See `CallOptions`.

        Returns:
            The resource templates, in the order of the server.

        Raises:
            CallError: The list could not be fetched.
        """
        pages = await self.request_pages(
            "resources/templates/list", ListResourceTemplatesResult, cache=cache, **options
        )
        return [item for page in pages for item in page.resource_templates]

    async def read_resource(
        self, uri: str | Resource | ResourceLink, *, cache: CacheMode = "use", **options: Unpack[CallOptions]
    ) -> ReadResourceResult:
        """Read a resource (`resources/read`).

        Args:
            uri: The URI, a listed resource, or a link from a result.
            cache: "use" the cache of the client, "refresh" it, or "bypass" it.
            **options: See `CallOptions`.

        Returns:
            The contents.

        Raises:
            PeerError: There is no such resource, see `is_not_found`, or the server failed.
            CallError: There is no result for another reason.
        """
        found = uri if isinstance(uri, str) else getattr(uri, "uri", None)
        if not isinstance(found, str):
            raise DefinitionError(f"read_resource needs a URI or a listed resource, not {type(uri).__name__}")
        params = {"uri": as_uri(found)}
        return await self.request("resources/read", params, result=ReadResourceResult, cache=cache, **options)

    # ---------------------------------------------------------------- prompts

    async def list_prompts(self, *, cache: CacheMode = "use", **options: Unpack[CallOptions]) -> list[Prompt]:
        """List all prompts, over all pages (`prompts/list`).

        Args:
            cache: "use" the cache of the client, "refresh" it, or "bypass" it.
            **options: See `CallOptions`.

        Returns:
            The prompts, in the order of the server.

        Raises:
            CallError: The list could not be fetched.
        """
        pages = await self.request_pages("prompts/list", ListPromptsResult, cache=cache, **options)
        return [item for page in pages for item in page.prompts]

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        **options: Unpack[CallOptions],
    ) -> GetPromptResult:
        """Get the messages of a prompt (`prompts/get`).

        Args:
            name: The name of the prompt.
            arguments: The arguments, by name; their values are strings.
            **options: See `CallOptions`.

        Returns:
            The messages.

        Raises:
            CallError: There is no result.
            DefinitionError: The arguments are not a mapping of strings.
        """
        params: dict[str, Any] = {"name": _name(name, "get_prompt", "prompt")}
        if arguments is not None:
            params["arguments"] = _arguments(arguments, name)
            for argument, value in arguments.items():
                if not isinstance(value, str):
                    raise DefinitionError(
                        f"Prompt {name!r}: {argument!r} is {value!r}; the arguments of prompts are strings"
                    )
        return await self.request("prompts/get", params, result=GetPromptResult, **options)

    async def complete(
        self,
        *,
        argument: str,
        value: str = "",
        prompt: str | None = None,
        resource: str | None = None,
        given: Mapping[str, str] | None = None,
        **options: Unpack[CallOptions],
    ) -> Completion:
        """Get suggestions for an argument of a prompt or a variable of a resource template (`completion/complete`).

        Args:
            argument: The name of the argument or variable.
            value: What was typed so far.
            prompt: The name of the prompt; either this or `resource`.
            resource: The URI template of the resource.
            given: The values of other arguments.
            **options: See `CallOptions`.

        Returns:
            The suggestions.

        Raises:
            CallError: There is no result.
            ValueError: Both or neither of `prompt` and `resource` are given.
        """
        if (prompt is None) == (resource is None):
            raise ValueError("Say what to complete: prompt=… or resource=…, one of them")
        ref: dict[str, Any] = {"type": "ref/resource", "uri": resource}
        if prompt:
            ref = {"type": "ref/prompt", "name": _name(prompt, "complete", "prompt")}
        params = {"ref": ref, "argument": {"name": _name(argument, "complete", "variable"), "value": value}}
        if given is not None:
            params["context"] = {"arguments": dict(given)}
        result = await self.request("completion/complete", params, result=CompleteResult, **options)
        return result.completion

    # ---------------------------------------------------------------- subscriptions

    def listen(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resources: bool | Sequence[str] = False,
        resource_list: bool = False,
        topics: Mapping[str, Any] | None = None,
    ) -> Subscription:
        """Subscribe to changes: `async with client.listen(tools=True) as changes: async for change in changes`.

        A lost subscription is opened again, with a `ChangesLost` in between.

        Args:
            tools: Whether to subscribe to changes of the list of tools.
            prompts: Whether to subscribe to changes of the list of prompts.
            resources: URIs of resources to watch, or True for changes of the list.
            resource_list: Whether to subscribe to changes of the list of resources, besides URIs.
            topics: Keys of extensions for the filter of `subscriptions/listen`. Their notifications go to the extension and
                to `on_notification`.

        Returns:
            The subscription: an async context manager and iterator of `Changed` and `ChangesLost`.
        """
        lists = {"tools": tools, "prompts": prompts, "resources": resource_list or resources is True}
        subscribed = filter_of_lists(feature for feature, wanted in lists.items() if wanted)
        if not isinstance(resources, bool):
            subscribed.resource_subscriptions = list(resources) or None
        return self._subscribe(subscribed, topics)

    @abstractmethod
    def _subscribe(self, subscribed: SubscriptionFilter, topics: Mapping[str, Any] | None) -> Subscription:
        """Make a subscription."""


def _name(name: object, method: str, kind: str) -> str:
    """The name of a tool or prompt. Raises DefinitionError for anything else, and NotSent for what is not Unicode."""
    if isinstance(name, str):
        if name.isascii() or is_unicode(name):
            return name
        raise NotSent(f"{method} was not sent: the name {name!a} is not Unicode")
    named = getattr(name, "name", None) or getattr(name, "__name__", None) or "name"
    raise DefinitionError(f"{method} needs the name of a {kind}, not {type(name).__name__}: write {method}({named!r})")


def _arguments(arguments: Mapping[str, Any] | None, name: str) -> dict[str, Any]:
    if type(arguments) is dict:
        return arguments.copy()
    if arguments is not None and not isinstance(arguments, Mapping):
        raise DefinitionError(f"The arguments for {name!r} must be a mapping, not {type(arguments).__name__}")
    return dict(arguments or {})


def is_not_found(error: Exception) -> bool:
    """Tell whether an error says that a resource does not exist.

    The code is -32602 in the stateless revision and -32002 before.

    Args:
        error: An error that `read_resource` raised.

    Returns:
        True if the server answered that there is no such resource.
    """
    code, data = getattr(error, "code", None), getattr(error, "data", None)
    return code == -32002 or (code == -32602 and isinstance(data, dict) and "uri" in data)
