"""Protocol extensions of a client: the base class, and the registry of one client. All are off by default.

See https://modelcontextprotocol.io/specification/draft/extensions. The server's side is `gemel.extensions.base`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import msgspec
from msgspec import Raw, Struct

from gemel.client.methods import ClientContext, ClientMethods
from gemel.client.middleware import ClientMiddleware
from gemel.errors import CallTimeout, DefinitionError, InvalidParams, shorten
from gemel.options import is_async, is_function
from gemel.protocol.eras.base import Era, EraName
from gemel.protocol.eras.detect import ERAS, parse_eras
from gemel.protocol.meta import check_extension_id
from gemel.schema.lifecycle import ClientCapabilities
from gemel.schema.methods import METHODS
from gemel.timeouts import time_limit
from gemel.values.encoding import encode_value

logger = logging.getLogger("gemel")

Serve: TypeAlias = Callable[[ClientContext, Any], Awaitable[Any]]

_CORE_TYPES = ("complete", "input_required")


class ClientMethod(Struct, frozen=True, kw_only=True):
    """A request or notification of an extension that the server sends. Only handshake servers send requests.

    Attributes:
        name: The method.
        serve: `async def serve(ctx, params) -> result`.
        params: The type that the params are read into; a dict by default.
    """

    name: str
    serve: Serve
    params: Any = None


class SentMethod(Struct, frozen=True, kw_only=True):
    """A request of an extension that the client sends with `client.request(name, …)`.

    Attributes:
        name: The method.
        name_field: The member of the params that the header `Mcp-Name` repeats over HTTP, if there is one.
        safe: Whether the request may be repeated when it is unknown whether it ran.
        may_ask: Whether the result may be of type `input_required`.
    """

    name: str
    name_field: str | None = None
    safe: bool = False
    may_ask: bool = False


class ClientExtension:
    """The base class of protocol extensions of a client. An object belongs to one client.

    Attributes:
        id: The id, with a prefix, like "com.example/search".
        eras: The eras in which it exists; in others it is not declared.
        result_types: The values of `resultType` whose results `resolve` gets.
    """

    id: ClassVar[str] = ""
    eras: ClassVar[Sequence[EraName]] = ("2025", "2026")
    result_types: ClassVar[Sequence[str]] = ()

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings in the capabilities of the client; `{}` by default."""
        return {}

    def declare(self, capabilities: ClientCapabilities, era: EraName) -> ClientCapabilities:
        """Declare the extension: by default its settings, under `extensions`.

        Args:
            capabilities: What the client declares without it.
            era: The era of the server.

        Returns:
            What the client declares with it.
        """
        extensions = {**(capabilities.extensions or {}), self.id: dict(self.settings)}
        return msgspec.structs.replace(capabilities, extensions=extensions)

    def sends(self) -> Iterable[SentMethod]:
        """The requests that it sends, if anything must be known about them."""
        return ()

    def requests(self) -> Iterable[ClientMethod]:
        """The requests of handshake servers that it serves."""
        return ()

    def notifications(self) -> Iterable[ClientMethod]:
        """The notifications that it serves."""
        return ()

    def middleware(self) -> Iterable[ClientMiddleware]:
        """The middleware that it adds to the client."""
        return ()

    def attach(self, client: ClientMethods) -> None:
        """Prepare for a client; called once, when the extension is added.

        Args:
            client: The client, which is not connected yet.
        """

    async def close(self) -> None:
        """End what runs in the background; called when the client is closed. It may be opened again."""

    async def resolve(self, ctx: ClientContext, result: dict[str, Any]) -> Any:
        """Turn a result of one of `result_types` into the result of the request.

        Args:
            ctx: The request; `ctx.total` is the time that is left in seconds, which is enforced.
            result: The result as it was received.

        Returns:
            A dict, a struct or JSON text, which is read like any result of `ctx.method`.

        Raises:
            NotImplementedError: The extension has `result_types`, but no `resolve`.
        """
        raise NotImplementedError(f"{type(self).__name__} has result_types and no resolve()")


def declared_extension(extension_id: str, settings: Mapping[str, Any] | None = None) -> ClientExtension:
    """Make an extension that the client only declares, such as that of a host which shows the pages of MCP Apps.

    Args:
        extension_id: The id, with a prefix, like "com.example/search".
        settings: The settings in the capabilities of the client. Default: none.

    Returns:
        The extension, for `Client(target, extensions=[…])`.

    Example:
        >>> shows_pages = declared_extension(Apps.id, {"mimeTypes": ["text/html;profile=mcp-app"]})
    """
    given = dict(settings or {})

    class Declared(ClientExtension):
        id = extension_id

        @property
        def settings(self) -> Mapping[str, Any]:
            return given

    return Declared()


class _ExtensionsOfEra:
    """The extensions that exist in one era, and what they serve by name."""

    def __init__(self) -> None:
        self.extensions: list[ClientExtension] = []
        self.requests: dict[str, ClientMethod] = {}
        self.notifications: dict[str, ClientMethod] = {}
        self.types: dict[str, ClientExtension] = {}


class ClientExtensions:
    """The extensions of one client."""

    def __init__(self, client: ClientMethods) -> None:
        self._client = client
        self._added: dict[str, ClientExtension] = {}
        self._by_era = {era: _ExtensionsOfEra() for era in ERAS.values()}
        #: The names that are taken: of requests, notifications and result types.
        self._requests: set[str] = set()
        self._notifications: set[str] = set()
        self._types: set[str] = set()
        #: The requests that they send, by name.
        self.sent: dict[str, SentMethod] = {}

    def add(self, extension: ClientExtension) -> None:
        """Add an extension. Raises DefinitionError, and changes nothing then."""
        if not isinstance(extension, ClientExtension):
            raise DefinitionError(f"{extension!r} is not an extension for a client: derive one from ClientExtension")
        name = extension.id
        check_extension_id(name, type(extension).__name__)
        if name in self._added:
            raise DefinitionError(f"There is an extension {name!r} already")
        eras = parse_eras(extension.eras)
        sent, requests = list(extension.sends()), list(extension.requests())
        notifications = list(extension.notifications())
        taken = [
            *(method.name for method in sent if method.name in METHODS or method.name in self.sent),
            *(method.name for method in requests if method.name in METHODS or method.name in self._requests),
            *(method.name for method in notifications if method.name in METHODS or method.name in self._notifications),
            *(kind for kind in extension.result_types if kind in self._types or kind in _CORE_TYPES),
        ]
        if taken:
            raise DefinitionError(f"The extension {name!r} brings {taken[0]!r}, which is taken already")
        for method in (*requests, *notifications):
            if (inspect.isfunction(method.serve) and not is_async(method.serve)) or not is_function(method.serve, 2):
                called = getattr(method.serve, "__name__", "serve")
                raise DefinitionError(f"{method.name!r} of {name!r}: write `async def {called}(ctx, params)`")
        self._added[name] = extension
        self.sent.update({method.name: method for method in sent})
        self._requests.update(method.name for method in requests)
        self._notifications.update(method.name for method in notifications)
        self._types.update(extension.result_types)
        for era in eras:
            of_era = self._by_era[era]
            of_era.extensions.append(extension)
            of_era.requests.update({method.name: method for method in requests})
            of_era.notifications.update({method.name: method for method in notifications})
            of_era.types.update(dict.fromkeys(extension.result_types, extension))

    def is_safe(self, method: str) -> bool:
        """Whether a request of an extension may be repeated."""
        return method in self.sent and self.sent[method].safe

    def declare(self, capabilities: ClientCapabilities, era: Era) -> ClientCapabilities:
        """What a client declares in an era, with all extensions that exist there."""
        for extension in self._by_era[era].extensions:
            capabilities = extension.declare(capabilities, era.name)
        return capabilities

    async def close(self) -> None:
        """End what extensions run in the background."""
        for extension in self._added.values():
            await extension.close()

    async def resolve(self, request: ClientContext, raw: Raw, kind: str, seconds: float | None) -> Raw | None:
        """What an extension makes of a result of its own type within `left` seconds; None if the type is unknown."""
        extension = self._by_era[ERAS[self._client.era]].types.get(kind)
        if extension is None:
            return None
        limit: asyncio.Timeout | None = None
        try:
            async with time_limit(seconds) as limit:
                resolved = await extension.resolve(request.replace(total=seconds), msgspec.json.decode(raw))
        except TimeoutError as exc:
            if limit is None or not limit.expired():
                raise
            raise CallTimeout(f"{request.method}: {extension.id} has no result after {seconds:.1f} seconds") from exc
        return resolved if isinstance(resolved, Raw) else Raw(encode_value(resolved))

    def request_method(self, method: str, era: Era) -> ClientMethod | None:
        """What serves a request of the server."""
        return self._by_era[era].requests.get(method)

    def notification_method(self, method: str, era: Era) -> ClientMethod | None:
        """What serves a notification of the server."""
        return self._by_era[era].notifications.get(method)


async def serve(method: ClientMethod, ctx: ClientContext) -> Any:
    """Read the params and call `serve` of an extension's method. Raises InvalidParams for invalid params."""
    params: Any = ctx.params
    if method.params is not None:
        validate = getattr(method.params, "model_validate", None)
        try:
            params = validate(params) if validate is not None else msgspec.convert(params, method.params)
        except ValueError as exc:  # of msgspec and of pydantic
            detail = shorten(str(exc)) if isinstance(exc, msgspec.MsgspecError) else ""
            raise InvalidParams("Invalid request parameters", detail) from exc
    result = await method.serve(ctx, params)
    dump = getattr(result, "model_dump", None)
    if dump is not None:
        return dump(mode="json", by_alias=True, exclude_none=True)
    return {} if result is None else result
