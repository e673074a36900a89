"""Extensions of the protocol as objects: what one brings to a client, and how a client takes it in. Knows none by name.

The other half of `hinge.server.extensions`, in the same words. Off by default (EXT-05).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import msgspec
from msgspec import Raw, Struct

from hinge.client.middleware import ClientContext
from hinge.client.requests import Ask
from hinge.errors import CallTimeout, DefinitionError, InvalidParams, shorten
from hinge.protocol.eras.base import Era, EraName
from hinge.protocol.meta import is_extension_id
from hinge.schema.methods import METHODS

if TYPE_CHECKING:
    from hinge.client.client import Client

logger = logging.getLogger("hinge")

Serve: TypeAlias = Callable[[ClientContext, Any], Awaitable[Any]]

_CORE_TYPES = ("complete", "input_required")


class ClientMethod(Struct, frozen=True, kw_only=True):
    """A request or notification of an extension that the server sends: `async def serve(ctx, params) -> result`.

    `params` is the type that they are read into, a dict by default. Only handshake servers send requests.
    """

    name: str
    serve: Serve
    params: Any = None


class SentMethod(Struct, frozen=True, kw_only=True):
    """A request of an extension that the client sends, by `client.request(name, …)`: what must be known of it.

    `name_field` is the member that the header `Mcp-Name` repeats over HTTP, if there is one. `safe` says that running it
    twice does no harm. `may_ask` says that it may be answered with questions to the user.
    """

    name: str
    name_field: str | None = None
    safe: bool = False
    may_ask: bool = False


class ClientExtension:
    """The base of an extension of a client: override what it has. One object may be added to one client.

    Its id has a prefix, like `com.example/search` (EXT-02). `settings` stand in the client's capabilities: in the handshake,
    or in each stateless request (EXT-01, EXT-03). Middleware of its own is added in `attach`.
    """

    id: ClassVar[str] = ""
    #: In which eras it exists; in others it isn't declared.
    eras: ClassVar[Sequence[EraName]] = ("2025", "2026")
    #: The `resultType`s that it knows: `resolve` is given results of these.
    result_types: ClassVar[Sequence[str]] = ()

    @property
    def settings(self) -> Mapping[str, Any]:
        """What servers are told about it; `{}` for nothing."""
        return {}

    def sends(self) -> Iterable[SentMethod]:
        """The requests that it sends, as far as there is something to be known of them."""
        return ()

    def requests(self) -> Iterable[ClientMethod]:
        """The requests of handshake servers that it answers."""
        return ()

    def notifications(self) -> Iterable[ClientMethod]:
        """The notifications that it hears."""
        return ()

    def attach(self, client: Client) -> None:
        """Called once, when it is added."""

    async def resolve(self, ctx: ClientContext, result: dict[str, Any]) -> Any:
        """From a result of one of `result_types` to what the caller of the request gets: JSON text, a dict, or a struct.

        It is read like any result of `ctx.method`. What the caller allows for it is `ctx.total`, in seconds; it is kept.
        """
        raise NotImplementedError(f"{type(self).__name__} has result_types and no resolve()")


class ClientExtensions:
    """The extensions of one client."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._added: dict[str, ClientExtension] = {}
        self._types: dict[str, ClientExtension] = {}
        self._requests: dict[str, tuple[ClientExtension, ClientMethod]] = {}
        self._notifications: dict[str, tuple[ClientExtension, ClientMethod]] = {}
        #: By their names.
        self.sent: dict[str, SentMethod] = {}

    def add(self, extension: ClientExtension) -> None:
        """Take in what an extension declares. Raises DefinitionError, and changes nothing then."""
        if not isinstance(extension, ClientExtension):
            raise DefinitionError(f"{extension!r} is no extension for a client: derive one from ClientExtension")
        name = extension.id
        if not is_extension_id(name):
            raise DefinitionError(
                f"The extension {type(extension).__name__} has the id {shorten(name)!r}: it needs a prefix and a name, "
                "as in com.example/search"
            )
        if name in self._added:
            raise DefinitionError(f"There is an extension {name!r} already")
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
            if inspect.isfunction(method.serve) and not inspect.iscoroutinefunction(method.serve):
                raise DefinitionError(
                    f"{method.name!r} of {name!r}: write `async def {method.serve.__name__}(ctx, params)`"
                )
        self._added[name] = extension
        self.sent.update({method.name: method for method in sent})
        self._requests.update({method.name: (extension, method) for method in requests})
        self._notifications.update({method.name: (extension, method) for method in notifications})
        self._types.update(dict.fromkeys(extension.result_types, extension))

    def is_safe(self, method: str) -> bool:
        """Whether running a request of an extension twice does no harm."""
        return method in self.sent and self.sent[method].safe

    def settings(self, era: Era) -> dict[str, dict[str, Any]]:
        """What is declared in an era."""
        return {name: dict(one.settings) for name, one in self._added.items() if era.name in one.eras}

    async def resolve(self, ask: Ask, raw: Raw, kind: str, left: float | None) -> Raw | None:
        """What an extension makes of a result of a type of its own within `left` seconds; None if no one knows the type."""
        extension, client = self._types.get(kind), self._client
        if extension is None or client.era not in extension.eras:
            return None
        ctx = ClientContext.of(client, ask).replace(total=left)
        limit = asyncio.timeout(left)
        try:
            async with limit:
                found = await extension.resolve(ctx, msgspec.json.decode(raw))
        except TimeoutError as exc:
            if not limit.expired():
                raise
            raise CallTimeout(f"{ask.method}: {extension.id} brought no result within {left:.1f} seconds") from exc
        return found if isinstance(found, Raw) else Raw(msgspec.json.encode(found))

    def answering(self, method: str, era: EraName) -> ClientMethod | None:
        """What answers a request of the server."""
        return _in_era(self._requests.get(method), era)

    def hearing(self, method: str, era: EraName) -> ClientMethod | None:
        """What hears a notification of the server."""
        return _in_era(self._notifications.get(method), era)


def _in_era(found: tuple[ClientExtension, ClientMethod] | None, era: EraName) -> ClientMethod | None:
    return found[1] if found is not None and era in found[0].eras else None


async def serve(method: ClientMethod, ctx: ClientContext) -> Any:
    """Read the params and run what serves the method. Raises InvalidParams for params that don't fit."""
    params: Any = ctx.params
    if method.params is not None:
        validate = getattr(method.params, "model_validate", None)
        try:
            params = validate(params) if validate is not None else msgspec.convert(params, method.params)
        except ValueError as exc:  # msgspec's and pydantic's alike
            detail = shorten(str(exc)) if isinstance(exc, msgspec.MsgspecError) else ""
            raise InvalidParams("Invalid request parameters", detail) from exc
    result = await method.serve(ctx, params)
    dump = getattr(result, "model_dump", None)
    if dump is not None:
        return dump(mode="json", by_alias=True, exclude_none=True)
    return {} if result is None else result
