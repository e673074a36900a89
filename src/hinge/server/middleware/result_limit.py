"""Limit on the size of results, as middleware."""

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
    """Middleware that rejects large results: `server.add_middleware(ResultLimit(1_000_000))`.

    A tool call fails with a text that tells the model to ask for less; other methods fail with an internal error. Results
    are not shortened, since a part would not fit its schema. Each measured result is encoded twice.

    Args:
        size: The limit in bytes of JSON, 1 or more.
        methods: The methods whose results are measured.

    Raises:
        DefinitionError: A value out of range.
    """

    def __init__(self, size: int, *, methods: Collection[str] = ("tools/call",)) -> None:
        check_values(locals(), _OPTIONS)
        self.size = size
        self._methods = frozenset(methods)

    async def __call__(self, ctx: Context[Any], call_next: CallNext) -> Any:
        """Serve the request and measure the result.

        Args:
            ctx: The context of the request.
            call_next: The rest of the chain.

        Returns:
            The result, or the result of a failed tool call in its place.

        Raises:
            InternalError: The result of another method is too large.
        """
        result = await call_next(ctx)
        if ctx.method not in self._methods or ctx.request_id is None:
            return result
        size = len(msgspec.json.encode(result))
        if size <= self.size:
            return result
        logger.warning("%s: rejected a result of %d bytes, the limit is %d", ctx.method, size, self.size)
        text = f"The result has {size} bytes, more than the limit of {self.size}: ask for less"
        if ctx.method == "tools/call":
            return CallToolResult(content=[TextContent(text=text)], is_error=True)
        raise InternalError(text)
