"""Sampling: requests to the client's model."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec
from msgspec import UNSET

from gemel.schema.base import Model, Result
from gemel.schema.content import (
    AudioContent,
    Content,
    ContentBlock,
    ImageContent,
    Role,
    TextContent,
    contents_of,
    shown,
    stand_in,
    text_of,
)
from gemel.schema.tools import Tool
from gemel.values.encoding import encode_value


class ToolUseContent(Model, Content, tag_field="type", tag="tool_use", kw_only=True):
    """A tool call that the model asks for."""

    #: The kind of block.
    type: ClassVar[Literal["tool_use"]] = "tool_use"
    #: The id that the result refers to.
    id: str
    #: The name of the tool.
    name: str
    #: The arguments.
    input: dict[str, Any]
    #: `_meta` of the block.
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)

    def _shown(self) -> str:
        return f"[calls {self.name} with {msgspec.json.encode(self.input).decode()}]"

    def _stand_in(self, revision: str) -> TextContent:
        return TextContent(text=f"[Call of tool {self.name}: {encode_value(self.input).decode()}]")


class ToolResultContent(Model, Content, tag_field="type", tag="tool_result", kw_only=True):
    """The result of a tool call; a message with one holds no other blocks."""

    #: The kind of block.
    type: ClassVar[Literal["tool_result"]] = "tool_result"
    #: The `id` of the tool call.
    tool_use_id: str
    #: The result for the model.
    content: list[ContentBlock]
    #: The result for programs, any JSON value.
    structured_content: Any = UNSET
    #: Whether the tool failed.
    is_error: bool = False
    #: `_meta` of the block.
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)

    def _shown(self) -> str:
        return f"[{self.tool_use_id} answered: {' '.join(map(shown, self.content))}]"

    def _stand_in(self, revision: str) -> TextContent:
        text = "\n".join(_told(block, revision) for block in self.content)
        return TextContent(text=f"[{'Failure' if self.is_error else 'Result'} of a tool]\n{text}")


def _told(block: ContentBlock, revision: str) -> str:
    contents = contents_of(block)
    if contents is None:
        return stand_in(block, revision).text
    if contents.text is not None:
        return contents.text
    return f"[{contents.uri or contents.mime_type} is left out: it isn't text]"


SamplingBlock = TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent


class SamplingMessage(Model, kw_only=True):
    """A message of a conversation with a model.

    Args:
        role: Who said it.
        content: A block, or several.
        meta: `_meta` of the message.
    """

    role: Role
    content: SamplingBlock | list[SamplingBlock]
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)

    @property
    def text(self) -> str:
        """The text blocks, joined by line breaks."""
        return text_of(self.content)


class ModelHint(Model, kw_only=True):
    """Part of a model's name."""

    name: str | None = None


class ModelPreferences(Model, kw_only=True):
    """Which model is preferred: hints in order, priorities from 0 to 1."""

    hints: list[ModelHint] | None = None
    cost_priority: float | None = None
    speed_priority: float | None = None
    intelligence_priority: float | None = None


class ToolChoice(Model, kw_only=True):
    """Whether the model may, must or must not use tools; `auto` if absent."""

    #: "auto": it may use tools; "required": it must; "none": it must not.
    mode: Literal["auto", "required", "none"] | None = None


class CreateMessageParams(Model, kw_only=True):
    """Params of `sampling/createMessage`.

    Args:
        messages: The conversation so far.
        max_tokens: Tokens of the answer at most.
        model_preferences: Which model is preferred.
        system_prompt: The system prompt.
        include_context: Context of MCP servers to include.
        temperature: The sampling temperature.
        stop_sequences: Texts that end the answer.
        metadata: Passed on to the model's provider.
        tools: Tools that the model may use.
        tool_choice: Whether it may, must or must not use them.
    """

    messages: list[SamplingMessage]
    max_tokens: int
    model_preferences: ModelPreferences | None = None
    system_prompt: str | None = None
    include_context: Literal["none", "thisServer", "allServers"] | None = None
    temperature: float | None = None
    stop_sequences: list[str] | None = None
    metadata: dict[str, Any] | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None


class CreateMessageResult(Result, kw_only=True):
    """Result of `sampling/createMessage`.

    Args:
        role: Who said it.
        content: A block, or several.
        model: The name of the model.
        stop_reason: Why the answer ended.
        meta: `_meta` of the result.
    """

    role: Role
    content: SamplingBlock | list[SamplingBlock]
    model: str
    stop_reason: str | None = None

    @property
    def text(self) -> str:
        """The text blocks, joined by line breaks."""
        return text_of(self.content)
