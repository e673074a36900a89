"""Asking the client's model (SAMP-01…SAMP-13)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec
from msgspec import UNSET

from hinge.schema.base import Model, Result
from hinge.schema.content import AudioContent, ContentBlock, ImageContent, Role, TextContent, text_of
from hinge.schema.tools import Tool


class ToolUseContent(Model, tag_field="type", tag="tool_use", kw_only=True):
    """The model wants a tool called."""

    type: ClassVar[Literal["tool_use"]] = "tool_use"
    id: str
    name: str
    input: dict[str, Any]
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


class ToolResultContent(Model, tag_field="type", tag="tool_result", kw_only=True):
    """What the tool answered; stands alone with its like in a message (SAMP-06)."""

    type: ClassVar[Literal["tool_result"]] = "tool_result"
    tool_use_id: str
    content: list[ContentBlock]
    structured_content: Any = UNSET
    is_error: bool = False
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


SamplingBlock = TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent


class SamplingMessage(Model, kw_only=True):
    """One message: a block, or several."""

    role: Role
    content: SamplingBlock | list[SamplingBlock]
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)

    @property
    def text(self) -> str:
        """All text blocks, a line break between them."""
        return text_of(self.content)


class ModelHint(Model, kw_only=True):
    """Part of a model's name."""

    name: str | None = None


class ModelPreferences(Model, kw_only=True):
    """Which model is wanted: hints in order, priorities from 0 to 1 (SAMP-11)."""

    hints: list[ModelHint] | None = None
    cost_priority: float | None = None
    speed_priority: float | None = None
    intelligence_priority: float | None = None


class ToolChoice(Model, kw_only=True):
    """Whether the model may, must or must not use tools; `auto` when absent (SAMP-08)."""

    mode: Literal["auto", "required", "none"] | None = None


class CreateMessageParams(Model, kw_only=True):
    """What to ask the model."""

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
    """What the model answered."""

    role: Role
    content: SamplingBlock | list[SamplingBlock]
    model: str
    stop_reason: str | None = None

    @property
    def text(self) -> str:
        """All text blocks, a line break between them."""
        return text_of(self.content)
