"""The MCP clients of agent frameworks list and call tools, without a model; each is used as its own documents say.

Runs in the environment of the framework. Arguments: its name, then those of every client.
"""

import asyncio
import importlib
import json
import os
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, ClassVar
from unittest.mock import Mock

from tests.interop.answers import Asked
from tests.interop.report import Heard, OnProgress, Settings, plain, settings, walk


class Agent:
    """What the adapters of all frameworks share; the plan for them uses tools only."""

    skips: ClassVar[Mapping[str, str]] = {}

    def __init__(self, chosen: Settings) -> None:
        self.chosen = chosen
        self.logs: list[dict[str, Any]] = []
        self.heard: Heard = []
        self.asked = Asked({})
        self.stack = AsyncExitStack()

    async def start(self) -> None:
        """Connect."""
        raise NotImplementedError

    async def names(self) -> list[str]:
        """The names of all tools."""
        raise NotImplementedError

    async def run(self, name: str, arguments: dict[str, Any]) -> Any:
        """What a model would be told. Raises an error, or returns `Failed`, when the tool failed."""
        raise NotImplementedError

    async def connect(self) -> dict[str, Any]:
        await self.start()
        return {"skipped": "the framework does not tell whom it met"}

    async def listed(self, kind: str) -> dict[str, Any]:
        schema = {"type": "object"}  # frameworks show the tool in a form of their own
        return {"items": [{"name": name, "inputSchema": schema} for name in await self.names()], "pages": None}

    async def call(
        self, name: str, arguments: dict[str, Any], progress: OnProgress | None = None, level: str | None = None
    ) -> dict[str, Any]:
        try:
            told = await self.run(name, arguments)
        except Exception as error:
            told = Failed(error)
        text = told if isinstance(told, str) else json.dumps(plain(told), default=str, ensure_ascii=False)
        return {"text": text[:2000], "is_error": isinstance(told, Failed)}

    async def close(self) -> None:
        await self.stack.aclose()


class Failed(str):
    """The text of a tool's error."""


class LangChain(Agent):
    async def start(self) -> None:
        from langchain_mcp_adapters.client import MultiServerMCPClient
        from langchain_mcp_adapters.tools import load_mcp_tools

        if self.chosen.transport == "stdio":
            command, *arguments = self.chosen.command
            connection: Any = {"transport": "stdio", "command": command, "args": arguments}
        else:
            connection = {"transport": "streamable_http", "url": self.chosen.target}
        session = await self.stack.enter_async_context(MultiServerMCPClient({"one": connection}).session("one"))
        self.all = {tool.name: tool for tool in await load_mcp_tools(session)}

    async def names(self) -> list[str]:
        return list(self.all)

    async def run(self, name: str, arguments: dict[str, Any]) -> Any:
        call = {"type": "tool_call", "id": "1", "name": name, "args": arguments}
        message = await self.all[name].ainvoke(call)
        told = message.content if isinstance(message.content, str) else _texts(message.content)
        return Failed(told) if message.status == "error" else told


class PydanticAI(Agent):
    async def start(self) -> None:
        from fastmcp.client.transports import StdioTransport
        from pydantic_ai.mcp import MCPToolset

        target: Any = self.chosen.target
        if self.chosen.transport == "stdio":
            target = StdioTransport(command=self.chosen.command[0], args=self.chosen.command[1:])
        self.toolset = await self.stack.enter_async_context(MCPToolset(target, tool_error_behavior="error"))

    async def names(self) -> list[str]:
        return [tool.name for tool in await self.toolset.list_tools()]

    async def run(self, name: str, arguments: dict[str, Any]) -> Any:
        return await self.toolset.direct_call_tool(name, arguments)


class OpenAIAgents(Agent):
    async def start(self) -> None:
        from agents.mcp import MCPServerStdio, MCPServerStreamableHttp

        if self.chosen.transport == "stdio":
            command, *arguments = self.chosen.command
            self.server: Any = MCPServerStdio(
                {"command": command, "args": arguments}, client_session_timeout_seconds=30
            )
        else:
            self.server = MCPServerStreamableHttp({"url": self.chosen.target}, client_session_timeout_seconds=30)
        await self.stack.enter_async_context(self.server)

    async def names(self) -> list[str]:
        return [tool.name for tool in await self.server.list_tools()]

    async def run(self, name: str, arguments: dict[str, Any]) -> Any:
        return _result(await self.server.call_tool(name, arguments))


class LlamaIndex(Agent):
    async def start(self) -> None:
        from llama_index.tools.mcp import BasicMCPClient, McpToolSpec

        if self.chosen.transport == "stdio":
            self.client = BasicMCPClient(self.chosen.command[0], args=self.chosen.command[1:])
        else:
            self.client = BasicMCPClient(self.chosen.target)
        self.tools = await McpToolSpec(client=self.client).to_tool_list_async()

    async def names(self) -> list[str]:
        return [str(tool.metadata.name) for tool in self.tools]

    async def run(self, name: str, arguments: dict[str, Any]) -> Any:
        return _result(await self.client.call_tool(name, arguments))


class GoogleADK(Agent):
    async def start(self) -> None:
        from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams, StreamableHTTPConnectionParams
        from mcp import StdioServerParameters

        if self.chosen.transport == "stdio":
            command, *arguments = self.chosen.command
            server = StdioServerParameters(command=command, args=arguments)
            connection: Any = StdioConnectionParams(server_params=server, timeout=30)
        else:
            connection = StreamableHTTPConnectionParams(url=self.chosen.target)
        self.toolset = McpToolset(connection_params=connection)
        self.stack.push_async_callback(self.toolset.close)
        self.all = {tool.name: tool for tool in await self.toolset.get_tools()}

    async def names(self) -> list[str]:
        return list(self.all)

    async def run(self, name: str, arguments: dict[str, Any]) -> Any:
        if name not in self.all:  # it listed one page
            session = await self.toolset._mcp_session_manager.create_session()
            return _result(await session.call_tool(name, arguments))
        # what an agent's run brings along is for credentials and confirmations
        return _result(await self.all[name]._run_async_impl(args=arguments, tool_context=Mock(), credential=None))


class MCPUse(Agent):
    async def start(self) -> None:
        from mcp_use import MCPClient

        if self.chosen.transport == "stdio":
            command, *arguments = self.chosen.command
            server: Any = {"command": command, "args": arguments}
        else:
            server = {"url": self.chosen.target}
        client = MCPClient({"mcpServers": {"one": server}})
        self.session = await client.create_session("one")
        self.stack.push_async_callback(client.close_all_sessions)

    async def names(self) -> list[str]:
        return [tool.name for tool in await self.session.list_tools()]

    async def run(self, name: str, arguments: dict[str, Any]) -> Any:
        return _result(await self.session.call_tool(name, arguments))


def _texts(blocks: Any) -> str:
    found = (block.get("text") if isinstance(block, dict) else getattr(block, "text", None) for block in blocks)
    return "\n".join(text for text in found if isinstance(text, str))


def _result(result: Any) -> str:
    """The text of a `tools/call` result of the Python SDK, as an object or as data."""
    data = plain(result)
    text = _texts(data.get("content", []))
    return Failed(text) if data.get("isError") or "error" in data else text


FRAMEWORKS: dict[str, tuple[str, type[Agent]]] = {
    "langchain": ("langchain_mcp_adapters.tools", LangChain),
    "pydantic-ai": ("pydantic_ai.mcp", PydanticAI),
    "openai-agents": ("agents.mcp", OpenAIAgents),
    "llamaindex": ("llama_index.tools.mcp", LlamaIndex),
    "google-adk": ("google.adk.tools.mcp_tool", GoogleADK),
    "mcp-use": ("mcp_use", MCPUse),
}
"""For each framework the module that it is imported from, which may take longer than a step, and its adapter."""


async def main() -> None:
    # nothing is reported to anybody
    os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"
    os.environ["MCP_USE_ANONYMIZED_TELEMETRY"] = "false"
    os.environ["SCARF_NO_ANALYTICS"] = "true"
    framework = sys.argv.pop(1)
    chosen = settings()
    module, adapter = FRAMEWORKS[framework]
    importlib.import_module(module)
    await walk(framework, adapter(chosen), chosen)  # type: ignore[arg-type]  # tools only


if __name__ == "__main__":
    asyncio.run(main())
