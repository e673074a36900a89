"""Extensions of the protocol as objects: what one brings to a server, and how a server takes it in. Knows none by name.

Off by default: nothing of an extension is there until `server.add_extension(…)`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar, TypeAlias

import msgspec
from msgspec import Raw, Struct

from hinge.errors import DefinitionError, InvalidParams, MissingClientCapability, shorten
from hinge.protocol.eras.base import Era, EraName
from hinge.protocol.eras.detect import ERAS, parse_eras
from hinge.protocol.http.headers import judge_name
from hinge.protocol.meta import is_extension_id
from hinge.schema.methods import METHODS
from hinge.schema.tools import CallToolParams
from hinge.server.context import Context
from hinge.server.dispatch import Dispatch, RequestHandler, Served, invalid_params, params_decoder

CallTool: TypeAlias = Callable[[Context[Any], CallToolParams], Awaitable[Any]]


class Method(Struct, frozen=True, kw_only=True):
    """A request or notification of an extension: `serve` is `async def serve(ctx, params) -> result`.

    `params` is the type that they are read into, a dict by default. A request of a client that didn't declare the
    extension is refused, unless `open` is set. `name_field` is the member (by its Python name) that the header
    `Mcp-Name` repeats over HTTP, if there is one.
    """

    name: str
    serve: RequestHandler
    params: Any = None
    open: bool = False
    name_field: str | None = None


class Topic(Struct, frozen=True, kw_only=True):
    """Something of an extension's own that clients may listen to, by a key of the filter of `subscriptions/listen`.

    What stands at `key` is read as `type`, and `accept(ctx, value)` gives back the part of it that will be honoured, None
    for nothing: a list of keys, or True for all. `server.notify(Changed(kind, key))` then reaches the listeners that
    have this key: they get the notification `method` with what `describe(ctx, key)` says at that moment, a dict, or
    None for nothing to say. All of it runs for the listener's own context.
    """

    key: str
    kind: str
    method: str
    type: Any = list[str]
    accept: Callable[[Context[Any], Any], Awaitable[Any]]
    describe: Callable[[Context[Any], str | None], Awaitable[dict[str, Any] | None]]


class Extension:
    """The base of an extension: override what it has. One object may be added to one server.

    Its id has a prefix, like `com.example/search`. `settings` stand in the server's capabilities.
    """

    id: ClassVar[str] = ""
    #: In which eras it exists; in others its methods are unknown, and it is not announced.
    eras: ClassVar[Sequence[EraName]] = ("2025", "2026")
    #: The `resultType`s that it adds; results of these reach only clients that declared the extension.
    result_types: ClassVar[Sequence[str]] = ()

    @property
    def settings(self) -> Mapping[str, Any]:
        """What clients are told about it; `{}` for nothing."""
        return {}

    def requests(self) -> Iterable[Method]:
        """The requests that it serves."""
        return ()

    def notifications(self) -> Iterable[Method]:
        """The notifications that it hears."""
        return ()

    def topics(self) -> Iterable[Topic]:
        """What clients may listen to."""
        return ()

    def attach(self, server: Any) -> None:
        """Called once, when it is added: register the tools, prompts and resources that it brings."""

    @asynccontextmanager
    async def lifespan(self, server: Any) -> AsyncIterator[None]:
        """`async with` around the time in which the server serves: for work of its own in the background."""
        yield

    async def call_tool(self, ctx: Context[Any], params: CallToolParams, call_next: CallTool) -> Any:
        """Around every `tools/call`: look at it, answer it in its place, or change what comes back.

        The extension that was added first is outermost. Costs nothing where it isn't overridden.
        """
        return await call_next(ctx, params)


def require_client_extension(ctx: Context[Any], extension_id: str) -> dict[str, Any]:
    """The client's settings of an extension. Raises MissingClientCapability when it didn't declare it."""
    settings = ctx.client_extension(extension_id)
    if settings is None:
        raise MissingClientCapability({"extensions": {extension_id: {}}})
    return settings


class Extensions:
    """The extensions of one server."""

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch
        self._added: dict[str, Extension] = {}
        #: The extensions that exist in an era, by their ids.
        self._by_era: dict[Era, dict[str, Extension]] = {era: {} for era in ERAS.values()}
        #: What serves `tools/call` without interceptions, as soon as something does.
        self._call: RequestHandler | None = None
        #: By the key of the filter: the extension's id, and the topic.
        self.topics: dict[str, tuple[str, Topic]] = {}
        #: What extensions serve, by method.
        self.requests: dict[str, Served] = {}
        self.notifications: dict[str, Served] = {}

    def add(self, extension: Extension) -> None:
        """Take in what an extension declares. Raises DefinitionError, and changes nothing then."""
        name = extension.id
        if not is_extension_id(name):
            raise DefinitionError(
                f"The extension {type(extension).__name__} has the id {shorten(name)!r}: it needs a prefix and a name, "
                "as in com.example/search"
            )
        if name in self._added:
            raise DefinitionError(f"There is an extension {name!r} already")
        eras = parse_eras(extension.eras)
        requests, notifications = list(extension.requests()), list(extension.notifications())
        topics = list(extension.topics())
        self._check(extension, requests, notifications, topics)
        self._added[name] = extension
        for era in eras:
            self._by_era[era][name] = extension
        for method in requests:
            guarded = _Guarded(name, method)
            self.requests[method.name] = Served(method.name, guarded.serve, Raw, eras=eras)
        for method in notifications:
            self.notifications[method.name] = Served(method.name, method.serve, method.params, eras=eras)
        self._dispatch.requests.update(self.requests)
        self._dispatch.notifications.update(self.notifications)
        self._dispatch.result_types.update(dict.fromkeys(extension.result_types, name))
        self.topics.update({topic.key: (name, topic) for topic in topics})
        if self._call is not None:
            self._dispatch.requests[_CALL].handler = self._chain(self._call)

    def _check(self, extension: Extension, requests: list[Any], notifications: list[Any], topics: list[Any]) -> None:
        dispatch = self._dispatch
        taken = [
            *(method.name for method in requests if method.name in METHODS or method.name in dispatch.requests),
            *(method.name for method in notifications if method.name in dispatch.notifications),
            *(kind for kind in extension.result_types if kind in dispatch.result_types or kind in _CORE_TYPES),
            *(topic.key for topic in topics if topic.key in self.topics),
        ]
        if taken:
            raise DefinitionError(f"The extension {extension.id!r} brings {taken[0]!r}, which is taken already")

    def settings(self, era: Era) -> dict[str, dict[str, Any]]:
        """What is announced in an era."""
        return {name: dict(one.settings) for name, one in self._by_era[era].items()}

    @property
    def with_methods(self) -> set[str]:
        """The ids of those that have more than tools, prompts and resources: their names carry no prefix."""
        return {
            name for name, one in self._added.items() if any((*one.requests(), *one.notifications(), *one.topics()))
        }

    def applied(self, method: str, handler: RequestHandler) -> RequestHandler:
        """The handler of `tools/call` with all interceptions around it; every other one as it is."""
        if method != _CALL:
            return handler
        self._call = handler
        return self._chain(handler)

    def _chain(self, call: CallTool) -> CallTool:
        for extension in reversed(self._added.values()):
            if type(extension).call_tool is not Extension.call_tool:
                call = _intercepted(extension, parse_eras(extension.eras), call)
        return call


_CALL = "tools/call"
_CORE_TYPES = ("complete", "input_required")


def _intercepted(extension: Extension, eras: Sequence[Era], call_next: CallTool) -> CallTool:
    async def intercept(ctx: Context[Any], params: CallToolParams) -> Any:
        return await extension.call_tool(ctx, params, call_next)

    by_era: dict[Era, CallTool] = {**dict.fromkeys(ERAS.values(), call_next), **dict.fromkeys(eras, intercept)}

    async def call(ctx: Context[Any], params: CallToolParams) -> Any:
        return await by_era[ctx._call.era](ctx, params)

    return call


class _Guarded:
    """A request of an extension: first that the client declared it, then the params, then the handler."""

    def __init__(self, extension_id: str, method: Method) -> None:
        self._extension_id = extension_id
        self._method = method
        self._decode = params_decoder(dict[str, Any] if method.params is None else method.params)

    async def serve(self, ctx: Context[Any], raw: Raw) -> Any:
        method = self._method
        if not method.open:
            require_client_extension(ctx, self._extension_id)
        try:
            params = self._decode(raw)
        except (msgspec.MsgspecError, RecursionError, ValueError) as exc:
            raise invalid_params(exc) from exc
        head = ctx._call.era.mirrored_headers(ctx._call.origin.head)
        if method.name_field is not None and head is not None:
            judge_name(head, getattr(params, method.name_field))
        ctx._parsed = params
        return await method.serve(ctx, params)


async def accepted(
    ctx: Context[Any], wanted: Mapping[str, Raw], topics: Mapping[str, tuple[str, Topic]]
) -> dict[str, tuple[Topic, Any]]:
    """What of a filter belongs to extensions and will be honoured, by key. Raises MissingClientCapability, InvalidParams."""
    found: dict[str, tuple[Topic, Any]] = {}
    for key, (extension_id, topic) in topics.items():
        if key not in wanted:
            continue
        require_client_extension(ctx, extension_id)
        try:
            value = msgspec.json.decode(wanted[key], type=topic.type)
        except msgspec.MsgspecError as exc:
            raise InvalidParams(f"notifications.{key}: {shorten(str(exc))}") from None
        kept = await topic.accept(ctx, value)
        if kept is not None:
            found[key] = (topic, kept)
    return found
