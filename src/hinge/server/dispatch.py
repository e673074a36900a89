"""From a method name to a handler and back to a wire result: the inner end of the middleware chain.

The order of checks is fixed: known method, handshake, params, mirrored name, handler, result in the shape of the caller's
revision.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Raw

from hinge.errors import (
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
)
from hinge.jsonrpc import ABSENT, OBJECT, opening
from hinge.protocol.description import ServerDescription
from hinge.protocol.eras.base import Era
from hinge.protocol.eras.detect import ERAS
from hinge.protocol.http.headers import judge_name
from hinge.schema.base import EmptyResult, Result
from hinge.schema.methods import METHODS, Method, method_in
from hinge.server.context import Context

logger = logging.getLogger("hinge")

RequestHandler: TypeAlias = Callable[[Context[Any], Any], Awaitable[Any]]

_EMPTY = Raw(b"{}")
_CORE_TYPES = ("complete", "input_required")
_DONE = EmptyResult()


class Served:
    """A method with its handler. `row` is the protocol's own row, None for a custom method."""

    __slots__ = ("_decoder", "first", "handler", "last", "name", "name_field", "result", "row")

    def __init__(self, name: str, handler: RequestHandler, params: Any = None, *, eras: Sequence[Era] = ()) -> None:
        row = METHODS.get(name)
        self.name = name
        self.handler = handler
        self.row = row
        self.first, self.last = (row.first, row.last) if row is not None else _window(eras or tuple(ERAS.values()))
        self.name_field = row.name_field if row is not None else None
        #: What a handler mostly gives back.
        self.result = row.result if row is not None else None
        kind = params if params is not None else (row.params if row is not None else dict[str, Any])
        self._decoder = params_decoder(kind)

    def read(self, params: Raw) -> Any:
        """The typed params; absent ones are `{}`. Raises InvalidParams, without echoing what came."""
        try:
            return self._decoder(params if params is not ABSENT else _EMPTY)
        except (msgspec.MsgspecError, RecursionError, ValueError) as exc:
            raise invalid_params(exc) from exc


def _window(eras: Sequence[Era]) -> tuple[str, str]:
    """The first and the last revision of these eras, known and unknown ones."""
    return min(era.first_revision for era in eras), max(era.last_revision for era in eras)


def params_decoder(kind: Any) -> Callable[[Raw], Any]:
    """A function from JSON text to a value of this type: msgspec's, or pydantic's for its models."""
    validate = getattr(kind, "model_validate_json", None)
    if validate is not None:
        return lambda raw: validate(bytes(raw), strict=True)
    decode: Callable[[Raw], Any] = msgspec.json.Decoder(kind).decode
    return decode


def invalid_params(exc: Exception) -> InvalidParams:
    """What the caller learns of params that don't fit: where and what was expected, never the library's own dump."""
    detail = shorten(str(exc)) if isinstance(exc, msgspec.MsgspecError) else ""
    return InvalidParams("Invalid request parameters", detail)


def check_async(method: str, handler: Any) -> None:
    """Raises DefinitionError for a plain function: a handler runs on the event loop."""
    if inspect.isfunction(handler) and not inspect.iscoroutinefunction(handler) and handler.__name__ != "<lambda>":
        raise DefinitionError(
            f"{handler.__name__}() serves {method!r}: write `async def {handler.__name__}(ctx, params)`"
        )


class Elsewhere:
    """Where methods of extensions are found that this server hasn't: nowhere, as long as nothing is mounted."""

    def request(self, method: str) -> Served | None:
        """Who serves a request."""
        return None

    def notification(self, method: str) -> Served | None:
        """Who hears a notification."""
        return None

    def result_type(self, said: str) -> str | None:
        """The id of the extension that has results of this type."""
        return None


class Dispatch:
    """The methods that a server serves, and how a call finds its handler. At most `limit` requests run at once."""

    def __init__(self, description: ServerDescription, limit: int) -> None:
        self._description = description
        self._limit = limit
        self._running = 0
        self.requests: dict[str, Served] = {}
        self.notifications: dict[str, Served] = {}
        #: Results that extensions add to the protocol: the `resultType`, and the id of the extension.
        self.result_types: dict[str, str] = {}
        #: What isn't here may be in a mounted server, if one is mounted.
        self.elsewhere = Elsewhere()

    async def request(self, ctx: Context[Any]) -> Any:
        """Serve one request. The result is ready to be encoded; `errors.wire_error` says what the client learns of errors."""
        call = ctx._call
        served = self.requests.get(ctx.method) or self.elsewhere.request(ctx.method)
        if served is None or not served.first <= call.revision <= served.last:
            raise _unserved(ctx)
        if call.era.is_early(ctx.method, ctx._session.connection.handshake):
            raise InvalidParams(f"Received {ctx.method!r} before 'initialize'.", "")
        head = call.origin.head
        if head is not None:
            head = call.era.mirrored_headers(head)
        # Middleware can't change what `initialize` negotiates.
        params = served.read(call.params if call.inline else ctx.params)
        if head is not None and served.name_field is not None:
            sent = params if ctx.params is call.params or ctx.method != call.method else served.read(call.params)
            judge_name(head, getattr(sent, served.name_field))
        if self._running >= self._limit:
            raise Overloaded(f"The server is busy: {self._limit} requests at once is its limit")
        ctx._parsed = params
        self._running += 1
        try:
            result = await run_handler(ctx, served.handler, params)
        except ToolError as exc:  # outside a tool, which makes a result of it: its words are meant for the caller
            if isinstance(exc, ToolCallError):
                raise
            raise InternalError(str(exc)) from exc
        finally:
            self._running -= 1
        return self._dress(ctx, served, result)

    def uncounted(self, handler: RequestHandler) -> RequestHandler:
        """A handler that may run for hours, under a limit of its own."""

        async def serve(ctx: Context[Any], params: Any) -> Any:
            self._running -= 1
            try:
                return await handler(ctx, params)
            finally:
                self._running += 1

        return serve

    async def within(self, ctx: Context[Any]) -> Any:
        """Serve a request for a server that this one is mounted in, which has checked it and dresses the result."""
        served = self.requests.get(ctx.method) or self.elsewhere.request(ctx.method)
        if served is None:
            raise MethodNotFound(ctx.method)
        ctx._parsed = params = served.read(ctx.params)
        result = await run_handler(ctx, served.handler, params)
        return result if isinstance(result, Result) else _structured(result, served.row, ctx.method)

    async def dressed(self, ctx: Context[Any], call_next: Callable[[Context[Any]], Awaitable[Any]]) -> Any:
        """Around all middleware: a result type that one of them answers with is dressed; a dict is its business."""
        result = await call_next(ctx)
        if not isinstance(result, Result):
            return _object(result, ctx.method)
        return ctx._call.era.finish_result(result, ctx._call.revision, self._description.result_meta)

    def _dress(self, ctx: Context[Any], served: Served, result: Any) -> Any:
        if type(result) is served.result or isinstance(result, Result):
            if result.result_type is not UNSET and result.result_type not in _CORE_TYPES:
                result = self._extended(ctx, msgspec.json.decode(msgspec.json.encode(result)), result.result_type)
        elif result is None:
            result = _DONE
        else:
            result = _structured(result, served.row, ctx.method)
            if isinstance(result, dict) and result.get("resultType", "complete") not in _CORE_TYPES:
                result = self._extended(ctx, result, result["resultType"])
        return ctx._call.era.finish_result(result, ctx._call.revision, self._description.result_meta)

    def _extended(self, ctx: Context[Any], result: dict[str, Any], said: Any) -> dict[str, Any]:
        """A result of an extension's own type: only for a client that declared it on this request."""
        extension = self.result_types.get(said) or self.elsewhere.result_type(said)
        if extension is None:
            logger.error("%s: no extension of this server has results of type %r", ctx.method, said)
            raise ProtocolError("Handler returned an invalid result")
        if ctx.client_extension(extension) is None:
            raise MissingClientCapability({"extensions": {extension: {}}})
        return {**result, "resultType": said}  # also where it is the type's default, which encoding leaves out

    async def notification(self, ctx: Context[Any]) -> None:
        """Serve one notification; what can't be served is dropped with a word in the log."""
        method, call = ctx.method, ctx._call
        if method in METHODS and method_in(method, call.revision) is None:
            logger.debug("%s is dropped: revision %s doesn't know it", shorten(method), call.revision)
            return
        if call.era.is_early(method, ctx._session.connection.handshake):
            logger.debug("%s is dropped: the handshake isn't over", shorten(method))
            return
        served = self.notifications.get(method) or self.elsewhere.notification(method)
        if served is None:
            logger.debug("%s is dropped: nobody handles it", shorten(method))
            return
        try:
            params = served.read(ctx.params)
        except InvalidParams as exc:
            logger.warning("%s is dropped: %s", shorten(method), exc.error.data or exc)
            return
        await served.handler(ctx, params)


async def run_handler(ctx: Context[Any], handler: Callable[[Context[Any], Any], Awaitable[Any]], argument: Any) -> Any:
    """Run a handler or a middleware. If it is suspended, because it waits for input, the result is that of the round."""
    task = asyncio.current_task()
    assert task is not None
    outer, ctx._task = ctx._task, task
    try:
        result = await handler(ctx, argument)
    except BaseException as exc:
        elicitation = (ctx._root or ctx)._elicitation
        suspended = await elicitation.settle(task, exc) if elicitation is not None else None
        if suspended is None:
            raise
        return suspended
    finally:
        ctx._task = outer
    elicitation = (ctx._root or ctx)._elicitation
    return result if elicitation is None else await elicitation.settle(task, None) or result


def _unserved(ctx: Context[Any]) -> ProtocolError:
    """Unknown, or known but not offered: malformed params of a method of the protocol come first."""
    kind = ctx._call.era.params_checked_first(ctx.method, ctx._call.revision)
    if kind is not None:
        try:
            params_decoder(kind)(ctx.params if ctx.params is not ABSENT else _EMPTY)
        except (msgspec.MsgspecError, RecursionError, ValueError) as exc:
            return invalid_params(exc)
    return MethodNotFound(ctx.method)


def _object(result: Any, method: str) -> Any:
    """What a middleware answered with: its business, as long as it is an object."""
    if isinstance(result, Mapping | msgspec.Struct) or (isinstance(result, Raw) and opening(result) == OBJECT):
        return result
    logger.error(
        "%s: a middleware answered with %s: return what call_next gave, a result type, or a dict",
        method,
        "nothing" if result is None else type(result).__name__,
    )
    raise InternalError("Handler returned an invalid result")


def _structured(result: Any, row: Method | None, method: str) -> Any:
    """A result that isn't one of our types: a mapping passes (checked, for the protocol's own methods), models are dumped."""
    if isinstance(result, ErrorObject):
        raise ProtocolError(result.message, result.data, code=result.code)
    if isinstance(result, msgspec.Struct):
        result = msgspec.json.decode(msgspec.json.encode(result))
    dump = getattr(result, "model_dump", None)
    if dump is not None:
        result = dump(mode="json", by_alias=True, exclude_none=True)
    if isinstance(result, Mapping):
        if row is None or row.result is None:
            return dict(result)
        try:
            return msgspec.convert(result, row.result)
        except msgspec.ValidationError as exc:
            logger.error("%s: the handler's result doesn't fit the protocol: %s", method, exc)
            raise ProtocolError("Handler returned an invalid result") from exc
    logger.error("%s: the handler returned %s: return a result type, a dict, or None", method, type(result).__name__)
    raise ProtocolError("Handler returned an invalid result")
