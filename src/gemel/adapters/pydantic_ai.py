"""Pydantic AI: a client as a toolset of agents, prompts as messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from gemel.adapters.tools import (
    AnyClient,
    AsyncTools,
    Include,
    metadata_of,
    missing_package,
    structured_of,
    text_for_model,
)
from gemel.client.content import content_to_text
from gemel.client.methods import ClientMethods
from gemel.options import check_option, one_of
from gemel.schema.content import ContentBlock, TextContent, contents_of
from gemel.schema.tools import CallToolResult, Tool

try:
    from pydantic_ai import RunContext
    from pydantic_ai.exceptions import ModelRetry, ToolFailed
    from pydantic_ai.messages import BinaryContent, ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
    from pydantic_ai.tools import ToolDefinition
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
    from pydantic_core import SchemaValidator, core_schema
except ModuleNotFoundError as exc:
    raise missing_package(exc, "pydantic_ai", "pydantic-ai-slim", "pydantic-ai") from None

__all__ = ["PydanticToolset", "messages"]

#: Arguments are validated by the server.
_ANY_OBJECT = SchemaValidator(core_schema.dict_schema(core_schema.str_schema()))


class PydanticToolset(AbstractToolset[Any]):
    """The tools of a client as a toolset: `Agent(model, toolsets=[PydanticToolset(client)])`.

    They are listed before each step of a run, so that the model sees changes. A result is its structured content if it has
    only text besides, otherwise text and `BinaryContent`. Errors of the connection are raised and end the run.

    Args:
        client: A client or client group, connected while agents run.
        include: The names of the tools to use, or a function of a tool; all by default.
        resources: Whether there is also a tool `read_resource`, for links in results.
        model_names: Whether a tool with a name that models don't take gets a short one.
        instructions: Whether the model gets the instructions of the server. It is text of the server: trust it first.
        tool_error: What the error of a tool becomes: "retry" for `ModelRetry`, which counts as a retry of the tool, or
            "failed" for `ToolFailed`.
        max_retries: How often the model may call a tool again after an error; by default what the agent says.
        id: A name for durable execution.

    Raises:
        DefinitionError: The value of an option is not allowed.

    Example:
        >>> async with Client("weather.py") as client:
        ...     agent = Agent("openai:gpt-5", toolsets=[PydanticToolset(client)])
        ...     result = await agent.run("What is the weather in Oslo?")
    """

    def __init__(
        self,
        client: AnyClient,
        *,
        include: Include | None = None,
        resources: bool = False,
        model_names: bool = True,
        instructions: bool = False,
        tool_error: Literal["retry", "failed"] = "retry",
        max_retries: int | None = None,
        id: str | None = None,
    ) -> None:
        check_option("tool_error", tool_error, one_of("retry", "failed"))
        self._tools = AsyncTools(client, _definition, include=include, resources=resources, model_names=model_names)
        self._instructions = instructions
        self._error: type[ModelRetry | ToolFailed] = ModelRetry if tool_error == "retry" else ToolFailed
        self._max_retries = max_retries
        self._id = id

    @property
    def id(self) -> str | None:
        """The name for durable execution."""
        return self._id

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """List the tools.

        Args:
            ctx: The run.

        Returns:
            The tools by name.

        Raises:
            DefinitionError: `include` names a tool that is not listed.
            CallError: The tools could not be listed.
        """
        retries = ctx.max_retries if self._max_retries is None else self._max_retries
        return {
            definition.name: ToolsetTool(
                toolset=self, tool_def=definition, max_retries=retries, args_validator=_ANY_OBJECT
            )
            for definition in await self._tools.list()
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Call a tool.

        Args:
            name: Its name.
            tool_args: The arguments.
            ctx: The run.
            tool: The tool as it was listed.

        Returns:
            The structured content; or the text, or a list of text and `BinaryContent`.

        Raises:
            ModelRetry: The tool reported an error.
            ToolFailed: The tool reported an error, and `tool_error` is "failed".
            CallError: There is no result.
        """
        result = await self._tools.call(name, tool_args)
        if result.is_error:
            raise self._error(text_for_model(result))
        return _value(result)

    async def get_instructions(self, ctx: RunContext[Any]) -> str | None:
        """Get the instructions of the server, if `instructions` is set.

        Args:
            ctx: The run.

        Returns:
            The text; None if there is none, or several servers.
        """
        client = self._tools.client
        return client.instructions if self._instructions and isinstance(client, ClientMethods) else None


async def messages(client: AnyClient, prompt: str, arguments: Mapping[str, str] | None = None) -> list[ModelMessage]:
    """Get a prompt as messages, for `message_history`.

    Args:
        client: A connected client or client group.
        prompt: The name of the prompt.
        arguments: Its arguments.

    Returns:
        The messages.

    Raises:
        CallError: There is no such prompt, or the server failed.
        InvalidResponse: The data of a block is not base64.
    """
    found = (await client.get_prompt(prompt, arguments)).messages
    return [
        ModelRequest([UserPromptPart([_part(message.content)])])
        if message.role == "user"
        else ModelResponse([TextPart(content_to_text(message.content))])
        for message in found
    ]


def _definition(tool: Tool) -> ToolDefinition:
    return ToolDefinition(
        name=tool.name,
        description=tool.description,
        parameters_json_schema=tool.input_schema,
        return_schema=tool.output_schema if isinstance(tool.output_schema, dict) else None,
        metadata=metadata_of(tool) or None,
    )


def _value(result: CallToolResult) -> Any:
    structured = structured_of(result)
    if structured is not None and all(isinstance(block, TextContent) for block in result.content):
        return result.data
    parts = [_part(block) for block in result.content]
    return text_for_model(result) if all(isinstance(part, str) for part in parts) else parts


def _part(block: ContentBlock) -> str | BinaryContent:
    contents = contents_of(block)
    if contents is None or contents.blob is None:
        return content_to_text(block)
    return BinaryContent(contents.decoded, media_type=contents.mime_type or "application/octet-stream")
