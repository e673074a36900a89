"""smolagents: the tools of a client without async, for its agents, which are not async."""

from __future__ import annotations

import io
import keyword
import re
from typing import Any

from gemel.adapters.tools import (
    AnySyncClient,
    Include,
    SyncTools,
    description_of,
    missing_package,
    structured_of,
    text_for_model,
)
from gemel.client.content import content_to_text
from gemel.errors import DefinitionError, ToolError
from gemel.schema.content import ImageContent, TextContent
from gemel.schema.tools import CallToolResult
from gemel.schema.tools import Tool as GemelTool

try:
    from smolagents import Tool
except ModuleNotFoundError as exc:
    raise missing_package(exc, "smolagents", "smolagents", "smolagents") from None

__all__ = ["tools"]

#: The types of inputs that smolagents knows, as JSON Schema has them.
_TYPES = frozenset({"string", "boolean", "integer", "number", "array", "object", "null"})
_UNFIT = re.compile(r"\W", re.ASCII)


def tools(
    client: AnySyncClient, *, include: Include | None = None, resources: bool = False, model_names: bool = True
) -> list[Tool]:
    """List the tools of a client of `gemel.sync` as those of smolagents.

    Names become Python identifiers: `get-sum` is `get_sum`. A result is the structured content if the tool has an output
    schema, otherwise text, an image, or a list of both. An error of a tool is raised as a `ToolError`; agents show every
    error to the model. Call this again after a change of the list.

    Args:
        client: A connected client or client group of `gemel.sync`.
        include: The names of the tools to use, or a function of a tool; all by default.
        resources: Whether there is also a tool `read_resource`, for links in results.
        model_names: Whether a tool with a name that models don't take gets a short one.

    Returns:
        The tools, for `CodeAgent` and `ToolCallingAgent`.

    Raises:
        DefinitionError: `include` names a tool that is not listed, or two names become the same identifier.
        CallError: The tools could not be listed.

    Example:
        >>> with Client("weather.py") as client:
        ...     agent = CodeAgent(tools=tools(client), model=model)
    """
    source: SyncTools[Tool] = SyncTools(
        client,
        lambda tool: _SmolagentsTool(source, tool),
        include=include,
        resources=resources,
        model_names=model_names,
    )
    listed = source.list()
    names = [tool.name for tool in listed]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DefinitionError(f"Several tools become {twice!r}, as a Python identifier: leave out some with include=…")
    return listed


class _SmolagentsTool(Tool):
    skip_forward_signature_validation = True
    output_type = "any"

    def __init__(self, source: SyncTools[Tool], tool: GemelTool) -> None:
        self.name = _identifier(tool.name)
        self.description = description_of(tool)
        self.inputs = _inputs(tool.input_schema)
        schema = tool.output_schema
        self.output_schema = schema if isinstance(schema, dict) and schema.get("type") == "object" else None
        self._source = source
        self._origin = tool.name
        super().__init__()

    def forward(self, /, *args: Any, **arguments: Any) -> Any:
        named = dict(zip(self.inputs, args, strict=False)) | arguments
        return _value(self._source.call(self._origin, named), structured=self.output_schema is not None)


def _identifier(name: str) -> str:
    """The name as a Python identifier, which code of a model can call."""
    word = _UNFIT.sub("_", name)
    return f"_{word}" if not word or word[0].isdigit() or keyword.iskeyword(word) else word


def _inputs(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The arguments in smolagents' form: each with a type and a description; `nullable` may be left out."""
    required = schema.get("required", ())
    inputs: dict[str, dict[str, Any]] = {}
    for name, part in schema.get("properties", {}).items():
        member = part if isinstance(part, dict) else {}
        inputs[name] = {**member, "type": _type(member), "description": str(member.get("description") or name)}
        if name not in required:
            inputs[name]["nullable"] = True
    return inputs


def _type(schema: dict[str, Any]) -> str | list[str]:
    """The type or types that a schema names; "any" where it does not."""
    found = schema.get("type")
    types: list[Any] = found if isinstance(found, list) else [found]
    branches = schema.get("anyOf")
    if found is None and isinstance(branches, list):
        types = [branch.get("type") if isinstance(branch, dict) else None for branch in branches]
    names = [kind for kind in types if isinstance(kind, str) and kind in _TYPES]
    if not names or len(names) < len(types):
        return "any"
    return names[0] if len(names) == 1 else names


def _value(result: CallToolResult, *, structured: bool) -> Any:
    if result.is_error:
        raise ToolError(text_for_model(result))
    if structured and structured_of(result) is not None:
        return structured_of(result)
    if all(isinstance(block, TextContent) for block in result.content):
        return text_for_model(result)
    parts = [_image(block) if isinstance(block, ImageContent) else content_to_text(block) for block in result.content]
    return parts[0] if len(parts) == 1 else parts


def _image(block: ImageContent) -> Any:
    """The image as smolagents has images: of pillow, which it requires."""
    from PIL import Image

    return Image.open(io.BytesIO(block.decoded))
