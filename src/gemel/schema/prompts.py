"""Prompts: listing and getting them.

https://modelcontextprotocol.io/specification/2025-11-25/server/prompts
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, UnsetType

from gemel.schema.base import Icon, Model, Page, Result
from gemel.schema.content import ContentBlock, Role, text_of


class PromptArgument(Model, kw_only=True):
    """An argument of a prompt; its values are strings."""

    name: str
    title: str | None = None
    description: str | None = None
    required: bool | None = None

    @property
    def display_name(self) -> str:
        """What user interfaces show: the title, or the name if there is none."""
        return self.title or self.name


class Prompt(Model, kw_only=True):
    """A prompt as it is listed.

    https://modelcontextprotocol.io/specification/2025-11-25/schema#prompt

    Args:
        name: The name that `prompts/get` uses.
        title: A name for people.
        description: What the prompt is for.
        arguments: Its arguments.
        icons: Icons for user interfaces.
        meta: `_meta` of the prompt.
    """

    name: str
    title: str | None = None
    description: str | None = None
    arguments: list[PromptArgument] | None = None
    icons: list[Icon] | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)

    @property
    def display_name(self) -> str:
        """What user interfaces show: the title, or the name if there is none."""
        return self.title or self.name


class ListPromptsResult(Page, kw_only=True):
    """A page of prompts."""

    prompts: list[Prompt]


class GetPromptParams(Model, kw_only=True):
    """Which prompt, with which arguments; all values are strings."""

    name: str
    arguments: dict[str, str] | None = None
    input_responses: Raw = Raw(b"")
    request_state: str | UnsetType = msgspec.UNSET


class PromptMessage(Model, kw_only=True):
    """A message of a prompt as it is sent. Functions may return `Message`, which makes one.

    https://modelcontextprotocol.io/specification/2025-11-25/schema#promptmessage

    Args:
        role: "user" or "assistant".
        content: One content block.
    """

    role: Role
    content: ContentBlock

    @property
    def text(self) -> str:
        """The text of a text block; empty for other blocks."""
        return text_of(self.content)


class GetPromptResult(Result, kw_only=True):
    """The messages of a prompt.

    https://modelcontextprotocol.io/specification/2025-11-25/schema#getpromptresult

    Args:
        messages: The messages, in order.
        description: What the prompt is for.
        meta: `_meta` of the result.
    """

    messages: list[PromptMessage]
    description: str | None = None

    @property
    def text(self) -> str:
        """The text of all messages, joined by line breaks."""
        return "\n".join(filter(None, (message.text for message in self.messages)))
