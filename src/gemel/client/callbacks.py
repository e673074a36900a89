"""The callbacks of a client: what serves the requests and notifications of the server, and which capabilities follow."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET

from gemel.client.cache import Cache
from gemel.client.extensions import ClientExtensions, serve
from gemel.client.methods import CallNext, ClientContext, ClientMethods
from gemel.client.subscriptions import OpenSubscriptions
from gemel.client.url_elicitation import FINISHED, RequiredPages
from gemel.errors import (
    GemelError,
    InternalError,
    InvalidParams,
    InvalidResponse,
    MethodNotFound,
    ProtocolError,
    shorten,
)
from gemel.protocol.changes import Changed, ChangesLost
from gemel.protocol.eras.base import Era
from gemel.protocol.eras.handshake import HANDSHAKE
from gemel.protocol.peer_log import warn_about_peer
from gemel.protocol.records import Call
from gemel.protocol.revisions.adapt import shape
from gemel.protocol.validation import compile_schema, first_problem
from gemel.schema.base import Model, Result
from gemel.schema.checks import checked_model
from gemel.schema.content import TextContent
from gemel.schema.elicitation import ElicitFormParams, ElicitResult, ElicitUrlParams
from gemel.schema.input_required import InputRequest, InputRequiredResult
from gemel.schema.lifecycle import ClientCapabilities, Elicitation, RootsCapability, Sampling
from gemel.schema.notifications import LogParams
from gemel.schema.roots import ListRootsResult, Root
from gemel.schema.sampling import CreateMessageParams, CreateMessageResult
from gemel.session import Session
from gemel.values.encoding import NotSerializable, check_finite, encode_value, plain_value

logger = logging.getLogger("gemel")

Elicited: TypeAlias = ElicitResult | Mapping[str, Any] | None
#: Fills in a form. A mapping accepts, with its fields and the defaults of the form; None declines.
OnElicit: TypeAlias = Callable[[ElicitFormParams], Elicited | Awaitable[Elicited]]
Opened: TypeAlias = ElicitResult | bool
#: Opens a page after the user agreed. True accepts, False declines.
OnElicitUrl: TypeAlias = Callable[[ElicitUrlParams], Opened | Awaitable[Opened]]
Sampled: TypeAlias = CreateMessageResult | str
#: Asks a model. A string is the text of the assistant.
OnSample: TypeAlias = Callable[[CreateMessageParams], Sampled | Awaitable[Sampled]]
Roots: TypeAlias = Sequence[Root | str | Path]
#: The folders that servers may know, or a function that returns them.
OnRoots: TypeAlias = Roots | Callable[[], Roots | Awaitable[Roots]]
#: Called with each log message.
OnLog: TypeAlias = Callable[[LogParams], Any]
#: Called when a list or a resource changed, or when such notifications may have been lost.
OnChange: TypeAlias = Callable[[Changed | ChangesLost], Any]
#: Called with the method and params of each notification that nothing else handles alone.
OnNotification: TypeAlias = Callable[[str, dict[str, Any]], Any]
#: Answers one request of the server, given as its method and params, and takes it through the middleware.
AnswerRequest: TypeAlias = Callable[[str, bytes], Awaitable[Any]]

#: The callbacks that are running, the innermost last: a callback may call another server.
running_callbacks: ContextVar[tuple[Callbacks, ...]] = ContextVar("gemel_callbacks", default=())


def asking_server() -> str | None:
    """The server whose request a callback is serving now, as a text for the user.

    Returns:
        What the server calls itself and where it is; None outside of a callback.
    """
    callbacks = running_callbacks.get()
    return callbacks[-1].describe_server() if callbacks else None


class SamplingRejected(ProtocolError):
    """The user rejects a sampling request: raise it in `on_sample`.

    See https://modelcontextprotocol.io/specification/draft/client/sampling#error-handling.

    Args:
        message: What the server is told.
    """

    code = -1

    def __init__(self, message: str = "User rejected sampling request") -> None:
        super().__init__(message)


class InvalidAnswer(GemelError):
    """A callback returned what can't be sent. The text is for the author of the client; nothing of it is sent."""


class Callbacks:
    """What serves the requests and notifications of the server.

    A proxy or gateway derives from it to serve them in another way: see `Client.use_callbacks`. Each callback may be sync or
    async.

    Args:
        on_elicit: Fills in forms.
        on_elicit_url: Opens pages.
        on_sample: Asks a model.
        on_roots: The folders that servers may know.
        sampling_tools: Whether `on_sample` supports tools.
        on_log: Called with each log message.
        on_change: Called with each change.
        on_notification: Called with each other notification.
    """

    def __init__(
        self,
        *,
        on_elicit: OnElicit | None = None,
        on_elicit_url: OnElicitUrl | None = None,
        on_sample: OnSample | None = None,
        on_roots: OnRoots | None = None,
        sampling_tools: bool = False,
        on_log: OnLog | None = None,
        on_change: OnChange | None = None,
        on_notification: OnNotification | None = None,
    ) -> None:
        self._on_elicit = on_elicit
        self._on_elicit_url = on_elicit_url
        self._on_sample = on_sample
        self._on_roots = on_roots
        self._sampling_tools = sampling_tools
        self.on_log = on_log
        self.on_change = on_change
        self.on_notification = on_notification
        #: Gives the server as a text for the user; the client sets it.
        self.describe_server: Callable[[], str | None] = lambda: None

    @property
    def capabilities(self) -> ClientCapabilities:
        """The capabilities that the client declares: those with a callback."""
        form: dict[str, Any] | None = {} if self._on_elicit is not None else None
        url: dict[str, Any] | None = {} if self._on_elicit_url is not None else None
        elicits = form is not None or url is not None
        sampling = Sampling(tools={} if self._sampling_tools else None)
        return ClientCapabilities(
            elicitation=Elicitation(form=form, url=url) if elicits else None,
            sampling=sampling if self._on_sample is not None else None,
            roots=RootsCapability(list_changed=True) if self._on_roots is not None else None,
        )

    async def answer(self, method: str, params: bytes) -> Any:
        """Serve one request of the server.

        Args:
            method: "elicitation/create", "sampling/createMessage" or "roots/list".
            params: The params as JSON text.

        Returns:
            The result.

        Raises:
            MethodNotFound: There is no callback for the method.
            InvalidParams: The params are invalid, or use what was not declared.
        """
        token = running_callbacks.set((*running_callbacks.get(), self))
        try:
            if method == "elicitation/create":
                return await self._elicit(params)
            if method == "sampling/createMessage" and self._on_sample is not None:
                return await self._sample(params)
            if method == "roots/list" and self._on_roots is not None:
                return await self._roots()
            raise MethodNotFound(method)
        finally:
            running_callbacks.reset(token)

    async def answer_inputs(self, required: InputRequiredResult, answer: AnswerRequest) -> Mapping[str, Any]:
        """Answer the input requests of a result of type `input_required`, all at the same time.

        Args:
            required: The result.
            answer: Serves one request, through the middleware of the client.

        Returns:
            The answers by the keys of the requests. The first failure ends the others.

        Raises:
            InvalidResponse: The server requested something that it must not, or that was not declared.
        """
        return await answer_all(required.input_requests or {}, answer)

    async def open_urls(self, pages: Sequence[ElicitUrlParams], answer: AnswerRequest) -> bool:
        """Open the pages that a handshake server requires before it serves a request.

        Args:
            pages: The pages.
            answer: Serves one request, through the middleware of the client.

        Returns:
            Whether the user agreed to open all of them; False if `on_elicit_url` is missing.
        """
        declared = self.capabilities.elicitation
        if declared is None or declared.url is None:
            return False
        requests = {
            str(number): InputRequest(method="elicitation/create", params=page) for number, page in enumerate(pages)
        }
        answers = plain_value(await answer_all(requests, answer))
        return all(response.get("action") == "accept" for response in answers.values())

    def refuse_nested(self, method: str) -> None:
        """Refuse a request to a server while a callback serves one of its requests: it would wait for us.

        Args:
            method: The method of the request, for the message.

        Raises:
            GemelError: Such a callback is running in this context.
        """
        if self in running_callbacks.get():
            raise GemelError(f"{method} can't be sent while a request of the server is being served")

    # Results of another type than declared are refused where they leave: see `check_answer`.

    async def _elicit(self, params: object) -> Any:
        if _member(params, "mode") == "url":
            return await self._open(params)
        if self._on_elicit is None:
            raise MethodNotFound("elicitation/create") if self._on_elicit_url is None else _no_mode("form")
        request = _decode(params, ElicitFormParams)
        if request.requested_schema.get("type", "object") != "object":
            raise InvalidParams("Invalid request parameters: requestedSchema must be the schema of an object")
        answer = await awaited(self._on_elicit(request))
        if answer is None:
            return ElicitResult(action="decline")
        if isinstance(answer, Mapping):
            answer = ElicitResult(action="accept", content={**_defaults(request.requested_schema), **answer})
        if isinstance(answer, ElicitResult) and answer.action == "accept":
            _check(answer.content or {}, request)
        elif not isinstance(answer, ElicitResult | msgspec.Raw):
            raise InvalidAnswer(
                f"on_elicit returned {type(answer).__name__}: return a dict of the fields of the form "
                f"({_names(request.requested_schema)}), or None to decline"
            )
        return answer

    async def _open(self, params: object) -> Any:
        if self._on_elicit_url is None:
            raise _no_mode("url")
        agreed = await awaited(self._on_elicit_url(_decode(params, ElicitUrlParams)))
        if not isinstance(agreed, bool):
            return agreed
        return ElicitResult(action="accept" if agreed else "decline")

    async def _sample(self, params: object) -> CreateMessageResult:
        assert self._on_sample is not None
        request = _decode(params, CreateMessageParams)
        if (request.tools or request.tool_choice) and not self._sampling_tools:
            raise InvalidParams("This client did not declare sampling.tools")
        answer: Sampled = await awaited(self._on_sample(request))
        if isinstance(answer, str):
            return CreateMessageResult(role="assistant", content=TextContent(text=answer), model="unknown")
        return answer

    async def _roots(self) -> ListRootsResult:
        given = self._on_roots() if callable(self._on_roots) else self._on_roots
        roots = await awaited(given)
        if not isinstance(roots, list | tuple):
            raise InvalidAnswer(
                f"on_roots returned {shorten(repr(roots))}: return a list of paths, file:// URIs or Root"
            )
        return ListRootsResult(roots=[_root(item) for item in roots])


async def answer_all(requests: Mapping[str, InputRequest], answer: AnswerRequest) -> dict[str, Any]:
    """Answer several input requests at the same time; the first failure ends the others.

    Args:
        requests: The requests by their keys.
        answer: Serves one request.

    Returns:
        The answers by the same keys.

    Raises:
        InvalidResponse: The server requested something that it must not, or that was not declared.
    """
    tasks = {key: asyncio.create_task(_answer_input(request, answer)) for key, request in requests.items()}
    try:
        await asyncio.gather(*tasks.values())
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
    return {key: task.result() for key, task in tasks.items()}


async def _answer_input(request: InputRequest, answer: AnswerRequest) -> Any:
    method = request.method
    if method not in ("elicitation/create", "sampling/createMessage", "roots/list"):
        raise InvalidResponse(f"The server requested the input {shorten(method)!r}, which is not allowed")
    try:
        return await answer(method, encode_value({} if request.params is UNSET else request.params))
    except MethodNotFound as exc:
        raise InvalidResponse(f"The server requested {method}, which this client did not declare") from exc
    except InvalidParams as exc:
        raise InvalidResponse(f"The server requested {method} with invalid params: {exc}") from exc


def _root(item: Root | str | Path) -> Root:
    if isinstance(item, Root) and str(item.uri).startswith("file://"):
        return item
    if isinstance(item, str) and item.startswith("file://"):
        return Root(uri=item)
    if isinstance(item, str | Path) and "://" not in str(item):
        return Root(uri=Path(item).absolute().as_uri())
    raise InvalidAnswer(f"on_roots: {shorten(repr(item))} is not a root: use a path, a file:// URI or a Root")


def _decode(params: Any, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(params or b"{}", type=kind)
    except msgspec.MsgspecError as exc:
        raise InvalidParams(f"Invalid request parameters: {exc}") from exc


def _member(params: Any, name: str) -> Any:
    decoded = msgspec.json.decode(params or b"{}")
    return decoded.get(name) if isinstance(decoded, dict) else None


def _no_mode(mode: str) -> InvalidParams:
    return InvalidParams(f"This client did not declare elicitation mode {mode!r}")


def _fields(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a form, by their names."""
    fields = schema.get("properties")
    return fields if isinstance(fields, dict) else {}


def _names(schema: Mapping[str, Any]) -> str:
    """The names of the fields of a form."""
    return shorten(", ".join(_fields(schema)))


def _defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The default values of a form."""
    properties = _fields(schema).items()
    return {name: field["default"] for name, field in properties if isinstance(field, dict) and "default" in field}


#: What a client answers requests with, by their methods: the result and the callback that makes it.
_ANSWERS: Mapping[str, tuple[type[Result], str]] = {
    "elicitation/create": (ElicitResult, "on_elicit or on_elicit_url"),
    "sampling/createMessage": (CreateMessageResult, "on_sample"),
    "roots/list": (ListRootsResult, "on_roots"),
}


def check_answer(method: str, result: object) -> Any:
    """Return the result of a request of the server if it can be sent. It was made by code of the user.

    Raises:
        InvalidAnswer: It has another type than the method requires, or a member has.
    """
    kind, source = _ANSWERS.get(method, (msgspec.Struct, f"the handler of {method}"))
    try:
        if isinstance(result, kind):
            if isinstance(result, Model):
                result = checked_model(result)
        elif isinstance(result, Mapping):
            if kind is not msgspec.Struct:
                msgspec.json.decode(encode_value(result), type=kind)  # parts of it may be JSON text
        elif not isinstance(result, msgspec.Raw):
            raise ValueError(f"expected {kind.__name__}, got {type(result).__name__}")
        check_finite(result)
    except (TypeError, ValueError) as exc:
        raise InvalidAnswer(f"The answer of {source} can't be sent: {exc}") from None
    return result


def _check(content: dict[str, Any], request: ElicitFormParams) -> None:
    """Validate the callback's answer against the form, with bounded effort. Raises InvalidAnswer."""
    try:
        problem = first_problem(compile_schema(request.requested_schema), plain_value(content))
    except NotSerializable as exc:
        raise InvalidAnswer(f"The answer of on_elicit can't be sent: {exc}") from None
    except ValueError as exc:
        raise InvalidParams(f"The form has {exc}") from exc
    if problem is not None:
        raise InvalidAnswer(f"The answer of on_elicit to {shorten(request.message)!r} does not fit the form: {problem}")


async def awaited(value: object) -> Any:
    """What a callback returned, awaited if it is async."""
    return await value if isinstance(value, Awaitable) else value


class InboundMessages:
    """Serves the requests and notifications of the server of one client."""

    def __init__(
        self,
        client: ClientMethods,
        callbacks: Callbacks,
        *,
        extensions: ClientExtensions,
        subscriptions: OpenSubscriptions,
        cache: Cache,
        pages: RequiredPages,
    ) -> None:
        self._client = client
        self.callbacks = callbacks
        self._extensions = extensions
        self._subscriptions = subscriptions
        self._cache = cache
        self._pages = pages
        #: The middleware around `dispatch`; None without any.
        self.chain: CallNext | None = None
        self._era: Era = HANDSHAKE
        self._warnings = 0

    async def handle(self, session: Session, call: Call) -> Any:
        """Serve one message; the result of a request, in the shape of its revision."""
        self._era = session.connection.era
        if call.id is None:
            await self._notified(call)
            return None
        try:
            return shape(check_answer(call.method, await self._answer_call(call)), call.revision)
        except InvalidAnswer as exc:  # the text is complete: no traceback
            logger.error("%s", exc)
            raise InternalError(f"The client's answer to {call.method} is not valid, so it was not sent") from exc

    async def _answer_call(self, call: Call) -> Any:
        if self.chain is None and self._extensions.request_method(call.method, HANDSHAKE) is None:
            return {} if call.method == "ping" else await self.callbacks.answer(call.method, bytes(call.params))
        ctx = self._context(call, notification=False)
        return await self.dispatch(ctx) if self.chain is None else await self.chain(ctx)

    def _context(self, call: Call, *, notification: bool) -> ClientContext:
        params: Any = msgspec.json.decode(call.params) if bytes(call.params) else {}
        return ClientContext(
            client=self._client,
            method=call.method,
            params=params,
            inbound=True,
            notification=notification,
            request_id=call.id,
        )

    async def answer_input(self, method: str, params: bytes) -> Any:
        """Serve a request that is part of a result, in the same way as one that is a message of its own."""
        if self.chain is None:
            return check_answer(method, await self.callbacks.answer(method, params))
        ctx = ClientContext(client=self._client, method=method, params=msgspec.json.decode(params), inbound=True)
        return check_answer(method, await self.chain(ctx))

    async def dispatch(self, ctx: ClientContext) -> Any:
        """The inner end of the middleware."""
        if ctx.notification:
            return await self._dispatch_notification(ctx)
        method = self._extensions.request_method(ctx.method, HANDSHAKE)
        if method is not None:
            return await serve(method, ctx)
        if ctx.method == "ping":
            return {}
        return await self.callbacks.answer(ctx.method, encode_value(ctx.params))

    async def _notified(self, call: Call) -> None:
        try:
            ctx = self._context(call, notification=True)
        except msgspec.MsgspecError as exc:
            self._dropped(call.method, exc)
            return
        await (self._dispatch_notification(ctx) if self.chain is None else self.chain(ctx))

    async def _dispatch_notification(self, ctx: ClientContext) -> None:
        method, params, callbacks = ctx.method, ctx.params, self.callbacks
        if method == "notifications/message" and callbacks.on_log is not None:
            try:
                log = msgspec.convert(params, LogParams)
            except msgspec.ValidationError as exc:
                self._dropped(method, exc)
                return
            await awaited(callbacks.on_log(log))
            return
        if method == "notifications/subscriptions/acknowledged":
            self._subscriptions.acknowledged(params)
            return
        if method == FINISHED:
            self._pages.finished(params.get("elicitationId"))
        change = self._subscriptions.notified(method, params)
        if change is not None:
            await self.changed(change)
        extension_method = self._extensions.notification_method(method, self._era)
        if extension_method is not None:
            try:
                await serve(extension_method, ctx)
            except GemelError as exc:
                self._dropped(method, exc)
        if callbacks.on_notification is not None:
            await awaited(callbacks.on_notification(method, params))

    async def changed(self, change: Changed | ChangesLost) -> None:
        """Drop outdated cache entries and call `on_change`."""
        self._cache.changed(change)
        if self.callbacks.on_change is not None:
            await awaited(self.callbacks.on_change(change))

    def _dropped(self, method: str, reason: Exception) -> None:
        self._warnings = warn_about_peer(self._warnings, "%s is dropped: %s", shorten(method), reason)
