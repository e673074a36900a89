"""Tools: listing and calling them (TOOL-01…TOOL-25)."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from hinge.schema.base import Icon, Model, Page, Result
from hinge.schema.content import ContentBlock, text_of


class ToolAnnotations(Model, kw_only=True):
    """Hints about what a tool does, as trusted as its server (TOOL-10). Absent means the specification's default."""

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class Tool(Model, kw_only=True):
    """A tool as it is listed. `output_schema` may have any root in the newest revision.

    `execution` says in the last handshake revision whether a call may become a task (TSK-04).
    """

    name: str
    input_schema: dict[str, Any]
    title: str | None = None
    description: str | None = None
    output_schema: dict[str, Any] | bool | None = None
    annotations: ToolAnnotations | None = None
    icons: list[Icon] | None = None
    execution: dict[str, Any] | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


class ListToolsResult(Page, kw_only=True):
    """A page of tools."""

    tools: list[Tool]


class CallToolParams(Model, kw_only=True):
    """Which tool, with which arguments (an object, kept as JSON text until the tool's own types read it)."""

    name: str
    arguments: Raw = Raw(b"{}")
    input_responses: Raw = Raw(b"")
    request_state: str | UnsetType = UNSET


class CallToolResult(Result, kw_only=True):
    """What a tool answers. `structured_content` may be any JSON value, null included; UNSET means absent (T-19)."""

    content: list[ContentBlock]
    structured_content: Any = UNSET
    is_error: bool = False

    @property
    def text(self) -> str:
        """All text blocks, one after the other, a line break between them."""
        return text_of(self.content)

    @property
    def data(self) -> Any:
        """The structured content, or the text of a tool that has none."""
        return self.text if self.structured_content is UNSET else self.structured_content
