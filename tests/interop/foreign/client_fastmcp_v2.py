"""The client of FastMCP 2 walks the plan. Runs in its environment."""

import asyncio
import importlib.metadata
from collections.abc import Mapping
from typing import Any

import mcp.types as types
from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import SSETransport, StdioTransport

from tests.interop.foreign.client_python_v1 import ClientV1
from tests.interop.report import OnProgress, Settings, plain, settings, shape, walk


class FastClientV2(ClientV1):
    """Lists and calls by the client itself; what it has no method for by the session below it."""

    def __init__(self, chosen: Settings) -> None:
        super().__init__(chosen)
        self.skips: Mapping[str, str] = {**self.skips, "cancel": "it never tells the server that it gave a call up"}
        self.client: Client[Any] = Client(
            _target(chosen),
            log_handler=self.on_log,
            message_handler=self.on_message,
            elicitation_handler=self.on_form,
            sampling_handler=self.on_sample_messages,
            roots=lambda context: self.asked.roots(),
        )

    async def on_form(self, message: str, kind: Any, params: Any, context: Any) -> Any:
        if getattr(params, "mode", "form") == "url":
            return ElicitResult(action=self.asked.url(message, params.url))
        action, content = await self.asked.form(message, params.requestedSchema)
        return ElicitResult(action=action, content=content)  # type: ignore[arg-type]  # a fitting form

    async def on_sample_messages(self, messages: Any, params: Any, context: Any) -> types.CreateMessageResult:
        return await self.on_sample(context, params)

    async def connect(self) -> dict[str, Any]:
        await self.client.__aenter__()
        self.session = self.client.session
        result = self.client.initialize_result
        assert result is not None
        return {
            "revision": result.protocolVersion,
            "name": result.serverInfo.name,
            "version": result.serverInfo.version,
            "instructions": result.instructions,
            "capabilities": plain(result.capabilities),
        }

    async def call(
        self, name: str, arguments: dict[str, Any], progress: OnProgress | None = None, level: str | None = None
    ) -> dict[str, Any]:
        result = await self.client.call_tool(name, arguments, progress_handler=progress, raise_on_error=False)
        return shape(list(result.content), result.structured_content, bool(result.is_error))

    async def call_with_limit(self, name: str, arguments: dict[str, Any], seconds: float) -> dict[str, Any]:
        result = await self.client.call_tool(name, arguments, timeout=seconds, raise_on_error=False)
        return shape(list(result.content), result.structured_content, bool(result.is_error))

    async def close(self) -> None:
        await self.client.__aexit__(None, None, None)


def _target(chosen: Settings) -> Any:
    if chosen.transport == "stdio":
        return StdioTransport(command=chosen.command[0], args=chosen.command[1:])
    return SSETransport(chosen.target) if chosen.transport == "sse" else chosen.target


async def main() -> None:
    chosen = settings()
    await walk(f"fastmcp {importlib.metadata.version('fastmcp')}", FastClientV2(chosen), chosen)


if __name__ == "__main__":
    asyncio.run(main())
