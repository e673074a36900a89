"""Hinge's client walks the plan: the same command line and report as the foreign clients."""

import asyncio
from typing import Any

import msgspec
from msgspec import UNSET

import hinge
from hinge import Client
from hinge.schema.notifications import LogParams, ProgressParams
from hinge.schema.tools import CallToolResult
from tests.interop.report import OnProgress, Settings, settings, shape, walk

LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"


class Ours:
    skips: frozenset[str] = frozenset()

    def __init__(self, chosen: Settings) -> None:
        self.logs: list[dict[str, Any]] = []
        self.era = chosen.era
        self.level: str | None = None
        target: Any = chosen.target if chosen.transport == "http" else chosen.command
        # Modern servers are to be recognised without being told; the handshake has to be asked for.
        self.client = Client(target, era="2025" if chosen.era == "2025" else "auto", on_log=self.on_log)

    def on_log(self, params: LogParams) -> None:
        self.logs.append({"level": params.level, "data": params.data, "logger": params.logger})

    async def connect(self) -> dict[str, Any]:
        await self.client.connect()
        info = self.client.server_info
        return {
            "revision": self.client.protocol_version,
            "name": info.name if info else None,
            "version": info.version if info else None,
            "instructions": self.client.instructions,
            "capabilities": msgspec.to_builtins(self.client.server_capabilities),
        }

    async def list_tools(self) -> list[dict[str, Any]]:
        tools: list[dict[str, Any]] = msgspec.to_builtins(await self.client.list_tools())
        return tools

    async def call(self, name: str, arguments: dict[str, Any], progress: OnProgress | None = None) -> dict[str, Any]:
        seen: list[ProgressParams] = []
        if self.level is not None and self.era == "2026":
            params = {"name": name, "arguments": arguments, "_meta": {LOG_LEVEL_KEY: self.level}}
            result = await self.client.request("tools/call", params, result=CallToolResult)
        else:
            result = await self.client.call_tool(name, arguments, on_progress=seen.append, raise_on_error=False)
        for one in seen if progress is not None else ():
            assert progress is not None
            await progress(one.progress, one.total, one.message)
        return _shaped(result)

    async def call_with_limit(self, name: str, arguments: dict[str, Any], seconds: float) -> dict[str, Any]:
        return _shaped(await self.client.call_tool(name, arguments, total=seconds, raise_on_error=False))

    async def set_log_level(self, level: str) -> None:
        """The next calls ask for this level; in the 2025 era the session does."""
        if self.era == "2025":
            await self.client.request("logging/setLevel", {"level": level})
        self.level = level

    async def close(self) -> None:
        await self.client.close()


def _shaped(result: CallToolResult) -> dict[str, Any]:
    structured = None if result.structured_content is UNSET else result.structured_content
    content = [msgspec.to_builtins(block) for block in result.content]
    return shape(content, structured, result.is_error)


async def main() -> None:
    chosen = settings()
    await walk(f"hinge {hinge.__version__}", Ours(chosen), chosen)


if __name__ == "__main__":
    asyncio.run(main())
