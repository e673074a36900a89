"""The official Python SDK's client walks the plan. Runs in the peers environment."""

import asyncio
import importlib.metadata
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import mcp_types as types
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters
from mcp.client.subscriptions import Subscription, SubscriptionLost
from mcp.shared.subscriptions import event_to_notification

from tests.interop.answers import MODEL, Asked
from tests.interop.report import Heard, OnProgress, Settings, change_of, plain, settings, shape, walk

LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"


class Official:
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
            logging_callback=self.on_log,
            message_handler=self.on_message,
            elicitation_callback=self.on_elicit,
            sampling_callback=self.on_sample,
            list_roots_callback=self.on_roots,
        )

    async def on_log(self, params: Any) -> None:
        self.logs.append({"level": params.level, "data": params.data, "logger": params.logger})

    async def on_message(self, message: Any) -> None:
        if self.era == "2025" and not isinstance(message, Exception):
            self.note(message)

    def note(self, notification: Any) -> None:
        change = change_of(notification.method, getattr(notification.params, "uri", None))
        if change is not None:
            self.heard.append(change)

    async def on_elicit(self, context: Any, params: Any) -> types.ElicitResult:
        if isinstance(params, types.ElicitRequestURLParams):
            return types.ElicitResult(action=self.asked.url(params.message, params.url))
        action, content = await self.asked.form(params.message, params.requested_schema)
        return types.ElicitResult(action=action, content=content)

    async def on_sample(self, context: Any, params: Any) -> types.CreateMessageResult:
        texts = [one.content.text for one in params.messages if getattr(one.content, "type", "") == "text"]
        said = types.TextContent(type="text", text=self.asked.sample(texts, params.max_tokens))
        return types.CreateMessageResult(role="assistant", content=said, model=MODEL)

    async def on_roots(self, context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=uri) for uri in self.asked.roots()])

    async def connect(self) -> dict[str, Any]:
        await self.client.__aenter__()
        info = self.client.server_info
        return {
            "revision": self.client.protocol_version,
            "name": info.name if info else None,
            "version": info.version if info else None,
            "instructions": self.client.instructions,
            "capabilities": plain(self.client.server_capabilities),
        }

    async def page(self, kind: str, cursor: str | None) -> Any:
        lists = {
            "tools": self.client.list_tools,
            "prompts": self.client.list_prompts,
            "resources": self.client.list_resources,
            "templates": self.client.list_resource_templates,
        }
        return plain(await lists[kind](cursor=cursor, cache_mode="bypass"))

    async def listed(self, kind: str) -> dict[str, Any]:
        items: list[Any] = []
        pages, cursor = 0, None
        while pages == 0 or cursor is not None:
            page = await self.page(kind, cursor)
            items += page["resourceTemplates" if kind == "templates" else kind]
            pages, cursor = pages + 1, page.get("nextCursor")
        return {"items": items, "pages": pages}

    async def call(
        self, name: str, arguments: dict[str, Any], progress: OnProgress | None = None, level: str | None = None
    ) -> dict[str, Any]:
        meta = {LOG_LEVEL_KEY: level} if level is not None and self.era == "2026" else None
        result = await self.client.call_tool(name, arguments, progress_callback=progress, meta=meta)
        return shape(list(result.content), result.structured_content, bool(result.is_error))

    async def call_with_limit(self, name: str, arguments: dict[str, Any], seconds: float) -> dict[str, Any]:
        result = await self.client.call_tool(name, arguments, read_timeout_seconds=seconds)
        return shape(list(result.content), result.structured_content, bool(result.is_error))

    async def set_log_level(self, level: str) -> None:
        await self.client.set_logging_level(level)

    async def read(self, uri: str) -> list[dict[str, Any]]:
        return plain(list((await self.client.read_resource(uri)).contents))

    async def prompt(self, name: str, arguments: dict[str, str]) -> dict[str, Any]:
        return plain(await self.client.get_prompt(name, arguments))

    async def complete(
        self, reference: dict[str, str], argument: str, value: str, given: dict[str, str] | None
    ) -> dict[str, Any]:
        found = await self.client.complete(_reference_to(reference), {"name": argument, "value": value}, given)
        return plain(found.completion)

    async def request(self, method: str, params: dict[str, Any]) -> Any:
        raise NotImplementedError

    @asynccontextmanager
    async def watch(self, uri: str | None) -> AsyncIterator[Any]:
        if self.era == "2025":
            if uri is not None:
                await self.client.subscribe_resource(uri)
            yield None
            if uri is not None:
                await self.client.unsubscribe_resource(uri)
            return
        async with self.listen(uri) as subscription:
            hearing = asyncio.ensure_future(self.hear(subscription))
            yield plain(subscription.honored)
        with suppress(asyncio.CancelledError):
            hearing.cancel()
            await hearing

    def listen(self, uri: str | None) -> Any:
        return self.client.listen(
            tools_list_changed=True,
            prompts_list_changed=True,
            resources_list_changed=True,
            resource_subscriptions=[uri] if uri is not None else None,
        )

    async def hear(self, subscription: Subscription) -> None:
        async for event in subscription:
            self.note(event_to_notification(event, {}))

    async def watch_to_end(self, uri: str, ready: Callable[[], None]) -> Any:
        if self.era == "2025":
            await self.client.subscribe_resource(uri)
            ready()
            await asyncio.sleep(60)
        async with self.listen(uri) as subscription:
            ready()
            try:
                await self.hear(subscription)
            except SubscriptionLost:
                return "lost"
        return "graceful"

    async def watch_on(self, uri: str, ready: Callable[[], None]) -> Any:
        raise NotImplementedError("a subscription that is lost stays lost")

    async def close(self) -> None:
        await self.client.__aexit__(None, None, None)


def _target(chosen: Settings) -> Any:
    if chosen.transport == "stdio":
        return StdioServerParameters(command=chosen.command[0], args=chosen.command[1:])
    return sse_client(chosen.target) if chosen.transport == "sse" else chosen.target


def _reference_to(reference: dict[str, str]) -> Any:
    if "prompt" in reference:
        return types.PromptReference(type="ref/prompt", name=reference["prompt"])
    return types.ResourceTemplateReference(type="ref/resource", uri=reference["resource"])


async def main() -> None:
    chosen = settings()
    await walk(f"mcp {importlib.metadata.version('mcp')}", Official(chosen), chosen)


if __name__ == "__main__":
    asyncio.run(main())
