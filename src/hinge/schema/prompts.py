"""Prompts: listing and getting them (PRM-01…PRM-05)."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, UnsetType

from hinge.schema.base import Icon, Model, Page, Result
from hinge.schema.content import ContentBlock, Role, text_of


class PromptArgument(Model, kw_only=True):
    """One argument of a prompt; its values are strings."""

    name: str
    title: str | None = None
    description: str | None = None
    required: bool | None = None


class Prompt(Model, kw_only=True):
    """A prompt as it is listed."""

    name: str
    title: str | None = None
    description: str | None = None
    arguments: list[PromptArgument] | None = None
    icons: list[Icon] | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


class ListPromptsResult(Page, kw_only=True):
    """A page of prompts."""

    prompts: list[Prompt]


class GetPromptParams(Model, kw_only=True):
    """Which prompt, with which arguments; all values are strings (PRM-03)."""

    name: str
    arguments: dict[str, str] | None = None
    input_responses: Raw = Raw(b"")
    request_state: str | UnsetType = msgspec.UNSET


class PromptMessage(Model, kw_only=True):
    """One message: who says it, and one block of content."""

    role: Role
    content: ContentBlock

    @property
    def text(self) -> str:
        """The text; empty for a picture and the like."""
        return text_of(self.content)


class GetPromptResult(Result, kw_only=True):
    """The messages of a prompt."""

    messages: list[PromptMessage]
    description: str | None = None

    @property
    def text(self) -> str:
        """The texts of all messages, a line break between them."""
        return "\n".join(filter(None, (message.text for message in self.messages)))
