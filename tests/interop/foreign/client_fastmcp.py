"""FastMCP's client walks the plan. Runs in the FastMCP environment."""

import asyncio
import importlib.metadata
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StdioTransport

from tests.interop.report import OnProgress, Settings, settings, shape, walk


class FastClient:
    skips = frozenset()

    def __init__(self, chosen: Settings) -> None:
        self.logs: list[dict[str, Any]] = []
        self.era = chosen.era
        target: Any = chosen.target
        if chosen.transport == "stdio":
            command = chosen.command
            target = StdioTransport(command[0], command[1:], keep_alive=False)
        self.client = Client(
            target,
            mode="legacy" if chosen.era == "2025" else "auto",
            log_handler=self.on_log,
        )

    async def on_log(self, message: Any) -> None:
        self.logs.append({"level": message.level, "data": message.data, "logger": message.logger})

    async def connect(self) -> dict[str, Any]:
        await self.client.__aenter__()
        info = self.client.server_info
        capabilities = self.client.server_capabilities
        return {
            "revision": self.client.protocol_version,
            "name": info.name if info else None,
            "version": info.version if info else None,
            "instructions": self.client.instructions,
            "capabilities": capabilities.model_dump(exclude_none=True, by_alias=True) if capabilities else None,
        }

    async def list_tools(self) -> list[dict[str, Any]]:
        tools = await self.client.list_tools(cache_mode="bypass")
        return [tool.model_dump(exclude_none=True, by_alias=True, mode="json") for tool in tools]

    async def call(self, name: str, arguments: dict[str, Any], progress: OnProgress | None = None) -> dict[str, Any]:
        result = await self.client.call_tool(name, arguments, progress_handler=progress, raise_on_error=False)
        return shape(list(result.content), result.structured_content, bool(result.is_error))

    async def call_with_limit(self, name: str, arguments: dict[str, Any], seconds: float) -> dict[str, Any]:
        result = await self.client.call_tool(name, arguments, timeout=seconds, raise_on_error=False)
        return shape(list(result.content), result.structured_content, bool(result.is_error))

    async def set_log_level(self, level: str) -> None:
        if self.era == "2025":
            await self.client.set_logging_level(level)

    async def close(self) -> None:
        await self.client.__aexit__(None, None, None)


async def main() -> None:
    chosen = settings()
    await walk(f"fastmcp {importlib.metadata.version('fastmcp-slim')}", FastClient(chosen), chosen)


asyncio.run(main())
