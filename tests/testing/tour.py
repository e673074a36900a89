"""A conversation with the tour of examples/everything_server.py that touches every kind of message, and what the application
sees of it. Whoever plays the server, the application must see the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from gemel import CallError, Client, Root, Server
from gemel.cli.program.load import load
from tests.serving import over_http
from tests.source import ROOT

EVERYTHING = ROOT / "examples" / "everything_server.py"
ERAS: tuple[Any, ...] = ("2025", "2026")
ROUTES = ("memory", "stdio", "http")

#: What the user, the model and the disk answer.
ANSWERS: dict[str, Any] = {
    "on_elicit": lambda form: _filled(form.requested_schema),
    "on_sample": lambda params: "Paris",
    "on_roots": [Root(uri="file:///work")],
}

#: One tool for each kind of content and of course of events.
CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("test_simple_text", {}),
    ("add", {"a": 2, "b": 3}),
    ("test_multiple_content_types", {}),
    ("test_tool_with_logging", {}),
    ("test_tool_with_progress", {}),
    ("test_x_mcp_header", {"region": "north"}),
    ("test_sampling", {"prompt": "Which capital?"}),
    ("test_streaming_elicitation", {}),
    ("test_input_required_result_multiple_inputs", {}),
    ("test_input_required_result_multi_round", {}),
)


def _filled(schema: dict[str, Any]) -> dict[str, str]:
    return {name: f"my {name}" for name in schema["properties"]}


def everything() -> Server[Any]:
    """The tour's server, made anew in this process."""
    server: Server[Any] = load(str(EVERYTHING))
    return server


@asynccontextmanager
async def reachable(route: str) -> AsyncIterator[Any]:
    """The tour's server by this route, as a target for a client."""
    if route == "memory":
        yield everything()
    elif route == "stdio":
        yield EVERYTHING
    else:
        async with over_http(everything()) as url:
            yield url


async def take_tour(target: Any, era: Any, **options: Any) -> dict[str, Any]:
    """Everything that an application sees of one conversation."""
    logs: list[Any] = []
    seen: dict[str, Any] = {}
    async with Client(target, era=era, on_log=lambda log: logs.append(log.data), **ANSWERS, **options) as client:
        seen["tools"] = [tool.name for tool in await client.list_tools()]
        seen["prompts"] = [prompt.name for prompt in await client.list_prompts()]
        for name, arguments in CALLS:
            seen[name] = await _call(client, name, arguments)
        seen["failing"] = await _call(client, "test_error_handling", {})
        seen["unknown"] = await _call(client, "no_such_tool", {})
        seen["wrong"] = await _call(client, "add", {"a": 1, "b": "two"})
        seen["resource"] = msgspec.to_builtins(await client.read_resource("test://static-text"))
        seen["together"] = await asyncio.gather(*(_call(client, "add", {"a": n, "b": n}) for n in range(5)))
        async with client.listen(tools=True) as changes:
            await client.call_tool("test_trigger_tool_change")
            async with asyncio.timeout(10):
                seen["change"] = repr(await anext(changes))
    seen["logs"] = logs
    return seen


async def _call(client: Client, name: str, arguments: dict[str, Any]) -> Any:
    progress: list[Any] = []
    try:
        result = await client.call_tool(name, arguments, on_progress=progress.append, raise_on_error=False)
    except CallError as exc:
        return type(exc).__name__, str(exc)
    return msgspec.to_builtins(result), msgspec.to_builtins(progress)
