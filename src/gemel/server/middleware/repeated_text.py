"""Leave out the text that structured content repeats: `Server(omit_repeated_text=True)`.

Arrays and other values keep their text, which clients of older revisions read: SEP-2106, "Backward Compatibility".
"""

from __future__ import annotations

import copy
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from gemel.schema.content import TextContent
from gemel.schema.tools import CallToolResult
from gemel.server.context import Context
from gemel.server.dispatch import CallNext
from gemel.values.encoding import encode_value, ordered_text

#: Larger JSON that is written in two ways counts as different, in bytes: decoding it would occupy the event loop.
_MAX_COMPARED = 1024 * 1024


async def omit_repeated_text(ctx: Context[Any], call_next: CallNext) -> Any:
    """Serve a request. The innermost middleware: results are shaped for the caller's revision already.

    Clients that don't know structured content get none, so that they keep the text.
    """
    result = await call_next(ctx)
    if ctx.method != "tools/call":
        return result
    if isinstance(result, CallToolResult):
        structured, content = result.structured_content, result.content
        if structured is UNSET or result.is_error or not is_repeated(content, structured):
            return result
        shortened = copy.copy(result)
        shortened.content = content[1:]
        return shortened
    if isinstance(result, dict) and "structuredContent" in result and not result.get("isError"):
        structured, content = result["structuredContent"], _plain(result.get("content"))
        if isinstance(content, list) and is_repeated(content, structured):
            return {**result, "content": content[1:]}
    return result


def is_repeated(content: list[Any], structured: object) -> bool:
    """Whether the first block is plain text that holds the same JSON object as the structured content."""
    text = _text(content[0]) if content else None
    return text is not None and text.lstrip().startswith("{") and _equal(text, structured)


def same_json(text: str, structured: object) -> bool:
    """Whether a text holds the same JSON as structured content, which may be wrapped for an older revision."""
    if isinstance(structured, dict) and structured.keys() == {"result"} and _equal(text, structured["result"]):
        return True
    return _equal(text, structured)


def _equal(text: str, structured: object) -> bool:
    written = encode_value(structured)
    if text.encode("utf-8", "replace") == written:
        return True
    if max(len(text), len(written)) > _MAX_COMPARED:
        return False
    try:
        return ordered_text(msgspec.json.decode(text)) == ordered_text(msgspec.json.decode(written))
    except (msgspec.MsgspecError, RecursionError):
        return False


def _text(block: Any) -> str | None:
    """The text of a text block without annotations and `_meta`; None for others."""
    if isinstance(block, TextContent):
        return block.text if block.annotations is None and block.meta is None else None
    is_text = isinstance(block, dict) and block.keys() == {"type", "text"} and block["type"] == "text"
    return block["text"] if is_text else None


def _plain(value: object) -> Any:
    return msgspec.json.decode(value) if isinstance(value, Raw) else value
