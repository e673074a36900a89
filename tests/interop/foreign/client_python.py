"""The official Python SDK's client walks the plan. Runs in the peers environment."""

import asyncio
import importlib.metadata
from typing import Any

from mcp import Client
from mcp.client.stdio import StdioServerParameters

from tests.interop.report import OnProgress, Settings, settings, shape, walk


class Official:
    skips = frozenset()

    def __init__(self, chosen: Settings) -> None:
        self.logs: list[dict[str, Any]] = []
        self.era = chosen.era
        target: Any = chosen.target
        if chosen.transport == "stdio":
            command = chosen.command
            target = StdioServerParameters(command=command[0], args=command[1:])
        self.client = Client(
            target,
            mode="legacy" if chosen.era == "2025" else "auto",
            logging_callback=self.on_log,
            log_level="debug" if chosen.era == "2026" else None,
        )

    async def on_log(self, params: Any) -> None:
        self.logs.append({"level": params.level, "data": params.data, "logger": params.logger})

    async def connect(self) -> dict[str, Any]:
        await self.client.__aenter__()
        info = self.client.server_info
        return {
            "revision": self.client.protocol_version,
            "name": info.name if info else None,
            "version": info.version if info else None,
            "instructions": self.client.instructions,
            "capabilities": self.client.server_capabilities.model_dump(exclude_none=True, by_alias=True),
        }

    async def list_tools(self) -> list[dict[str, Any]]:
        result = await self.client.list_tools(cache_mode="bypass")
        return [tool.model_dump(exclude_none=True, by_alias=True, mode="json") for tool in result.tools]

    async def call(self, name: str, arguments: dict[str, Any], progress: OnProgress | None = None) -> dict[str, Any]:
        result = await self.client.call_tool(name, arguments, progress_callback=progress)
        return shape(list(result.content), result.structured_content, bool(result.is_error))

    async def call_with_limit(self, name: str, arguments: dict[str, Any], seconds: float) -> dict[str, Any]:
        result = await self.client.call_tool(name, arguments, read_timeout_seconds=seconds)
        return shape(list(result.content), result.structured_content, bool(result.is_error))

    async def set_log_level(self, level: str) -> None:
        if self.era == "2025":
            await self.client.set_logging_level(level)

    async def close(self) -> None:
        await self.client.__aexit__(None, None, None)


async def main() -> None:
    chosen = settings()
    await walk(f"mcp {importlib.metadata.version('mcp')}", Official(chosen), chosen)


asyncio.run(main())
