"""A limit for the size of results, as middleware. Knows results as JSON text, not who made them."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

import msgspec

from hinge.errors import InternalError
from hinge.options import METHOD_NAMES, check_values, whole
from hinge.schema.content import TextContent
from hinge.schema.tools import CallToolResult
from hinge.server.context import Context
from hinge.server.middleware.chain import CallNext

logger = logging.getLogger("hinge")


_OPTIONS = {"size": whole(1)._replace(advice="use bytes, 1 or more"), "methods": METHOD_NAMES}


class ResultLimit:
    """No result of more than `size` bytes leaves: `server.add_middleware(ResultLimit(1_000_000))`.

    A tool with a longer one fails, in words for the model, which may ask for less; another method is answered with an internal
    error. Nothing is cut, since half a result fits no schema. `methods` names those that are measured: calls of
    tools, by default. Measuring means that each such result is encoded twice.
    """

    def __init__(self, size: int, *, methods: Collection[str] = ("tools/call",)) -> None:
        check_values(locals(), _OPTIONS)
        self.size = size
        self._methods = frozenset(methods)

    async def __call__(self, ctx: Context[Any], call_next: CallNext) -> Any:
        """Pass on, and measure what comes back."""
        result = await call_next(ctx)
        if ctx.method not in self._methods or ctx.request_id is None:
            return result
        found = len(msgspec.json.encode(result))
        if found <= self.size:
            return result
        logger.warning("%s: a result of %d bytes is held back: %d are the limit", ctx.method, found, self.size)
        text = f"The result has {found} bytes, and {self.size} are the limit here: ask for less"
        if ctx.method == "tools/call":
            return CallToolResult(content=[TextContent(text=text)], is_error=True)
        raise InternalError(text)
