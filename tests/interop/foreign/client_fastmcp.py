"""FastMCP's client walks the plan. Runs in the FastMCP environment."""

import asyncio
import importlib.metadata
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import SSETransport, StdioTransport
from mcp.client.subscriptions import SubscriptionLost, listen

from tests.interop.answers import MODEL, Asked
from tests.interop.report import Heard, OnProgress, Settings, change_of, plain, settings, shape, walk

LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"


class FastClient:
    def __init__(self, chosen: Settings) -> None:
        self.logs: list[dict[str, Any]] = []
        self.heard: Heard = []
        self.asked = Asked(chosen.answers)
        self.era = chosen.era
        is_sse = chosen.transport == "sse"
        too_large = {"huge": "the client ends the connection at an event beyond 1 MiB"}
        typed = {"request": "it wants a type for each method"}
        self.skips: Mapping[str, str] = {**typed, **(too_large if is_sse else {})}
        self.client = Client(
            _target(chosen),
            mode="legacy" if chosen.era == "2025" else "auto",
            log_handler=self.on_log,
            message_handler=self.on_message,
            elicitation_handler=self.on_elicit,
            sampling_handler=self.on_sample,
            roots=lambda context: self.asked.roots(),
        )

    async def on_log(self, message: Any) -> None:
        self.logs.append({"level": message.level, "data": message.data, "logger": message.logger})

    async def on_message(self, message: Any) -> None:
        if isinstance(message, Exception):
            return
        change = change_of(message.method, getattr(message.params, "uri", None))
        if change is not None:
            self.heard.append(change)

    async def on_elicit(self, message: str, kind: Any, params: Any, context: Any) -> Any:
        if isinstance(params, types.ElicitRequestURLParams):
            return ElicitResult(action=self.asked.url(message, params.url))
        action, content = await self.asked.form(message, params.requested_schema)
        return ElicitResult(action=action, content=content)

    async def on_sample(self, messages: Any, params: Any, context: Any) -> types.CreateMessageResult:
        texts = [one.content.text for one in messages if getattr(one.content, "type", "") == "text"]
        said = types.TextContent(type="text", text=self.asked.sample(texts, params.max_tokens))
        return types.CreateMessageResult(role="assistant", content=said, model=MODEL)

    async def connect(self) -> dict[str, Any]:
        await self.client.__aenter__()
        info = self.client.server_info
        capabilities = self.client.server_capabilities
        return {
            "revision": self.client.protocol_version,
            "name": info.name if info else None,
            "version": info.version if info else None,
            "instructions": self.client.instructions,
            "capabilities": plain(capabilities) if capabilities else None,
        }

    async def listed(self, kind: str) -> dict[str, Any]:
        lists = {
            "tools": lambda: self.client.list_tools(cache_mode="bypass"),
            "prompts": self.client.list_prompts,
            "resources": self.client.list_resources,
            "templates": self.client.list_resource_templates,
        }
        return {"items": plain(list(await lists[kind]())), "pages": None}

    async def page(self, kind: str, cursor: str) -> Any:
        lists = {
            "tools": self.client.list_tools_mcp,
            "prompts": self.client.list_prompts_mcp,
            "resources": self.client.list_resources_mcp,
            "templates": self.client.list_resource_templates_mcp,
        }
        return plain(await lists[kind](cursor=cursor))

    async def call(
        self, name: str, arguments: dict[str, Any], progress: OnProgress | None = None, level: str | None = None
    ) -> dict[str, Any]:
        meta = {LOG_LEVEL_KEY: level} if level is not None and self.era == "2026" else None
        result = await self.client.call_tool(
            name, arguments, progress_handler=progress, raise_on_error=False, meta=meta
        )
        return shape(list(result.content), result.structured_content, bool(result.is_error))

    async def call_with_limit(self, name: str, arguments: dict[str, Any], seconds: float) -> dict[str, Any]:
        result = await self.client.call_tool(name, arguments, timeout=seconds, raise_on_error=False)
        return shape(list(result.content), result.structured_content, bool(result.is_error))

    async def set_log_level(self, level: str) -> None:
        await self.client.set_logging_level(level)

    async def read(self, uri: str) -> list[dict[str, Any]]:
        return plain(list(await self.client.read_resource(uri)))

    async def prompt(self, name: str, arguments: dict[str, str]) -> dict[str, Any]:
        return plain(await self.client.get_prompt(name, arguments))

    async def complete(
        self, reference: dict[str, str], argument: str, value: str, given: dict[str, str] | None
    ) -> dict[str, Any]:
        found = await self.client.complete(_reference_to(reference), {"name": argument, "value": value}, given)
        return plain(found)

    async def request(self, method: str, params: dict[str, Any]) -> Any:
        raise NotImplementedError

    @asynccontextmanager
    async def watch(self, uri: str | None) -> AsyncIterator[Any]:
        """By the session below the client: the client itself has nothing for it."""
        session = self.client.session
        if self.era == "2025":
            if uri is not None:
                await session.subscribe_resource(uri)
            yield None
            if uri is not None:
                await session.unsubscribe_resource(uri)
            return
        async with self.listen(uri) as subscription:
            yield plain(subscription.honored)

    def listen(self, uri: str | None) -> Any:
        return listen(
            self.client.session,
            tools_list_changed=True,
            prompts_list_changed=True,
            resources_list_changed=True,
            resource_subscriptions=[uri] if uri is not None else None,
        )

    async def watch_to_end(self, uri: str, ready: Callable[[], None]) -> Any:
        if self.era == "2025":
            await self.client.session.subscribe_resource(uri)
            ready()
            await asyncio.sleep(60)
        async with self.listen(uri) as subscription:
            ready()
            try:
                async for _ in subscription:
                    pass
            except SubscriptionLost:
                return "lost"
        return "graceful"

    async def watch_on(self, uri: str, ready: Callable[[], None]) -> Any:
        raise NotImplementedError("a subscription that is lost stays lost")

    async def close(self) -> None:
        await self.client.__aexit__(None, None, None)


def _target(chosen: Settings) -> Any:
    if chosen.transport == "stdio":
        return StdioTransport(chosen.command[0], chosen.command[1:], keep_alive=False)
    return SSETransport(chosen.target) if chosen.transport == "sse" else chosen.target


def _reference_to(reference: dict[str, str]) -> Any:
    if "prompt" in reference:
        return types.PromptReference(type="ref/prompt", name=reference["prompt"])
    return types.ResourceTemplateReference(type="ref/resource", uri=reference["resource"])


async def main() -> None:
    chosen = settings()
    await walk(f"fastmcp {importlib.metadata.version('fastmcp-slim')}", FastClient(chosen), chosen)


if __name__ == "__main__":
    asyncio.run(main())
