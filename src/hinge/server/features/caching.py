"""How long clients may keep what a server says, and with whom they may share it. For results, never for questions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import UNSET, Struct

from hinge.errors import DefinitionError
from hinge.schema.base import CacheableResult
from hinge.schema.methods import METHODS
from hinge.server.context import Context
from hinge.server.dispatch import RequestHandler

CacheScope = Literal["public", "private"]


class CacheHint(Struct, frozen=True):
    """How a result may be kept (CACHE-02): for `ttl` seconds, by its caller alone (`private`) or by all (`public`).

    A hint is no protection: what is `public` may reach callers that never asked this server (CACHE-11). Stateless
    clients hear of it; the handshake revisions have no words for it. Raises DefinitionError for a value that can't be.
    """

    ttl: float = 0
    scope: CacheScope = "private"

    def __post_init__(self) -> None:
        if type(self.ttl) not in (int, float) or not 0 <= self.ttl < math.inf:
            raise DefinitionError(f"ttl={self.ttl!r} is not possible: use seconds, 0 or more")
        if self.scope not in ("public", "private"):
            raise DefinitionError(f'scope={self.scope!r} is not possible: use "public" or "private"')

    def mark(self, result: CacheableResult) -> None:
        """Write the hint into a result, as far as that says nothing itself."""
        if result.ttl_ms is UNSET:
            result.ttl_ms = int(self.ttl * 1000)
        if result.cache_scope is UNSET:
            result.cache_scope = self.scope


class CacheHints:
    """The hints of one server, by method: one scope for all pages of a list (CACHE-09).

    Raises DefinitionError for a method whose results can't be kept (CACHE-01).
    """

    def __init__(self, hints: Mapping[str, CacheHint] | None) -> None:
        self._hints = dict(hints or {})
        can = [
            name for name, row in METHODS.items() if row.result is not None and issubclass(row.result, CacheableResult)
        ]
        for method in self._hints:
            if method not in can:
                raise DefinitionError(f"cache: results of {method!r} can't be kept; those of {', '.join(can)} can")

    def applied(self, method: str, handler: RequestHandler) -> RequestHandler:
        """The handler of a method, with its hint on each result."""
        hint = self._hints.get(method)
        if hint is None:
            return handler

        async def marked(ctx: Context[Any], params: Any) -> Any:
            result = await handler(ctx, params)
            hint.mark(result)
            return result

        return marked
