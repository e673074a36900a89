"""What stands in for a content block that the peer's revision doesn't know: text, so that nothing is lost silently."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gemel.schema.base import Model
from gemel.schema.content import AudioContent, EmbeddedResource, ResourceLink, TextContent
from gemel.schema.sampling import ToolResultContent, ToolUseContent
from gemel.values.encoding import encode_value


def _audio(block: AudioContent, revision: str) -> TextContent:
    text = f"[Audio ({block.mime_type}) is left out: revision {revision} of the protocol has none]"
    return TextContent(text=text, annotations=block.annotations)


def _link(block: ResourceLink, revision: str) -> TextContent:
    kind = f" ({block.mime_type})" if block.mime_type else ""
    about = f"\n{block.description}" if block.description else ""
    return TextContent(text=f"{block.title or block.name}: {block.uri}{kind}{about}", annotations=block.annotations)


def _tool_use(block: ToolUseContent, revision: str) -> TextContent:
    return TextContent(text=f"[Call of tool {block.name}: {encode_value(block.input).decode()}]")


def _tool_result(block: ToolResultContent, revision: str) -> TextContent:
    text = "\n".join(_told(inner, revision) for inner in block.content)
    return TextContent(text=f"[{'Failure' if block.is_error else 'Result'} of a tool]\n{text}")


def _told(block: Any, revision: str) -> str:
    match block:
        case TextContent(text=text):
            return text
        case ResourceLink():
            return _link(block, revision).text
        case EmbeddedResource(resource=resource):
            return resource.text if resource.text is not None else f"[{resource.uri} is left out: it isn't text]"
    return f"[{block.mime_type} is left out: it isn't text]"


#: From the type of a block to the function that tells it in text: `(block, revision) -> TextContent`.
STAND_INS: Mapping[type[Model], Callable[[Any, str], TextContent]] = {
    AudioContent: _audio,
    ResourceLink: _link,
    ToolResultContent: _tool_result,
    ToolUseContent: _tool_use,
}
