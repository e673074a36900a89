"""From a call to its result: its context, the middleware chain, and at the inner end of that the handler of the method.

The order of checks is fixed: known method, handshake, params, mirrored name, handler, result in the shape of the caller's
revision.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Raw

from gemel.errors import (
    DefinitionError,
    ErrorObject,
    InternalError,
    InvalidParams,
    MethodNotFound,
    MissingClientCapability,
    Overloaded,
    ProtocolError,
    ToolCallError,
    ToolError,
    shorten,
    told_by,
)
from gemel.jsonrpc import ABSENT, OBJECT, opening
from gemel.lifespan import Lifespan
from gemel.options import is_async, is_function
from gemel.protocol.connection import LIVENESS_RESERVE
from gemel.protocol.decoding import SMALL
from gemel.protocol.description import ServerDescription
from gemel.protocol.eras.base import OPEN_STATES, Era
from gemel.protocol.eras.detect import ERAS
from gemel.protocol.eras.handshake import task_wish
from gemel.protocol.http.headers import judge_name
from gemel.protocol.limits import Limits
from gemel.protocol.records import Call
from gemel.schema.base import EmptyResult, Result
from gemel.schema.content import TextContent
from gemel.schema.methods import METHODS, Method, method_in
from gemel.schema.tools import CallToolResult
from gemel.server.context import Context, ContextOfLarge, StateT, reset_current, served_call, set_current
from gemel.server.elicitation.request_state import RequestStateCodec
from gemel.server.injection import without_markers
from gemel.server.served_call import CallLifespan, ServedCall
from gemel.session import Session
from gemel.values.encoding import encode_value

logger = logging.getLogger("gemel")

RequestHandler: TypeAlias = Callable[[Context[StateT], Any], Awaitable[Any]]
CallNext: TypeAlias = Callable[[Context[Any]], Awaitable[Any]]
#: Reads the name in typed params that the header `Mcp-Name` repeats.
NameOf: TypeAlias = Callable[[Any], Any]

_EMPTY_PARAMS = Raw(b"{}")
_CORE_RESULT_TYPES = ("complete", "input_required")
_EMPTY_RESULT = EmptyResult()


class Served:
    """A method with its handler.

    Args:
        name: The method.
        handler: `async def handler(ctx, params) -> result`.
        params: The type of the params; that of the protocol by default, or a dict.
        eras: The eras in which a custom method exists; all by default.
        extension_id: The extension that the client must have declared.
        name_field: The member of the params of a custom method, by its Python name, that the header `Mcp-Name` repeats.
    """

    __slots__ = (
        "_decoder",
        "extension_id",
        "handler",
        "name",
        "results",
        "revisions",
        "row",
        "standard",
    )

    def __init__(
        self,
        name: str,
        handler: RequestHandler,
        params: Any = None,
        *,
        eras: Sequence[Era] = (),
        extension_id: str | None = None,
        name_field: str | None = None,
    ) -> None:
        all_eras = ERAS.values()
        row = METHODS.get(name)
        self.name = name
        self.handler = handler
        self.extension_id = extension_id
        #: The method in the table of the protocol; None for a custom method.
        self.row = row
        #: Whether the params have the type of that table.
        self.standard = params is None
        name_field = row.name_field if row is not None else name_field
        name_of = None if name_field is None else attrgetter(name_field)
        #: The revisions that have the method: whether the handshake must be over, and what reads the member of the params that
        #: `Mcp-Name` repeats.
        self.revisions = {
            revision: (era.needs_handshake(name), name_of if era.mirrors_requests(over_http=True) else None)
            for era in (eras or all_eras if row is None else all_eras)
            for revision in era.revisions
            if row is None or row.first <= revision <= row.last
        }
        #: The types that handlers return in most cases.
        self.results = frozenset() if row is None or row.result is None else {row.result, *row.result.__subclasses__()}
        self._decoder = params_decoder(
            params if params is not None else row.params if row is not None else dict[str, Any]
        )

    def read(self, params: Raw) -> Any:
        """The typed params; absent ones are `{}`. Raises InvalidParams, without echoing what came."""
        try:
            return self._decoder(params if params is not ABSENT else _EMPTY_PARAMS)
        except (msgspec.MsgspecError, RecursionError, ValueError) as exc:
            raise _invalid_params(exc) from exc


def params_decoder(kind: Any) -> Callable[[Raw], Any]:
    """A function from JSON text to a value of this type: msgspec's, or pydantic's for its models."""
    validate = getattr(kind, "model_validate_json", None)
    if validate is not None:
        # What is on the wire are aliases, whatever else a model takes in Python.
        return lambda raw: validate(bytes(raw), strict=True, by_alias=True, by_name=False)
    decode: Callable[[Raw], Any] = msgspec.json.Decoder(kind).decode
    return decode


def _invalid_params(exc: Exception) -> InvalidParams:
    """The error for params that don't fit: where and what was expected, without the text of the library."""
    detail = shorten(str(exc)) if isinstance(exc, msgspec.MsgspecError) else ""
    return InvalidParams("Invalid request parameters", detail)


def check_async(method: str, handler: Any) -> None:
    """Raises DefinitionError for a plain function, since a handler runs on the event loop, and for other parameters."""
    name = getattr(handler, "__name__", type(handler).__name__)
    plain = inspect.isfunction(handler) and not is_async(handler) and name != "<lambda>"
    if plain or not is_function(handler, 2):
        raise DefinitionError(f"{name}() serves {method!r}: write `async def {name}(ctx, params)`")
    without_markers(handler)


def require_client_extension(ctx: Context[Any], extension_id: str) -> dict[str, Any]:
    """Return the client's settings of an extension that a handler needs.

    Args:
        ctx: The context of the call.
        extension_id: The id of the extension.

    Returns:
        The settings; `{}` for an extension without settings.

    Raises:
        MissingClientCapability: The client did not declare the extension.
    """
    settings = ctx.client_extension(extension_id)
    if settings is None:
        raise MissingClientCapability({"extensions": {extension_id: {}}})
    return settings


class Chains(msgspec.Struct):
    """What serves requests and notifications from a client, from a server that mounts this one, and from a handler."""

    request: CallNext
    notification: CallNext
    mounted: CallNext
    nested: CallNext


class Dispatch:
    """The methods that a server serves, and how a call finds its handler.

    Args:
        description: The server, as its clients see it.
        limits: Bounds of what runs at once.
        request_states: Encrypts and decrypts the request states of the server.
        lifespans: The `connection_lifespan` of the server, if it has one.
    """

    def __init__(
        self,
        description: ServerDescription,
        limits: Limits,
        request_states: RequestStateCodec,
        lifespans: tuple[CallLifespan[Context[Any]], ...] = (),
    ) -> None:
        self._description = description
        self._request_states = request_states
        self._lifespans = lifespans
        #: What is served here with the middleware around it; `build_chains` adds that.
        self.chains = Chains(self.request, self.notification, self.within, self.within)
        self._limit = limits.all_calls
        self._most_bytes = limits.all_call_bytes
        #: The requests that run, and the bytes of their params over SMALL.
        self._running = self._bytes = 0
        self.requests: dict[str, Served] = {}
        self.notifications: dict[str, Served] = {}
        #: Results that extensions add to the protocol: the `resultType`, and the id of the extension.
        self.result_types: dict[str, str] = {}
        #: The same three tables for the extensions of mounted servers.
        self.mounted_requests: dict[str, Served] = {}
        self.mounted_notifications: dict[str, Served] = {}
        self.mounted_result_types: dict[str, str] = {}

    def serves(self, method: str) -> bool:
        """Whether anything serves this method, in any revision."""
        tables = (METHODS, self.requests, self.notifications, self.mounted_requests, self.mounted_notifications)
        return any(method in table for table in tables)

    async def serve(self, lifespan: Lifespan, session: Session, call: Call) -> Any:
        """Serve one call through the middleware chain, where `lifespan` was entered. Returns the result, ready to be encoded."""
        chains = self.chains
        served = ServedCall(session, call, self._request_states, chains.nested, self._lifespans)
        ctx: Context[Any] = Context(served, call.method, call.params, lifespan.state)
        large = ContextOfLarge(ctx) if len(call.params) > SMALL else None
        token = set_current(large or ctx)
        try:
            result = await (chains.notification if call.id is None else chains.request)(ctx)
            if served.elicitation is not None:
                served.elicitation.check_awaited()
            return result
        finally:
            try:  # noqa: SIM105 - on the path of every call
                reset_current(token)
            except ValueError:  # an abandoned coroutine is closed, in another context
                pass
            if large is not None:
                call.when_released(large.drop_params)
            if served.elicitation is not None:
                served.elicitation.end()
            if served.log_queue is not None or served.published:
                await served.finish()

    async def serve_mounted(self, ctx: Context[Any]) -> Any:
        """Serve a request for a server that this one is mounted in; the result does not have its final shape yet."""
        served = served_call(ctx)
        served.serve_nested = self.chains.nested
        served.lifespans += self._lifespans
        return await self.chains.mounted(ctx)

    def context(self, session: Session, call: Call, state: Any) -> Context[Any]:
        """The context of a call that is served elsewhere, or in another way; `state` is what the lifespan yielded."""
        return Context(
            ServedCall(session, call, self._request_states, self.chains.nested), call.method, call.params, state
        )

    async def request(self, ctx: Context[Any]) -> Any:
        """Serve one request. The result is ready to be encoded; `errors.wire_error` says what the client learns of errors."""
        served = served_call(ctx)
        call = served.call
        entry, name_of = self._find(ctx, served)
        params = _read_params(ctx, served, entry, name_of)
        size = self._begin(ctx, call)
        try:
            result = await run_handler(ctx, entry.handler, params)
        finally:
            self._running -= 1
            if size > SMALL:
                call.when_released(partial(self._give_back, size))
        if type(result) not in entry.results or result.result_type is not UNSET:
            result = self._checked(ctx, entry, result)
        return call.era.finish_result(result, call.revision, self._description.result_meta)

    def _find(self, ctx: Context[Any], served: ServedCall[Any]) -> tuple[Served, NameOf | None]:
        """The method of a request, and what reads the name in its params that `Mcp-Name` repeats.

        Raises:
            MethodNotFound: Nothing serves it in the caller's revision.
            InvalidParams: It came before the handshake.
            MissingClientCapability: It is of an extension that the client did not declare.
        """
        entry = self.requests.get(ctx.method) or self.mounted_requests.get(ctx.method)
        in_revision = None if entry is None else entry.revisions.get(served.call.revision)
        if entry is None or in_revision is None:
            raise MethodNotFound(ctx.method)
        needs_handshake, name_of = in_revision
        if needs_handshake and served.session.connection.handshake.state not in OPEN_STATES:
            raise InvalidParams(f"Received {ctx.method!r} before 'initialize'.", "")
        if entry.extension_id is not None:
            require_client_extension(ctx, entry.extension_id)
        return entry, name_of

    def _begin(self, ctx: Context[Any], call: Call) -> int:
        """Count a request that runs from now on. Returns the size of its params. Raises Overloaded if there is no room."""
        size = len(call.params)
        if self._running >= self._limit or size > SMALL:
            self._check_room(ctx.method, call, size)
        self._running += 1
        if size > SMALL:
            self._bytes += size
        return size

    def _give_back(self, size: int) -> None:
        self._bytes -= size

    def _check_room(self, method: str, call: Call, size: int) -> None:
        """Raise Overloaded while as much runs as may, except for a few checks whether the server is alive, and small requests."""
        if size > SMALL and self._bytes and self._bytes + size > self._most_bytes:
            raise Overloaded(f"The server is busy: {self._most_bytes} bytes of requests at once is its limit")
        reserve = LIVENESS_RESERVE if method == call.era.liveness_method else 0
        if self._running >= self._limit + reserve:
            raise Overloaded(f"The server is busy: {self._limit} requests at once is its limit")

    def uncounted(self, handler: RequestHandler, *, bytes_too: bool = False) -> RequestHandler:
        """A handler that may run for hours. `bytes_too` if the bytes of its requests are under a limit of their own."""

        async def serve(ctx: Context[Any], params: Any) -> Any:
            size = len(served_call(ctx).call.params)
            counted = size if bytes_too and size > SMALL else 0
            self._running -= 1
            self._bytes -= counted
            try:
                return await handler(ctx, params)
            finally:
                self._running += 1
                self._bytes += counted

        return serve

    async def within(self, ctx: Context[Any]) -> Any:
        """Serve a request for a server that this one is mounted in, which checks it and finishes the result."""
        entry = self.requests.get(ctx.method) or self.mounted_requests.get(ctx.method)
        if entry is None:
            raise MethodNotFound(ctx.method)
        params = entry.read(ctx.params)
        result = await run_handler(ctx, entry.handler, params)
        if result is None:
            return _EMPTY_RESULT
        return result if isinstance(result, Result) else _typed_result(result, entry.row, ctx.method)

    async def finish_results(self, ctx: Context[Any], call_next: Callable[[Context[Any]], Awaitable[Any]]) -> Any:
        """Around all middleware: finish a result type that one of them returned; a dict is sent as it is."""
        result = await call_next(ctx)
        if not isinstance(result, Result):
            return _checked_object(result, ctx.method)
        if isinstance(result, CallToolResult) and result.is_error:
            self._check_is_no_task(ctx, result)
        call = served_call(ctx).call
        return call.era.finish_result(result, call.revision, self._description.result_meta)

    def _check_is_no_task(self, ctx: Context[Any], failed: CallToolResult[Any]) -> None:
        """Raise an error in place of a failed result if the client asks for a task, which would be another result."""
        has_tasks = "task" in self.result_types or "task" in self.mounted_result_types
        if has_tasks and task_wish(ctx.protocol_version, ctx.params) is not ABSENT:
            raise InvalidParams(failed.text)

    def _checked(self, ctx: Context[Any], entry: Served, result: Any) -> Any:
        """A result that is not just what the protocol has for the method: None, a dict, a model, or one of an extension."""
        if isinstance(result, Result):
            if result.result_type is not UNSET and result.result_type not in _CORE_RESULT_TYPES:
                return self._extension_result(ctx, msgspec.json.decode(encode_value(result)), result.result_type)
        elif result is None:
            return _EMPTY_RESULT
        else:
            result = _typed_result(result, entry.row, ctx.method)
            if isinstance(result, dict) and result.get("resultType", "complete") not in _CORE_RESULT_TYPES:
                return self._extension_result(ctx, result, result["resultType"])
        return result

    def _extension_result(self, ctx: Context[Any], result: dict[str, Any], result_type: Any) -> dict[str, Any]:
        """A result of a type that an extension adds: only for a client that declared the extension on this request."""
        extension_id = self.result_types.get(result_type) or self.mounted_result_types.get(result_type)
        if extension_id is None:
            logger.error("%s: no extension of this server has results of type %r", ctx.method, result_type)
            raise ProtocolError("Handler returned an invalid result")
        require_client_extension(ctx, extension_id)
        return {**result, "resultType": result_type}  # encoding leaves it out where it is the default of the type

    async def notification(self, ctx: Context[Any]) -> None:
        """Serve one notification; one that can't be served is dropped, with a line in the log."""
        method, call, session = ctx.method, served_call(ctx).call, served_call(ctx).session
        entry = self.notifications.get(method) or self.mounted_notifications.get(method)
        if method in METHODS and method_in(method, call.revision) is None:
            logger.debug("%s is dropped: revision %s does not have it", shorten(method), call.revision)
        elif call.era.needs_handshake(method) and not session.connection.handshake.open:
            logger.debug("%s is dropped: it came before the end of the handshake", shorten(method))
        else:
            if method == "notifications/initialized":
                session.connection.handshake.finish()
            await self._notified(ctx, entry)

    async def _notified(self, ctx: Context[Any], entry: Served | None) -> None:
        method = ctx.method
        if entry is None:
            logger.debug("%s is dropped: there is no handler for it", shorten(method))
        else:
            try:
                params = entry.read(ctx.params)
            except InvalidParams as exc:
                logger.warning("%s is dropped: %s", shorten(method), exc.error.data or exc)
                return
            await entry.handler(ctx, params)


def _read_params(ctx: Context[Any], served: ServedCall[Any], entry: Served, name_of: NameOf | None) -> Any:
    """The typed params of a request. Raises what `Served.read` and `judge_name` raise."""
    call = served.call
    # By middleware, which can't change what `initialize` negotiates.
    unchanged = served.root is None or ((ctx.params is call.params or call.inline) and ctx.method == call.method)
    params = call.typed if unchanged and entry.standard else None
    if params is None:
        params = entry.read(call.params if call.inline else ctx.params)
    head = call.origin.head
    if head is not None and name_of is not None and ctx.method == call.method:
        name = name_of(params if unchanged else entry.read(call.params))
        # "Standard Request Headers" requires it for methods of the protocol. FastMCP's client of tasks doesn't send it.
        judge_name(head, name, required=ctx.method in METHODS)
    return params


async def run_handler(ctx: Context[Any], handler: Callable[[Context[Any], Any], Awaitable[Any]], argument: Any) -> Any:
    """Run a handler or a middleware. If it is suspended, because it waits for input, the result is that of the round."""
    served = served_call(ctx)
    task = asyncio.current_task(served.session.loop)
    outer, served.task = served.task, task
    try:
        result = await handler(ctx, argument)
    except BaseException as exc:
        suspended = await _end_round(served, task, exc)
        if suspended is not None:
            return suspended
        if (told := told_by(exc)) is not None:
            if not isinstance(told, ToolError | MissingClientCapability):
                raise told from None
            return _report(ctx, told)
        if not isinstance(exc, ToolError | MissingClientCapability):
            raise
        return _report(ctx, exc)
    finally:
        served.task = outer
    if (served.root or served).elicitation is None:
        return result
    return await _end_round(served, task, None) or result


def failure(text: str) -> CallToolResult:
    """A result with `isError` and a text for the model."""
    return CallToolResult(content=[TextContent(text=text)], is_error=True)


def _report(ctx: Context[Any], error: ToolError | MissingClientCapability) -> CallToolResult:
    """The result for an error that a handler or a middleware raised, if the request is a `tools/call`.

    Raises what ends other requests: an InternalError with the text of a ToolError, or the error itself if a handler made the
    request. The text of another server's ToolCallError is not for the caller: it is raised again, too.
    """
    if isinstance(error, MissingClientCapability):
        text = served_call(ctx).call.era.text_for_model(error)
        if text is None or ctx.depth or ctx.method != "tools/call":
            raise error
        return failure(text)
    if isinstance(error, ToolCallError):
        raise error
    if ctx.method == "tools/call":
        return failure(str(error))
    if ctx.depth:
        raise error
    raise InternalError(str(error)) from error


async def _end_round(
    served: ServedCall[Any], task: asyncio.Task[Any] | None, error: BaseException | None
) -> Result | None:
    """Return the result of the round if its handler was suspended, None for any other end."""
    elicitation = (served.root or served).elicitation
    assert task is not None
    return None if elicitation is None else await elicitation.settle(task, error)


def _checked_object(result: Any, method: str) -> Any:
    """A result that a middleware made: any JSON object."""
    if isinstance(result, Mapping | msgspec.Struct) or (isinstance(result, Raw) and opening(result) == OBJECT):
        return result
    logger.error(
        "%s: a middleware returned %s: return the result of call_next, a result type, or a dict",
        method,
        "nothing" if result is None else type(result).__name__,
    )
    raise InternalError("Handler returned an invalid result")


def _typed_result(result: Any, row: Method | None, method: str) -> Any:
    """A result that isn't one of our types: a mapping (checked, for the protocol's own methods), or a model as one."""
    if isinstance(result, ErrorObject):
        raise ProtocolError(result.message, result.data, code=result.code)
    if isinstance(result, msgspec.Struct):
        result = msgspec.json.decode(encode_value(result))
    dump = getattr(result, "model_dump", None)
    if dump is not None:
        result = dump(mode="json", by_alias=True, exclude_none=True)
    if isinstance(result, Mapping):
        if row is None or row.result is None or result.get("resultType", "complete") not in _CORE_RESULT_TYPES:
            return dict(result)
        try:
            return msgspec.convert(result, row.result)
        except msgspec.ValidationError as exc:
            logger.error("%s: the handler's result does not fit the protocol: %s", method, exc)
            raise ProtocolError("Handler returned an invalid result") from exc
    logger.error("%s: the handler returned %s: return a result type, a dict, or None", method, type(result).__name__)
    raise ProtocolError("Handler returned an invalid result")
