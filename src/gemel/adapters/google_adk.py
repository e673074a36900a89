"""Google ADK: a client as a toolset of agents, prompts as contents."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from gemel.adapters.tools import (
    AnyClient,
    AsyncTools,
    Include,
    description_of,
    metadata_of,
    missing_package,
    structured_of,
    text_for_model,
)
from gemel.client.content import content_to_text
from gemel.errors import shorten
from gemel.schema.content import ContentBlock, contents_of
from gemel.schema.tools import CallToolResult, Tool

try:
    from google.adk.agents.readonly_context import ReadonlyContext
    from google.adk.tools.base_tool import BaseTool
    from google.adk.tools.base_toolset import BaseToolset
    from google.adk.tools.tool_context import ToolContext
    from google.genai import types
except ModuleNotFoundError as exc:
    raise missing_package(exc, "google.adk", "google-adk", "google-adk") from None

__all__ = ["AdkToolset", "contents"]

logger = logging.getLogger("gemel")

#: The framework's own tools. A server must not take their place.
_RESERVED = frozenset(
    {
        "adk_request_credential",
        "adk_request_confirmation",
        "adk_request_input",
        "set_model_response",
        "transfer_to_agent",
    }
)


class AdkToolset(BaseToolset):
    """The tools of a client as a toolset: `Agent(model=…, tools=[AdkToolset(client)])`.

    They are listed once for each invocation, so that the model sees changes. A result is its structured content, or
    `{"result": text}`; images, audio and other data are `media`, which becomes parts of the function response. The error of
    a tool is `{"error": text}`. Errors of the connection are raised. Tools with names of the framework's own, such as
    `transfer_to_agent`, are left out and logged.

    Args:
        client: A client or client group, connected while agents run.
        include: The names of the tools to use, or a function of a tool; all by default.
        resources: Whether there is also a tool `read_resource`, for links in results.
        model_names: Whether a tool with a name that models don't take gets a short one.
        tool_name_prefix: What is put in front of the names, with "_".

    Raises:
        DefinitionError: `include` is neither names nor a function.

    Example:
        >>> async with Client("weather.py") as client:
        ...     agent = Agent(name="weather", model="gemini-3-pro", tools=[AdkToolset(client)])
    """

    def __init__(
        self,
        client: AnyClient,
        *,
        include: Include | None = None,
        resources: bool = False,
        model_names: bool = True,
        tool_name_prefix: str | None = None,
    ) -> None:
        super().__init__(tool_name_prefix=tool_name_prefix)
        self._tools: AsyncTools[_AdkTool] = AsyncTools(
            client,
            lambda tool: _AdkTool(self._tools, tool),
            include=include,
            resources=resources,
            model_names=model_names,
        )

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        """List the tools.

        Args:
            readonly_context: The invocation.

        Returns:
            The tools.

        Raises:
            DefinitionError: `include` names a tool that is not listed.
            CallError: The tools could not be listed.
        """
        tools = await self._tools.list()
        for tool in tools:
            if tool.name in _RESERVED:
                logger.warning("Tool %r is left out: Google ADK has a tool of this name", shorten(tool.name))
        return [tool for tool in tools if tool.name not in _RESERVED]


async def contents(client: AnyClient, prompt: str, arguments: Mapping[str, str] | None = None) -> list[types.Content]:
    """Get a prompt as contents.

    Args:
        client: A connected client or client group.
        prompt: The name of the prompt.
        arguments: Its arguments.

    Returns:
        The contents, with the roles "user" and "model".

    Raises:
        CallError: There is no such prompt, or the server failed.
        InvalidResponse: The data of a block is not base64.
    """
    found = (await client.get_prompt(prompt, arguments)).messages
    return [
        types.Content(
            role="user" if message.role == "user" else "model",
            parts=[_media(message.content) or types.Part(text=content_to_text(message.content))],
        )
        for message in found
    ]


class _AdkTool(BaseTool):
    def __init__(self, source: AsyncTools[_AdkTool], tool: Tool) -> None:
        super().__init__(name=tool.name, description=description_of(tool), custom_metadata=metadata_of(tool) or None)
        self._source = source
        self._tool = tool

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name,
            description=self.description,
            parameters_json_schema=self._tool.input_schema,
            response_json_schema=self._tool.output_schema if isinstance(self._tool.output_schema, dict) else None,
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> dict[str, Any]:
        # a toolset with a prefix copies the tool and renames the copy
        return _response(await self._source.call(self._tool.name, args))


def _response(result: CallToolResult) -> dict[str, Any]:
    if result.is_error:
        return {"error": text_for_model(result)}
    structured = structured_of(result)
    media = [part for block in result.content if (part := _media(block)) is not None]
    if isinstance(structured, dict):
        response = structured
    elif structured is not None:
        response = {"result": structured}
    else:
        texts = [content_to_text(block) for block in result.content if _media(block) is None]
        response = {"result": "\n".join(texts)} if texts or not media else {}
    return {**response, "media": media} if media else response


def _media(block: ContentBlock) -> types.Part | None:
    """A part for what is not text; None for text."""
    contents = contents_of(block)
    if contents is None or contents.blob is None:
        return None
    return types.Part.from_bytes(data=contents.decoded, mime_type=contents.mime_type or "application/octet-stream")
