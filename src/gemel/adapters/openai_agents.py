"""OpenAI Agents: a client as an MCP server of agents, with its tools, prompts and resources."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from gemel.adapters.tools import AnyClient, AsyncTools, Include, missing_package
from gemel.client.methods import ClientMethods
from gemel.errors import GemelError
from gemel.schema.prompts import ListPromptsResult
from gemel.schema.resources import ListResourcesResult, ListResourceTemplatesResult
from gemel.schema.tools import CallToolResult, Tool

try:
    from agents import AgentBase, RunContextWrapper, default_tool_error_function
    from agents.mcp import MCPServer
    from mcp import types
    from pydantic import BaseModel
except ModuleNotFoundError as exc:
    raise missing_package(exc, "agents", "openai-agents", "openai-agents") from None

__all__ = ["AgentsServer"]

ModelT = TypeVar("ModelT", bound=BaseModel)


class AgentsServer(MCPServer):
    """A client as a server of agents: `Agent(name, mcp_servers=[AgentsServer(client)])`.

    Agents list the tools before each turn, so that the model sees changes. The model gets the text and images of a result,
    and the errors of tools. Errors of the connection end the run, as the cause of an `AgentsException`.

    Args:
        client: A client or client group, connected while agents run.
        name: A name for traces and errors; by default that of the server.
        include: The names of the tools to use, or a function of a tool; all by default.
        resources: Whether there is also a tool `read_resource`, for links in results.
        model_names: Whether a tool with a name that models don't take gets a short one.
        use_structured_content: Whether the model gets the structured content alone, where there is some.
        require_approval: Which tools need an approval: "always", "never", or by name; see `MCPServer`.

    Raises:
        DefinitionError: `include` is neither names nor a function.

    Example:
        >>> async with Client("weather.py") as client:
        ...     agent = Agent("weather", mcp_servers=[AgentsServer(client)])
        ...     result = await Runner.run(agent, "What is the weather in Oslo?")
    """

    def __init__(
        self,
        client: AnyClient,
        *,
        name: str | None = None,
        include: Include | None = None,
        resources: bool = False,
        model_names: bool = True,
        use_structured_content: bool = False,
        require_approval: Any = None,
    ) -> None:
        super().__init__(
            use_structured_content=use_structured_content,
            require_approval=require_approval,
            failure_error_function=_failure,
        )
        self._client = client
        self._name = name
        self._tools = AsyncTools(client, _tool, include=include, resources=resources, model_names=model_names)

    @property
    def name(self) -> str:
        """The name for traces and errors."""
        if self._name is not None:
            return self._name
        if not isinstance(self._client, ClientMethods):
            return "gemel"
        info = self._client.server_info
        return "gemel" if info is None else info.name

    async def connect(self) -> None:
        """Do nothing: the client is connected where it is made."""

    async def cleanup(self) -> None:
        """Do nothing: the client is closed where it is made."""

    async def list_tools(
        self, run_context: RunContextWrapper[Any] | None = None, agent: AgentBase | None = None
    ) -> list[types.Tool]:
        """List the tools.

        Args:
            run_context: The run.
            agent: The agent.

        Returns:
            The tools.

        Raises:
            DefinitionError: `include` names a tool that is not listed.
            CallError: The tools could not be listed.
        """
        return await self._tools.list()

    async def call_tool(
        self, tool_name: str, arguments: dict[str, Any] | None, meta: dict[str, Any] | None = None
    ) -> types.CallToolResult:
        """Call a tool.

        Args:
            tool_name: Its name.
            arguments: The arguments.
            meta: Keys for the `_meta` of the params.

        Returns:
            The result; `isError` says that the tool failed.

        Raises:
            CallError: There is no result.
        """
        result = await self._tools.call(tool_name, arguments, meta)
        if not isinstance(result.structured_content, dict):  # other values are not in the models of all revisions
            result = CallToolResult(content=result.content, is_error=result.is_error, meta=result.meta)
        return _as(types.CallToolResult, result)

    async def list_prompts(self) -> types.ListPromptsResult:
        """List the prompts.

        Returns:
            The prompts.

        Raises:
            CallError: The prompts could not be listed.
        """
        return _as(types.ListPromptsResult, ListPromptsResult(prompts=await self._client.list_prompts()))

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None) -> types.GetPromptResult:
        """Get a prompt.

        Args:
            name: Its name.
            arguments: Its arguments.

        Returns:
            The messages.

        Raises:
            CallError: There is no such prompt, or the server failed.
        """
        return _as(types.GetPromptResult, await self._client.get_prompt(name, arguments))

    async def list_resources(self, cursor: str | None = None) -> types.ListResourcesResult:
        """List all resources.

        Args:
            cursor: Ignored: there is one page.

        Returns:
            The resources.

        Raises:
            CallError: The resources could not be listed.
        """
        return _as(types.ListResourcesResult, ListResourcesResult(resources=await self._client.list_resources()))

    async def list_resource_templates(self, cursor: str | None = None) -> types.ListResourceTemplatesResult:
        """List all resource templates.

        Args:
            cursor: Ignored: there is one page.

        Returns:
            The templates.

        Raises:
            CallError: The templates could not be listed.
        """
        templates = await self._client.list_resource_templates()
        return _as(types.ListResourceTemplatesResult, ListResourceTemplatesResult(resource_templates=templates))

    async def read_resource(self, uri: str) -> types.ReadResourceResult:
        """Read a resource.

        Args:
            uri: Its URI.

        Returns:
            The contents.

        Raises:
            CallError: There is no such resource, or the server failed.
        """
        return _as(types.ReadResourceResult, await self._client.read_resource(uri))


def _tool(tool: Tool) -> types.Tool:
    if not isinstance(tool.output_schema, dict):
        tool = msgspec.structs.replace(tool, output_schema=None)
    return _as(types.Tool, tool)


def _as(model: type[ModelT], message: msgspec.Struct) -> ModelT:
    """The message as a model of the official SDK."""
    return model.model_validate(msgspec.to_builtins(message))


def _failure(context: RunContextWrapper[Any], error: Exception) -> str:
    """What the model is told of an error. Those of the connection are raised, in the framework's own error."""
    if isinstance(error.__cause__, GemelError):
        raise error
    text: str = default_tool_error_function(context, error)
    return text
