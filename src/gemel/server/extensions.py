"""Extensions of the protocol: what one declares, and how a server adds it. No extension is known by name here.

An extension is off until `server.add_extension(…)`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct

from gemel.errors import DefinitionError, InvalidParams, shorten
from gemel.options import is_function
from gemel.protocol.eras.base import Era, EraName
from gemel.protocol.eras.detect import ERAS, parse_eras
from gemel.protocol.meta import check_extension_id
from gemel.schema.methods import METHODS
from gemel.schema.tools import CallToolParams
from gemel.server.context import Context, served_call
from gemel.server.dispatch import Dispatch, RequestHandler, Served, check_async
from gemel.server.dispatch import require_client_extension as require_client_extension
from gemel.server.injection import without_markers
from gemel.server.lifespan import for_connection

ServerT = TypeVar("ServerT")
CallTool: TypeAlias = Callable[[Context[Any], CallToolParams], Awaitable[Any]]


class Method(Struct, frozen=True, kw_only=True):
    """A request or notification of an extension.

    Args:
        name: The method.
        serve: `async def serve(ctx, params) -> result`.
        params: The type that the params are read into; a dict by default.
        open: Whether clients that did not declare the extension may send the request, too.
        name_field: The member of the params, by its Python name, that the HTTP header `Mcp-Name` repeats. A request without the
            header is served; one whose header differs is refused.
        eras: The eras in which it exists; those of the extension by default.
        since: The first revision that has it, such as "2025-11-25"; all of its eras by default.
        waits: Whether it may take hours: it does not count as one of the calls that the server serves at once. The bytes of its
            params do.
        connection: Whether it uses `ctx.connection_state`, for which a `connection_lifespan` is entered.
    """

    name: str
    serve: RequestHandler
    params: Any = None
    open: bool = False
    name_field: str | None = None
    eras: Sequence[EraName] | None = None
    since: str | None = None
    waits: bool = False
    connection: bool = True


class Topic(Struct, frozen=True, kw_only=True):
    """Changes of an extension that clients can subscribe to, with a key in the filter of `subscriptions/listen`.

    `server.notify(Changed(kind, key))` sends the notification `method` to the subscribers of that key.

    Args:
        key: The key in the filter.
        kind: The kind of `Changed` that it is about.
        method: The notification that subscribers get.
        type: The type of the value at the key; a list of strings by default.
        accept: `async def accept(ctx, value)` returns the part of the value that is granted: a list of keys, True for
            all, None for nothing.
        describe: `async def describe(ctx, key)` returns the params of a notification, or None to send none.
    """

    key: str
    kind: str
    method: str
    type: Any = list[str]
    accept: Callable[[Context[Any], Any], Awaitable[Any]]
    describe: Callable[[Context[Any], str | None], Awaitable[dict[str, Any] | None]]


class BaseExtension(Generic[ServerT]):
    """What a server reads of an extension. `gemel.Extension`, which users derive from, is the one for `Server`."""

    id: ClassVar[str] = ""
    eras: ClassVar[Sequence[EraName]] = ("2025", "2026")
    result_types: ClassVar[Sequence[str]] = ()

    @property
    def settings(self) -> Mapping[str, Any]:
        """Its settings in the server's capabilities; `{}` for none."""
        return {}

    def capabilities(self, era: EraName) -> Mapping[str, Any]:
        """Return what it adds to the server's capabilities in an era: by default its settings, under `extensions`.

        Args:
            era: The era of the client.

        Returns:
            Members of the capabilities by their names in the protocol.
        """
        return {"extensions": {self.id: dict(self.settings)}}

    def requests(self) -> Iterable[Method]:
        """Return the requests that it serves."""
        return ()

    def notifications(self) -> Iterable[Method]:
        """Return the notifications that it handles."""
        return ()

    def topics(self) -> Iterable[Topic]:
        """Return what clients can subscribe to."""
        return ()

    def attach(self, server: ServerT) -> None:
        """Register the tools, prompts and resources of the extension; called once, when it is added.

        Args:
            server: The `Server` that it is added to.
        """

    def check(self) -> None:
        """Check that what was registered fits together; called when the server begins to serve.

        Raises:
            DefinitionError: It does not, so that the server doesn't start.
        """

    @asynccontextmanager
    async def lifespan(self, server: ServerT) -> AsyncIterator[None]:
        """Run around the time in which the server serves, as an async context manager; for work in the background.

        Args:
            server: The `Server` that it is added to.
        """
        yield

    async def call_tool(self, ctx: Context[Any], params: CallToolParams, call_next: CallTool) -> Any:
        """Run around every `tools/call`; the extension that was added first is outermost.

        Args:
            ctx: The context of the call.
            params: The params of the call.
            call_next: `await call_next(ctx, params)` calls the tool.

        Returns:
            The result of the call.
        """
        return await call_next(ctx, params)


class Extensions:
    """The extensions of one server."""

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch
        self._added: dict[str, BaseExtension[Any]] = {}
        #: The extensions that exist in an era, by their ids.
        self._by_era: dict[Era, dict[str, BaseExtension[Any]]] = {era: {} for era in ERAS.values()}
        #: The handler of `tools/call` without interceptions, once there is one.
        self._call: RequestHandler | None = None
        #: By the key of the filter: the extension's id, and the topic.
        self.topics: dict[str, tuple[str, Topic]] = {}
        self.requests: dict[str, Served] = {}
        self.notifications: dict[str, Served] = {}
        #: The ids of the extensions that have methods or topics: these names carry no prefix.
        self.with_methods: set[str] = set()

    @property
    def all(self) -> list[BaseExtension[Any]]:
        """The extensions."""
        return list(self._added.values())

    def add(self, extension: BaseExtension[Any]) -> None:
        """Add what an extension declares. Raises DefinitionError, and changes nothing then."""
        name, eras = extension.id, parse_eras(extension.eras)
        check_extension_id(name, type(extension).__name__)
        if name in self._added:
            raise DefinitionError(f"There is an extension {name!r} already")
        own_requests, own_notifications = list(extension.requests()), list(extension.notifications())
        for method in (*own_requests, *own_notifications):
            check_async(method.name, method.serve)
        requests = {method.name: self._served(name, eras, method) for method in own_requests}
        notifications = {
            method.name: Served(method.name, _handler(method), method.params, eras=eras) for method in own_notifications
        }
        topics = {topic.key: (name, topic) for topic in extension.topics()}
        for _, topic in topics.values():
            if not is_function(topic.accept, 2) or not is_function(topic.describe, 2):
                raise DefinitionError(
                    f"The topic {topic.key!r} of {name!r} needs `async def accept(ctx, value)` and `async def describe(ctx, key)`"
                )
            without_markers(topic.accept)
            without_markers(topic.describe)
        self._check(extension, requests, notifications, topics)
        self._added[name] = extension
        for era in eras:
            self._by_era[era][name] = extension
        if requests or notifications or topics:
            self.with_methods.add(name)
        self.requests.update(requests)
        self.notifications.update(notifications)
        self.topics.update(topics)
        self._dispatch.requests.update(requests)
        self._dispatch.notifications.update(notifications)
        self._dispatch.result_types.update(dict.fromkeys(extension.result_types, name))
        if self._call is not None:
            self._dispatch.requests[_CALL].handler = self._chain(self._call)

    def _check(
        self,
        extension: BaseExtension[Any],
        requests: Iterable[str],
        notifications: Iterable[str],
        topics: Iterable[str],
    ) -> None:
        dispatch = self._dispatch
        taken = [
            *(name for name in requests if name in METHODS or name in dispatch.requests),
            *(name for name in notifications if name in dispatch.notifications),
            *(kind for kind in extension.result_types if kind in dispatch.result_types or kind in _CORE_TYPES),
            *(key for key in topics if key in self.topics),
        ]
        if taken:
            raise DefinitionError(f"The extension {extension.id!r} brings {taken[0]!r}, which is taken already")

    def _served(self, name: str, eras: Sequence[Era], method: Method) -> Served:
        served = Served(
            method.name,
            self._dispatch.uncounted(_handler(method)) if method.waits else _handler(method),
            dict[str, Any] if method.params is None else method.params,
            eras=eras if method.eras is None else parse_eras(method.eras),
            extension_id=None if method.open else name,
            name_field=method.name_field,
        )
        if method.since is not None:
            served.revisions = {each: how for each, how in served.revisions.items() if each >= method.since}
        return served

    def capabilities(self, era: Era) -> dict[str, Any]:
        """What the extensions add to the capabilities in an era."""
        added: dict[str, Any] = {}
        for extension in self._by_era[era].values():
            added = merged(added, extension.capabilities(era.name))
        return added

    def applied(self, method: str, handler: RequestHandler) -> RequestHandler:
        """The handler of `tools/call` with all interceptions around it; every other one as it is."""
        if method != _CALL:
            return handler
        self._call = handler
        return self._chain(handler)

    def _chain(self, call: CallTool) -> CallTool:
        for extension in reversed(self._added.values()):
            if type(extension).call_tool is not BaseExtension.call_tool:
                call = _intercepted(extension, parse_eras(extension.eras), call)
        return call


def _handler(method: Method) -> RequestHandler:
    return for_connection(method.serve) if method.connection else method.serve


def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """The members of two capabilities; of two settings of one extension the second counts."""
    extensions = {**first.get("extensions", {}), **second.get("extensions", {})}
    return {**first, **second, **({"extensions": extensions} if extensions else {})}


_CALL = "tools/call"
_CORE_TYPES = ("complete", "input_required")


def _intercepted(extension: BaseExtension[Any], eras: Sequence[Era], call_next: CallTool) -> CallTool:
    async def intercept(ctx: Context[Any], params: CallToolParams) -> Any:
        return await extension.call_tool(ctx, params, call_next)

    by_era: dict[Era, CallTool] = {**dict.fromkeys(ERAS.values(), call_next), **dict.fromkeys(eras, intercept)}

    async def call(ctx: Context[Any], params: CallToolParams) -> Any:
        return await by_era[served_call(ctx).call.era](ctx, params)

    return call


async def accept_topics(
    ctx: Context[Any], requested: Mapping[str, Raw], topics: Mapping[str, tuple[str, Topic]]
) -> dict[str, tuple[Topic, Any]]:
    """The part of a filter that extensions define and grant, by key. Raises MissingClientCapability, InvalidParams."""
    granted: dict[str, tuple[Topic, Any]] = {}
    for key, (extension_id, topic) in topics.items():
        if key not in requested:
            continue
        require_client_extension(ctx, extension_id)
        try:
            value = msgspec.json.decode(requested[key], type=topic.type)
        except msgspec.MsgspecError as exc:
            raise InvalidParams(f"notifications.{key}: {shorten(str(exc))}") from None
        part = await topic.accept(ctx, value)
        if part is not None:
            granted[key] = (topic, part)
    return granted
