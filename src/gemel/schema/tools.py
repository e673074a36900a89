"""Tools: listing and calling them.

https://modelcontextprotocol.io/specification/2025-11-25/server/tools
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

import msgspec
from msgspec import UNSET, Raw, UnsetType

from gemel.schema.base import Icon, Model, Page, Result
from gemel.schema.content import ContentBlock, text_of

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    #: The type of the data of a result; Any unless the caller gives one.
    DataT = TypeVar("DataT", default=Any)
else:
    from typing import TypeVar

    DataT = TypeVar("DataT")


#: Mark an output schema that was wrapped because its root is not an object. The second name is FastMCP's, whose client reads
#: that one alone: schemas get both.
WRAP_MARKERS = ("x-gemel-wrap-result", "x-fastmcp-wrap-result")


def wraps_result(schema: object) -> bool:
    """Return whether an output schema is marked as that of an object around the value."""
    return isinstance(schema, dict) and any(schema.get(marker) is True for marker in WRAP_MARKERS)


class ToolAnnotations(Model, kw_only=True):
    """Hints about what a tool does. A client must not rely on them unless it trusts the server.

    https://modelcontextprotocol.io/specification/2025-11-25/schema#toolannotations

    Args:
        title: A name for people.
        read_only_hint: The tool changes nothing. Default of the specification: false.
        destructive_hint: The tool may overwrite or delete, not only add. Default of the specification: true.
        idempotent_hint: Calling it again with the same arguments changes nothing more. Default of the specification: false.
        open_world_hint: The tool reaches beyond the server, such as the web. Default of the specification: true.
    """

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class Tool(Model, kw_only=True):
    """A tool as it is listed.

    https://modelcontextprotocol.io/specification/2025-11-25/schema#tool

    Args:
        name: The name that calls use.
        input_schema: JSON Schema of the arguments, an object.
        title: A name for people.
        description: What the tool does, for the model.
        output_schema: JSON Schema of the structured content; its root is an object in all revisions but 2026-07-28.
        annotations: Hints about what the tool does.
        icons: Icons for user interfaces.
        execution: In revision 2025-11-25, whether a call may become a task.
        meta: `_meta` of the tool.
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

    @property
    def display_name(self) -> str:
        """What user interfaces show: the title, that of the annotations, or the name."""
        return self.title or (self.annotations.title if self.annotations is not None else None) or self.name


class ListToolsResult(Page, kw_only=True):
    """A page of tools."""

    tools: list[Tool]


#: The arguments of a call that has none; compared by identity.
NO_ARGUMENTS = Raw(b"{}")


class CallToolParams(Model, kw_only=True):
    """Which tool, with which arguments (an object, kept as JSON text until the tool's own types read it)."""

    name: str
    arguments: Raw = NO_ARGUMENTS
    input_responses: Raw = Raw(b"")
    request_state: str | UnsetType = UNSET


class CallToolResult(Result, Generic[DataT], kw_only=True, dict=True):
    """The result of a tool call. A tool may return one to control all parts of its result.

    https://modelcontextprotocol.io/specification/2025-11-25/schema#calltoolresult

    Args:
        content: The content blocks.
        structured_content: Any JSON value, null included; absent by default.
        is_error: The tool failed, and the content says why.
        meta: `_meta` of the result.
    """

    content: list[ContentBlock]
    structured_content: Any = UNSET
    is_error: bool = False

    @property
    def text(self) -> str:
        """The text of all text blocks, joined by line breaks."""
        return text_of(self.content)

    @property
    def data(self) -> DataT:
        """The structured content as the type that `call_tool(returns=…)` requested, by default as decoded JSON.

        Without structured content it is `text`.
        """
        # `call_tool` puts the converted value there, beside the members of the message. `vars` would make a dict for it.
        converted: DataT | UnsetType = getattr(self, "_converted", UNSET)
        if converted is not UNSET:
            return converted
        return self.text if self.structured_content is UNSET else self.structured_content  # type: ignore[return-value]  # without `returns` DataT is what came


def is_object_schema(schema: Any) -> bool:
    """Return whether the root of a schema, or the definition that it refers to, says that values are objects."""
    part, definitions = schema, schema.get("$defs", {}) if isinstance(schema, dict) else {}
    for _ in range(10):
        if not isinstance(part, dict) or part.get("type") == "object":
            break
        part = definitions.get(str(part.get("$ref")).removeprefix("#/$defs/"))
    return isinstance(part, dict) and part.get("type") == "object"
