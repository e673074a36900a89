"""What tools, prompts and resources share when a function is registered and when it returns something."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast, get_args

from hinge.schema.base import Icon
from hinge.schema.content import ContentBlock, TextContent
from hinge.server.context import Context
from hinge.server.media import Media
from hinge.server.output import is_content

_BLOCKS: tuple[type, ...] = get_args(ContentBlock)
_SENT: tuple[type, ...] = (*_BLOCKS, Media)


def is_context(annotation: Any) -> bool:
    """Whether a parameter so annotated gets the call's Context."""
    return annotation is Context or getattr(annotation, "__origin__", None) is Context


def gives_content(annotation: Any) -> bool:
    """Whether values of this type become content by themselves: no schema is promised for them."""
    return is_content(annotation) or (isinstance(annotation, type) and issubclass(annotation, Media))


def icons_of(icons: Sequence[Icon | str] | None) -> list[Icon] | None:
    """Icons as given: an Icon, or just its address."""
    if icons is None:
        return None
    return [Icon(src=icon) if isinstance(icon, str) else icon for icon in icons]


def as_blocks(value: Any) -> list[ContentBlock] | None:
    """Content blocks and media (one, or a list of them, texts among them), and plain text; None for any other value."""
    if isinstance(value, str):
        return [TextContent(text=value)]
    if isinstance(value, _BLOCKS):
        return [cast("ContentBlock", value)]
    if value is None:
        return []
    if isinstance(value, Media):
        return [value.content()]
    if isinstance(value, list | tuple) and value and any(isinstance(item, _SENT) for item in value):
        blocks: list[ContentBlock] = []
        for item in cast("list[Any]", value):
            found = as_blocks(item)
            if found is None:
                return None
            blocks.extend(found)
        return blocks
    return None
