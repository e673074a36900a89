"""Tools: registering functions, listing them, calling them.

https://modelcontextprotocol.io/specification/2025-11-25/server/tools
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Raw

from gemel.errors import (
    BackendError,
    DefinitionError,
    InvalidArguments,
    InvalidParams,
    ProtocolError,
    ToolCallError,
    ToolError,
    shorten,
    told_by,
)
from gemel.options import FLAG, check_option
from gemel.protocol.decoding import SMALL, check_values
from gemel.protocol.http.headers import judge_parameters
from gemel.protocol.http.mirror import collect_param_headers
from gemel.protocol.inline_refs import inline_references
from gemel.protocol.revisions.wrapped_results import ToolValueResult
from gemel.protocol.states import CallState
from gemel.schema.base import Result
from gemel.schema.content import ContentBlock, TextContent
from gemel.schema.revisions import knows
from gemel.schema.tools import (
    CallToolParams,
    CallToolResult,
    ListToolsResult,
    Tool,
    ToolAnnotations,
    is_object_schema,
)
from gemel.server.composition.namespace import argument_names, called, suggest
from gemel.server.concurrency import ConcurrencyLimit, limited_in_time
from gemel.server.context import Context, served_call
from gemel.server.dependencies import Run, contexts_of, dependencies_of, inspect_handler
from gemel.server.dispatch import failure
from gemel.server.features.caching import list_scope
from gemel.server.features.content import checked, returns_blocks, to_blocks
from gemel.server.features.error_details import ErrorDetails, error_text
from gemel.server.features.options import (
    TaskSupport,
    ToolOptions,
    annotations_of,
    check_options,
    common_members,
    listed,
    make_item,
    task_support,
)
from gemel.server.features.pagination import paginate
from gemel.server.features.visibility import Entries, Item, View, Visibility, require_scopes
from gemel.server.functions.arguments import Arguments, SchemaArguments
from gemel.server.functions.coercion import CoercedArguments
from gemel.server.functions.optional import without_null
from gemel.server.functions.results import ADVICE_ON_CONTENT, OutputSchema, serialized
from gemel.server.functions.signature import Signature
from gemel.server.lifespan import in_connection
from gemel.server.threads import Threads
from gemel.signals import is_ctrl_c

logger = logging.getLogger("gemel")

#: https://modelcontextprotocol.io/specification/2025-11-25/server/tools#tool-names
_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,128}\Z")

#: Types that aren't results: isinstance with a Struct is slow.
_PLAIN = frozenset({bool, int, float, str, list, tuple, dict, type(None)})

ToolFunction: TypeAlias = Callable[..., Any]


class RegisteredTool:
    """A registered tool."""

    __slots__ = (
        "_contexts",
        "_encode",
        "_free",
        "_output_schema",
        "_result_type",
        "_threads",
        "arguments",
        "function",
        "has_pydantic",
        "header_params",
        "item",
        "run",
        "signature",
        "task_start",
        "task_support",
    )

    def __init__(
        self,
        function: ToolFunction,
        item: Item,
        signature: Signature,
        arguments: Arguments | SchemaArguments | CoercedArguments,
        output_schema: OutputSchema | None,
        threads: Threads,
        *,
        blocking: bool,
    ) -> None:
        self.item = item
        self.signature = signature
        #: Reads the arguments of a call.
        self.arguments = arguments
        #: Whether pydantic reads one of them, which takes about twice as long.
        self.has_pydantic = any(parameter.type.field is Raw for parameter in signature.parameters)
        self.function = function
        self._threads = threads
        self._encode = signature.encode
        self._free = signature.output_schema is None
        self._output_schema = output_schema
        is_object = self._output_schema is None or is_object_schema(item.listing.output_schema)
        self._result_type = CallToolResult if is_object else ToolValueResult
        self._contexts = contexts_of(signature.injected)
        self.header_params = collect_param_headers(item.listing.input_schema)
        #: Whether its calls may or must become tasks, and when they do.
        self.task_support: TaskSupport | None = None
        self.task_start = "call"
        #: Calls the function with checked arguments and returns the result.
        self.run: Run[Result] = self._awaited if signature.is_async else self._threaded if blocking else self._inline
        dependencies = dependencies_of(signature)
        if dependencies is not None:
            self.run = dependencies.around(self.run, threads)

    @property
    def tool(self) -> Tool:
        """Its entry in lists."""
        listed: Tool = self.item.listing
        return listed

    def check_size(self, ctx: Context[Any], arguments: Raw) -> None:
        """Check how many values arguments have that pydantic is going to read. Raises InvalidParams."""
        check_values(arguments, served_call(ctx).session.connection.limits.values // 2)

    def check_headers(self, ctx: Context[Any], arguments: Raw) -> None:
        """Compare arguments of a client with the headers that repeat them. Raises ProtocolError if they differ."""
        if self.header_params and not ctx.depth:
            call = served_call(ctx).call
            head = call.origin.head
            if head is not None and call.era.mirrors_requests(over_http=True):
                judge_parameters(head, self.header_params, msgspec.json.decode(arguments))

    async def _awaited(self, ctx: Context[Any], arguments: dict[str, Any]) -> Result:
        for name in self._contexts:
            arguments[name] = ctx
        return self.result(await self.function(**arguments))

    async def _inline(self, ctx: Context[Any], arguments: dict[str, Any]) -> Result:
        for name in self._contexts:
            arguments[name] = ctx
        value = self.function(**arguments)
        return self.result(await value if type(value) not in _PLAIN and isinstance(value, Awaitable) else value)

    async def _threaded(self, ctx: Context[Any], arguments: dict[str, Any]) -> Result:
        for name in self._contexts:
            arguments[name] = ctx
        value = await served_call(ctx).run_in_thread(self._threads, self.function, arguments)
        # A sync function that wraps an async one returns an awaitable.
        return self.result(await value if type(value) not in _PLAIN and isinstance(value, Awaitable) else value)

    def result(self, value: Any) -> Result:
        """A returned value as content and, if the tool has an output schema, as structured content."""
        schema, encode = self._output_schema, self._encode
        if type(value) not in _PLAIN and isinstance(value, Result):
            return self._given(value)
        if self._free:
            blocks = to_blocks(value, lists=self.signature.lists_content)
            if blocks is not None and schema is None:
                return CallToolResult(content=blocks)
            if blocks is not None and not isinstance(value, str) and value is not None:
                raise DefinitionError(f"it has an output schema, but returned content: {ADVICE_ON_CONTENT}")
        try:
            structured, text = encode(value)
        except DefinitionError:
            if inspect.iscoroutine(value):
                value.close()
                raise DefinitionError(f"it returned {value.__name__}() without awaiting it: add `await`") from None
            raise
        content: list[ContentBlock] = [TextContent(text=text)]
        if schema is None:
            return CallToolResult(content=content)
        if schema.explicit:
            structured = schema.structured(value, structured)
        return self._result_type(content=content, structured_content=structured)

    def _given(self, result: Result) -> Result:
        """A result that the function made itself, checked."""
        result = checked(result)
        if not isinstance(result, CallToolResult):
            return result
        if self._output_schema is not None and not result.is_error:
            self._output_schema.check(result)
        elif result.structured_content is not UNSET:
            serialized(result.structured_content)
        if self._result_type is CallToolResult:
            return result
        members = {name: getattr(result, name) for name in CallToolResult.__struct_fields__}
        return self._result_type(**members)


class Tools(Entries[RegisteredTool]):
    """The tools of one server.

    `patience`: seconds that a call waits at a tool that is at its concurrency limit. `coerce` and `list_null`: the defaults of
    these options.
    """

    def __init__(
        self,
        threads: Threads,
        visibility: Visibility,
        changed: Callable[[], None],
        page_size: int | None,
        patience: float,
        *,
        coerce: bool,
        list_null: bool,
    ) -> None:
        super().__init__(visibility, changed)
        self._threads = threads
        self._page_size = page_size
        self._patience = patience
        self._coerce = coerce
        self._list_null = list_null
        #: Whether tools that return text list an output schema.
        self.structured_text = False
        #: Whether the text of an unexpected exception is sent.
        self.error_details: ErrorDetails = False
        #: Names to suggest for an unknown one.
        self.offered_names: Callable[[Context[Any]], Iterable[str]] = self.names

    def add(self, function: ToolFunction, options: Mapping[str, Any], *, view: View | None = None) -> RegisteredTool:
        """Register a function; `view` is what a caller sees of the listing.

        Raises DefinitionError, which says what to change.
        """
        check_options("@server.tool", options, ToolOptions)
        coerce = options.get("coerce", self._coerce)
        check_option("coerce", coerce, FLAG)
        input_schema = options.get("input_schema")
        signature = inspect_handler(function, returns_blocks, options.get("name"), structured_text=self.structured_text)
        name: Any = signature.name
        if name == "<lambda>":
            raise DefinitionError('A tool needs a name: write server.tool("name")(function)')
        if not isinstance(name, str) or not _NAME.match(name):
            raise DefinitionError(
                f"Tool name {shorten(repr(name))} is not allowed: use 1 to 128 of A-Z a-z 0-9 _ - . (no blanks)"
            )
        strict = (
            signature.arguments if input_schema is None else SchemaArguments(signature.parameters, input_schema, name)
        )
        arguments = CoercedArguments(strict, input_schema or signature.input_schema) if coerce else strict
        listing = listed(_listing(signature, options, list_null=self._list_null), f"Tool {name!r}")
        item = make_item("tools", name, listing, options, view)
        try:
            blocking = options.get("blocking", True)
            output = _output_schema(signature, options)
            registered = RegisteredTool(function, item, signature, arguments, output, self._threads, blocking=blocking)
        except ValueError as exc:
            raise DefinitionError(f"Tool {name!r}: {exc}") from exc
        registered.run = self._limited(name, registered.run, options)
        registered.task_support = task_support(options)
        registered.task_start = options.get("task_start", "call")
        self.register(name, registered)
        return registered

    def _limited(self, name: str, run: Run[Result], options: Mapping[str, Any]) -> Run[Result]:
        """Apply the tool's own limits. Waiting for its turn doesn't count for the timeout."""
        timeout, concurrency = options.get("timeout"), options.get("concurrency")
        if timeout is not None:
            run = limited_in_time(name, run, timeout)
        if concurrency is not None:
            run = ConcurrencyLimit(name, concurrency, options.get("waiting", 100), self._patience).around(run)
        elif "waiting" in options:
            raise DefinitionError(f"Tool {name!r}: waiting= needs concurrency=, the number that run at once")
        return run

    async def list(self, ctx: Context[Any], params: Any) -> ListToolsResult:
        """`tools/list`."""
        page, cursor = paginate(self.listings(ctx, Tool), params.cursor, self._page_size)
        scope = list_scope(bool(self.restricted))
        return ListToolsResult(tools=page, next_cursor=cursor, cache_scope=scope)

    async def call(self, ctx: Context[Any], params: CallToolParams) -> Result:
        """`tools/call`. An unknown tool is an error; a tool that fails gives a result with `isError`."""
        entry = self.public.get(params.name) or self.find(ctx, params.name)
        if entry is None:
            raise InvalidParams(
                f"Unknown tool: {suggest(served_call(ctx).layers, 'tools', params.name, self.offered_names(ctx))}"
            )
        if entry.item.scopes:
            require_scopes(ctx, entry.item.scopes)
        if entry.header_params:
            entry.check_headers(ctx, params.arguments)
        if entry.has_pydantic and len(params.arguments) > SMALL:
            entry.check_size(ctx, params.arguments)
        try:
            try:
                given = entry.arguments.from_json(params.arguments)
            except InvalidArguments as exc:
                return invalid_arguments(ctx, entry, params.name, params.arguments, exc)
            try:
                return await (
                    in_connection(ctx, entry.run, given) if served_call(ctx).lifespans else entry.run(ctx, given)
                )
            except BaseExceptionGroup as group:
                if (told := told_by(group)) is None:
                    raise
                raise told from None
        except ToolError as exc:
            if not isinstance(exc, ToolCallError):  # that is the text of another server
                return failure(str(exc))
            served_call(ctx).call.failure = exc
            logger.exception("Tool %r failed", params.name)
            return self._failed(ctx, params.name, exc)
        except ProtocolError:
            raise
        except DefinitionError as exc:  # the text is complete: no traceback
            served_call(ctx).call.failure = exc
            logger.error("Tool %r: %s", params.name, exc)
        except (Exception, SystemExit, KeyboardInterrupt, asyncio.CancelledError) as exc:
            if is_ctrl_c(exc) or (isinstance(exc, asyncio.CancelledError) and _is_cancelled(ctx)):
                raise
            served_call(ctx).call.failure = exc
            logger.exception("Tool %r failed", params.name)
            if isinstance(exc, BackendError) and exc.retry_after_ms is not None:
                delay = f"It may be back in {exc.retry_after_ms / 1000:g} seconds."
                name = called(served_call(ctx).layers, "tools", params.name)
                return failure(f"Tool {name!r} failed: a store that the server needs can't be used now. {delay}")
            return self._failed(ctx, params.name, exc)
        return _unexpected(ctx, params.name)

    def _failed(self, ctx: Context[Any], name: str, error: BaseException) -> CallToolResult:
        """The result for an unexpected exception, with its text if `error_details` allows that."""
        text = error_text(self.error_details, error)
        if text is None:
            return _unexpected(ctx, name)
        return failure(f"Tool {called(served_call(ctx).layers, 'tools', name)!r} failed: {text}")


def _is_cancelled(ctx: Context[Any]) -> bool:
    """Whether a call is cancelled, by the peer or with its task; if not, something that the tool awaited was."""
    task = asyncio.current_task()
    return served_call(ctx).call.state is not CallState.RUNNING or task is None or task.cancelling() > 0


def _unexpected(ctx: Context[Any], name: str) -> CallToolResult:
    name = called(served_call(ctx).layers, "tools", name)
    return failure(f"Tool {name!r} failed unexpectedly. The server's log says why.")


def invalid_arguments(
    ctx: Context[Any], entry: RegisteredTool, name: str, arguments: Raw, error: InvalidArguments
) -> CallToolResult:
    """The answer to arguments that don't fit, in the names that the caller uses.

    A result with `isError`; revisions before 2025-11-25 have an error for it: raises InvalidArguments.
    """
    rename = argument_names(served_call(ctx).layers, name)
    try:
        seen = error if rename is None else entry.arguments.errors(arguments, rename)
    except DefinitionError as exc:
        logger.error("Tool %r: %s", name, exc)
        return _unexpected(ctx, name)
    assert isinstance(seen, InvalidArguments)
    explained = InvalidArguments(seen.errors, called(served_call(ctx).layers, "tools", name))
    if not knows(ctx.protocol_version, "argument results"):
        raise explained from None
    return failure(str(explained))


def _output_schema(signature: Signature, options: Mapping[str, Any]) -> OutputSchema | None:
    """The schema that results are validated against. Raises ValueError for an explicit one that can't be used."""
    explicit = options.get("output_schema", UNSET)
    schema = signature.output_schema if explicit is UNSET else explicit
    if schema is None:
        return None
    try:
        return OutputSchema(schema, explicit=explicit is not UNSET)
    except ValueError as exc:
        raise ValueError(f"its output_schema is {exc}") from exc


def _listing(signature: Signature, options: Mapping[str, Any], *, list_null: bool) -> Tool:
    """Its entry in lists: a given schema word for word, one made here without references, which many hosts can't resolve.

    `list_null` is the default of that option for schemas that are made here.
    """
    output, support = options.get("output_schema", UNSET), task_support(options)
    given = options.get("input_schema")
    lists_null = options.get("list_null", True if given else list_null)
    check_option("list_null", lists_null, FLAG)
    taken = given or signature.input_schema
    listed_schema = taken if lists_null else without_null(taken)
    return Tool(
        name=signature.name,
        input_schema=listed_schema if given else inline_references(listed_schema),
        output_schema=inline_references(signature.output_schema) if output is UNSET else output,
        annotations=annotations_of(ToolAnnotations, options.get("annotations"), f"Tool {signature.name!r}"),
        execution=None if support is None else {"taskSupport": support},
        **common_members(signature, options),
    )
