"""The client of the official Python SDK before version 2 walks the plan: what `ClientSession` of each version can do.

Runs in the environments of the old SDKs, from 1.2 on. What a version can't do is skipped with its reason.
"""

import asyncio
import importlib.metadata
import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

import mcp.types as types
from mcp import ClientSession, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from pydantic import AnyUrl

from tests.interop.answers import MODEL, Asked
from tests.interop.report import Heard, OnProgress, Settings, change_of, plain, settings, shape, walk


def takes(function: Callable[..., Any], name: str) -> bool:
    """Whether the installed version's function has the parameter."""
    return name in inspect.signature(function).parameters


class ClientV1:
    def __init__(self, chosen: Settings) -> None:
        self.chosen = chosen
        self.logs: list[dict[str, Any]] = []
        self.heard: Heard = []
        self.asked = Asked(chosen.answers)
        self.stack = AsyncExitStack()
        self.skips: Mapping[str, str] = dict(_skips())

    async def on_log(self, params: Any) -> None:
        self.logs.append({"level": params.level, "data": params.data, "logger": params.logger})

    async def on_message(self, message: Any) -> None:
        if isinstance(message, types.ServerNotification):
            notification = message.root
            change = change_of(notification.method, getattr(notification.params, "uri", None))
            if change is not None:
                self.heard.append(change)

    async def on_elicit(self, context: Any, params: Any) -> Any:
        if getattr(params, "mode", "form") == "url":
            return types.ElicitResult(action=self.asked.url(params.message, params.url))
        action, content = await self.asked.form(params.message, params.requestedSchema)
        return types.ElicitResult(action=action, content=content)

    async def on_sample(self, context: Any, params: Any) -> types.CreateMessageResult:
        texts = [one.content.text for one in params.messages if getattr(one.content, "type", "") == "text"]
        said = types.TextContent(type="text", text=self.asked.sample(texts, params.maxTokens))
        return types.CreateMessageResult(role="assistant", content=said, model=MODEL)

    async def on_roots(self, context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=uri) for uri in self.asked.roots()])

    async def connect(self) -> dict[str, Any]:
        read, write, *_ = await self.stack.enter_async_context(_transport(self.chosen))
        callbacks = {
            "logging_callback": self.on_log,
            "message_handler": self.on_message,
            "elicitation_callback": self.on_elicit,
            "sampling_callback": self.on_sample,
            "list_roots_callback": self.on_roots,
        }
        known = {name: call for name, call in callbacks.items() if takes(ClientSession.__init__, name)}
        self.session = await self.stack.enter_async_context(ClientSession(read, write, **known))
        result = await self.session.initialize()
        return {
            "revision": result.protocolVersion,
            "name": result.serverInfo.name,
            "version": result.serverInfo.version,
            "instructions": result.instructions,
            "capabilities": plain(result.capabilities),
        }

    async def page(self, kind: str, cursor: str | None) -> Any:
        lists: dict[str, Callable[..., Any]] = {
            "tools": self.session.list_tools,
            "prompts": self.session.list_prompts,
            "resources": self.session.list_resources,
            "templates": self.session.list_resource_templates,
        }
        return plain(await lists[kind](cursor=cursor))

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
        options = {} if progress is None else {"progress_callback": progress}
        return _shape(await self.session.call_tool(name, arguments, **options))

    async def call_with_limit(self, name: str, arguments: dict[str, Any], seconds: float) -> dict[str, Any]:
        limit = timedelta(seconds=seconds)
        return _shape(await self.session.call_tool(name, arguments, read_timeout_seconds=limit))

    async def set_log_level(self, level: str) -> None:
        await self.session.set_logging_level(level)  # type: ignore[arg-type]  # one of them

    async def read(self, uri: str) -> list[dict[str, Any]]:
        return plain(list((await self.session.read_resource(AnyUrl(uri))).contents))

    async def prompt(self, name: str, arguments: dict[str, str]) -> dict[str, Any]:
        return plain(await self.session.get_prompt(name, arguments))

    async def complete(
        self, reference: dict[str, str], argument: str, value: str, given: dict[str, str] | None
    ) -> dict[str, Any]:
        options = {} if given is None else {"context_arguments": given}
        about = {"name": argument, "value": value}
        result = await self.session.complete(_reference_to(reference), about, **options)
        return plain(result.completion)

    async def request(self, method: str, params: dict[str, Any]) -> Any:
        raise NotImplementedError

    @asynccontextmanager
    async def watch(self, uri: str | None) -> AsyncIterator[Any]:
        if uri is not None:
            await self.session.subscribe_resource(AnyUrl(uri))
        yield None
        if uri is not None:
            await self.session.unsubscribe_resource(AnyUrl(uri))

    async def watch_to_end(self, uri: str, ready: Callable[[], None]) -> Any:
        raise NotImplementedError

    async def watch_on(self, uri: str, ready: Callable[[], None]) -> Any:
        raise NotImplementedError

    async def close(self) -> None:
        await self.stack.aclose()


def _shape(result: Any) -> dict[str, Any]:
    return shape(list(result.content), getattr(result, "structuredContent", None), bool(result.isError))


def _skips() -> dict[str, str]:
    """What the installed version has no way to do."""
    skips = {
        "request": "it wants a type for each method",
        "cancel": "it never tells the server that it gave a call up",
    }
    if not takes(ClientSession.list_tools, "cursor"):
        skips |= {"items": "it can't ask for a second page", "page": "it can't ask for a second page"}
    if not takes(ClientSession.call_tool, "progress_callback"):
        skips["progress"] = "it has no callback for progress"
    if not takes(ClientSession.call_tool, "read_timeout_seconds"):
        skips["limit"] = "its calls have no limit of their own"
    if not takes(ClientSession.__init__, "logging_callback"):
        skips["logging"] = "it has no callback for log messages"
    if not takes(ClientSession.__init__, "message_handler"):
        skips["watch"] = "it has no callback for notifications"
    if not takes(ClientSession.__init__, "list_roots_callback"):
        skips |= dict.fromkeys(("sample", "roots"), "it says that it can't sample, and answers no request")
    if not takes(ClientSession.complete, "context_arguments"):
        skips["complete_by_context"] = "it can't send the other arguments"
    if not hasattr(types.CallToolResult(content=[]), "structuredContent"):
        skips["structured"] = "its revision has no structured results"
    if not hasattr(types, "ElicitResult"):
        skips |= dict.fromkeys(
            ("elicit", "decline", "rounds", "together", "ask_prompt", "ask_read"), "its revision has no elicitation"
        )
    if not hasattr(types, "ElicitRequestURLParams"):
        skips["url"] = "its revision elicits by forms only"
    return skips


def _transport(chosen: Settings) -> Any:
    if chosen.transport == "stdio":
        return stdio_client(StdioServerParameters(command=chosen.command[0], args=chosen.command[1:]))
    if chosen.transport == "sse":
        return sse_client(chosen.target)
    from mcp.client.streamable_http import streamablehttp_client

    return streamablehttp_client(chosen.target)


def _reference_to(reference: dict[str, str]) -> Any:
    if "prompt" in reference:
        return types.PromptReference(type="ref/prompt", name=reference["prompt"])
    name = "ResourceTemplateReference" if hasattr(types, "ResourceTemplateReference") else "ResourceReference"
    return getattr(types, name)(type="ref/resource", uri=reference["resource"])


async def main() -> None:
    chosen = settings()
    await walk(f"mcp {importlib.metadata.version('mcp')}", ClientV1(chosen), chosen)


if __name__ == "__main__":
    asyncio.run(main())
