"""Cache hints: how long clients may keep a result (`ttlMs`) and with whom they may share it (`cacheScope`).

Only the stateless revision has them: https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/caching

1. A result that sets them itself keeps them.
2. A read that continues an earlier round (with answers or request state) is not cached.
3. A list that depends on the caller is private.
4. The hint of the resource, then the server's hint for the method.
5. Otherwise the protocol's default: not cached, private.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from gemel.errors import DefinitionError
from gemel.schema.base import CacheableResult
from gemel.schema.methods import CACHEABLE
from gemel.schema.resources import ReadResourceParams
from gemel.server.context import Context
from gemel.server.dispatch import RequestHandler

CacheScope = Literal["public", "private"]


class CacheHint(Struct, frozen=True):
    """How clients may cache a result: `Server(cache={"tools/list": CacheHint(60)})`.

    Sent to clients of the stateless revision:
    https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/caching
    A hint protects nothing: a public result may reach callers that never asked this server.

    Args:
        ttl: Seconds for which clients may keep the result; 0 means not at all.
        scope: "private": only for the caller it was sent to; "public": also for others.

    Raises:
        DefinitionError: A ttl below 0 or not finite, or another scope.
    """

    ttl: float = 0
    scope: CacheScope = "private"

    def __post_init__(self) -> None:
        if type(self.ttl) not in (int, float) or not 0 <= self.ttl < math.inf:
            raise DefinitionError(f"ttl={self.ttl!r} is not possible: use seconds, 0 or more")
        if self.scope not in ("public", "private"):
            raise DefinitionError(f'scope={self.scope!r} is not possible: use "public" or "private"')


def resource_hint(ttl: float | None, scope: CacheScope | None) -> CacheHint | None:
    """The hint of a resource's options; None if they give none. Raises DefinitionError."""
    return None if ttl is None and scope is None else CacheHint(ttl=ttl or 0, scope=scope or "private")


def apply_hint(hint: CacheHint | None, result: CacheableResult) -> None:
    """Write a hint into a result where the result itself says nothing."""
    if hint is not None and result.ttl_ms is UNSET:
        result.ttl_ms = int(hint.ttl * 1000)
    if hint is not None and result.cache_scope is UNSET:
        result.cache_scope = hint.scope


def apply_to_read(hint: CacheHint | None, result: CacheableResult, params: ReadResourceParams) -> None:
    """Write the cache fields of a resource that was read."""
    if params.request_state is not UNSET or len(memoryview(params.input_responses)):
        result.ttl_ms, result.cache_scope = 0, "private"
    else:
        apply_hint(hint, result)


def list_scope(depends_on_caller: bool) -> CacheScope | UnsetType:
    """The scope of a list; UNSET leaves it to the server's hint."""
    return "private" if depends_on_caller else UNSET


class CacheHints:
    """The hints of one server, by method; one scope for all pages of a list.

    Raises DefinitionError for a method whose results can't be cached.
    """

    def __init__(self, hints: Mapping[str, CacheHint] | None) -> None:
        self._hints = dict(hints or {})
        for method in self._hints:
            if method not in CACHEABLE:
                raise DefinitionError(
                    f"cache: results of {method!r} can't be cached; those of {', '.join(CACHEABLE)} can"
                )

    def applied(self, method: str, handler: RequestHandler) -> RequestHandler:
        """The handler of a method, with its hint on each result."""
        hint = self._hints.get(method)
        if hint is None:
            return handler

        async def with_hint(ctx: Context[Any], params: object) -> Any:
            result = await handler(ctx, params)
            apply_hint(hint, result)
            return result

        return with_hint
