"""What a handler uses of its own server: its resources, tools and prompts, through the same middleware and visibility.

Knows contexts and results. Must not know registries.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from hinge.errors import HingeError, InvalidParams, ResourceNotFound, ToolError, shorten
from hinge.schema.base import Result
from hinge.schema.input_required import InputRequiredResult
from hinge.schema.tools import CallToolResult
from hinge.server.elicitation.elicit import InputRequired

ResultT = TypeVar("ResultT", bound=Result)

#: Calls within calls, at most: what goes deeper calls itself.
MOST_DEEP = 16


async def use(ctx: Any, method: str, params: dict[str, Any], kind: type[ResultT]) -> ResultT:
    """Serve a request of a handler's own, as a part of its call.

    Raises ToolError for what isn't there or doesn't fit, ResourceNotFound, and what the other handler raises.
    """
    if ctx.depth >= MOST_DEEP:
        raise HingeError(f"{method}: {MOST_DEEP} calls within calls are the limit: does it call itself?")
    if ctx.call.era == "2026" and ctx.call.id is not None:
        ctx.questions  # noqa: B018 - made now, so that both ask and remember in one place
    inner = ctx.replace(method=method, params=params)
    inner.depth = ctx.depth + 1
    inner.layers = ()
    try:
        result = await ctx.own(inner)
    except ResourceNotFound:
        raise
    except InvalidParams as exc:  # the caller asked for something else, and has made no mistake
        raise ToolError(str(exc)) from exc
    if isinstance(result, InputRequiredResult):
        raise InputRequired
    return _read(result, method, kind)


def _read(result: Any, method: str, kind: type[ResultT]) -> ResultT:
    if isinstance(result, kind):
        return result
    if isinstance(result, Result):
        raise HingeError(f"{method} gave a {type(result).__name__}, which only a client can go on with")
    try:
        return msgspec.json.decode(msgspec.json.encode(result), type=kind)
    except msgspec.ValidationError as exc:
        raise HingeError(f"{method}: its result doesn't fit the protocol: {shorten(str(exc))}") from None


async def call_tool(ctx: Any, name: str, arguments: dict[str, Any]) -> CallToolResult:
    """The result as a client reads it. Raises ToolError, with the tool's words, when it failed."""
    result = await use(ctx, "tools/call", {"name": name, "arguments": arguments}, CallToolResult)
    if isinstance(result.structured_content, Raw):
        read = msgspec.json.decode(result.structured_content)
        result = msgspec.structs.replace(result, structured_content=read)
    if result.is_error:
        raise ToolError(result.text or f"Tool {name!r} failed")
    return result
