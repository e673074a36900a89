"""Gemel's client walks the plan: the same command line and report as the foreign clients."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Unpack

import msgspec
from msgspec import UNSET

import gemel
from gemel import (
    CallToolResult,
    Changed,
    ChangesLost,
    Client,
    ClientExtension,
    CreateMessageParams,
    CreateMessageResult,
    ElicitFormParams,
    ElicitResult,
    ElicitUrlParams,
    LogParams,
    ProgressParams,
    Root,
    TextContent,
    ToolCallError,
)
from gemel.client.call_options import CallOptions
from tests.interop.answers import MODEL, Asked
from tests.interop.report import Heard, OnProgress, Settings, settings, shape, walk

LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"
METHODS = {
    "tools": "tools/list",
    "prompts": "prompts/list",
    "resources": "resources/list",
    "templates": "resources/templates/list",
}


class Catalog(ClientExtension):
    """Declares the extension of one of the official SDK's examples."""

    id = "com.example/catalog"


class Ui(ClientExtension):
    """Declares that user interfaces are shown."""

    id = "io.modelcontextprotocol/ui"

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"mimeTypes": ["text/html;profile=mcp-app"]}


class Ours:
    skips: Mapping[str, str] = {}

    def __init__(self, chosen: Settings) -> None:
        self.logs: list[dict[str, Any]] = []
        self.heard: Heard = []
        self.asked = Asked(chosen.answers)
        self.era = chosen.era
        target: Any = chosen.command if chosen.transport == "stdio" else chosen.target
        # Modern servers are to be recognised without being told; the handshake has to be asked for.
        self.client = Client(
            target,
            era="2025" if chosen.era == "2025" else "auto",
            on_log=self.on_log,
            on_change=self.on_change,
            on_elicit=self.on_elicit,
            on_elicit_url=self.on_elicit_url,
            on_sample=self.on_sample,
            on_roots=self.on_roots,
            extensions=[Catalog(), Ui()],
        )

    def on_log(self, params: LogParams) -> None:
        self.logs.append({"level": params.level, "data": params.data, "logger": params.logger})

    def on_change(self, change: Changed | ChangesLost) -> None:
        if isinstance(change, Changed):
            self.heard.append([change.kind, change.uri])

    async def on_elicit(self, params: ElicitFormParams) -> Any:
        action, content = await self.asked.form(params.message, params.requested_schema)
        return content if action == "accept" else ElicitResult(action=action)  # type: ignore[arg-type]  # one of three

    def on_elicit_url(self, params: ElicitUrlParams) -> bool:
        return self.asked.url(params.message, params.url) == "accept"

    def on_sample(self, params: CreateMessageParams) -> CreateMessageResult:
        blocks = [one.content for one in params.messages]
        texts = [block.text for block in blocks if isinstance(block, TextContent)]
        said = TextContent(text=self.asked.sample(texts, params.max_tokens))
        return CreateMessageResult(role="assistant", content=said, model=MODEL)

    def on_roots(self) -> list[Root]:
        return [Root(uri=uri) for uri in self.asked.roots()]

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

    async def listed(self, kind: str) -> dict[str, Any]:
        lists: dict[str, Any] = {
            "tools": self.client.list_tools,
            "prompts": self.client.list_prompts,
            "resources": self.client.list_resources,
            "templates": self.client.list_resource_templates,
        }
        return {"items": msgspec.to_builtins(await lists[kind](cache="bypass")), "pages": None}

    async def page(self, kind: str, cursor: str) -> Any:
        return await self.client.request(METHODS[kind], {"cursor": cursor})

    async def call(
        self, name: str, arguments: dict[str, Any], progress: OnProgress | None = None, level: str | None = None
    ) -> dict[str, Any]:
        seen: list[ProgressParams] = []
        if level is not None and self.era == "2026":
            params = {"name": name, "arguments": arguments, "_meta": {LOG_LEVEL_KEY: level}}
            result = await self.client.request("tools/call", params, result=CallToolResult)
        else:
            result = await self._result(name, arguments, on_progress=seen.append)
        for one in seen if progress is not None else ():
            assert progress is not None
            await progress(one.progress, one.total, one.message)
        return _shaped(result)

    async def call_with_limit(self, name: str, arguments: dict[str, Any], seconds: float) -> dict[str, Any]:
        return _shaped(await self._result(name, arguments, total=seconds))

    async def _result(
        self, name: str, arguments: dict[str, Any], **options: Unpack[CallOptions]
    ) -> CallToolResult[Any]:
        """The result, also of a tool that fails; what the server refuses is raised, with the code on the wire."""
        try:
            return await self.client.call_tool(name, arguments, **options)
        except ToolCallError as failed:
            result: CallToolResult[Any] = failed.result
            return result

    async def set_log_level(self, level: str) -> None:
        await self.client.request("logging/setLevel", {"level": level})

    async def read(self, uri: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = msgspec.to_builtins((await self.client.read_resource(uri)).contents)
        return found

    async def prompt(self, name: str, arguments: dict[str, str]) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(await self.client.get_prompt(name, arguments))
        return found

    async def complete(
        self, reference: dict[str, str], argument: str, value: str, given: dict[str, str] | None
    ) -> dict[str, Any]:
        prompt, resource = reference.get("prompt"), reference.get("resource")
        found = await self.client.complete(
            argument=argument, value=value, given=given, prompt=prompt, resource=resource
        )
        as_data: dict[str, Any] = msgspec.to_builtins(found)
        return as_data

    async def request(self, method: str, params: dict[str, Any]) -> Any:
        return msgspec.to_builtins(await self.client.request(method, params))

    @asynccontextmanager
    async def watch(self, uri: str | None) -> AsyncIterator[Any]:
        uris = [uri] if uri is not None else []
        async with self.client.listen(tools=True, prompts=True, resource_list=True, resources=uris) as listening:
            yield msgspec.to_builtins(listening.honoured)

    async def watch_to_end(self, uri: str, ready: Callable[[], None]) -> Any:
        async with self.client.listen(resources=[uri]) as listening:
            ready()
            return _ending(await anext(listening))

    async def watch_on(self, uri: str, ready: Callable[[], None]) -> Any:
        async with self.client.listen(resources=[uri]) as listening:
            ready()
            heard = [_ending(await anext(listening))]
            while not heard[-1].startswith("changed"):  # several losses, if it is tried in vain
                heard.append(_ending(await anext(listening)))
            return [heard[0], heard[-1]]

    async def close(self) -> None:
        await self.client.close()


def _ending(change: Changed | ChangesLost) -> str:
    """Of a loss by the server's own will it says so."""
    if isinstance(change, Changed):
        return f"changed {change.uri}"
    return "graceful" if "server ended the subscription" in change.reason else "lost"


def _shaped(result: CallToolResult) -> dict[str, Any]:
    structured = None if result.structured_content is UNSET else result.structured_content
    content = [msgspec.to_builtins(block) for block in result.content]
    return shape(content, structured, result.is_error)


async def main() -> None:
    chosen = settings()
    await walk(f"gemel {gemel.__version__}", Ours(chosen), chosen)


if __name__ == "__main__":
    asyncio.run(main())
