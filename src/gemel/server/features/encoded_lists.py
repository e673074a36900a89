"""Lists that are encoded once per change and revision, for callers that all see the same."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

from msgspec import Raw

from gemel.protocol.revisions.adapt import shape
from gemel.schema.methods import ItemList
from gemel.server.context import Context, served_call
from gemel.server.dispatch import RequestHandler
from gemel.server.features.visibility import Entries
from gemel.values.encoding import encode_value


def encoded_once(
    of: ItemList, handler: RequestHandler, entries: Entries[Any], is_final: Callable[[], bool]
) -> RequestHandler:
    """A handler of a list whose first page holds JSON text in place of its items.

    Where the list depends on the caller, where code of the user sees the result (`is_final` returns False), and where the
    request is a part of another one, the result has the items themselves.

    Args:
        of: The list.
        handler: The handler that makes the result.
        entries: What is listed.
        is_final: Whether nothing looks into the result before it is sent.
    """

    async def serve(ctx: Context[Any], params: Any) -> Any:
        if params.cursor is not None or entries.restricted or served_call(ctx).root is not None or not is_final():
            return await handler(ctx, params)
        key = of.method, ctx.protocol_version
        encoded = entries.encoded  # a change in another thread replaces it
        page = encoded.get(key)
        if page is None:
            page = copy(shape(await handler(ctx, params), ctx.protocol_version))
            setattr(page, of.field, Raw(encode_value(getattr(page, of.field))))
            encoded[key] = page
        return copy(page)  # cache hints are written into it

    return serve
