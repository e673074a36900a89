"""`hinge list`: who a server is, and which tools, prompts and resources it has."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

import msgspec

from hinge.cli.connect import client_for
from hinge.client.client import Client
from hinge.schema.tools import Tool


def run(options: argparse.Namespace) -> int:
    """Print them, one to a paragraph."""
    return asyncio.run(_run(options))


async def _run(options: argparse.Namespace) -> int:
    async with client_for(options) as client:
        tools = await client.list_tools() if client.server_capabilities.tools is not None else []
        if options.json:
            print(msgspec.json.format(msgspec.json.encode(tools)).decode())
            return 0
        print(_title(client))
        for tool in tools:
            _entry(signature(tool), tool.description)
        await _prompts(client)
        await _resources(client)
    return 0


def _entry(head: str, text: str | None) -> None:
    print()
    print(head)
    for line in (text or "").splitlines():
        print(f"    {line}".rstrip())


async def _prompts(client: Client) -> None:
    if client.server_capabilities.prompts is not None:
        for prompt in await client.list_prompts():
            names = [item.name if item.required else f"{item.name}?" for item in prompt.arguments or ()]
            _entry(f"prompt {prompt.name}({', '.join(names)})", prompt.description)


async def _resources(client: Client) -> None:
    if client.server_capabilities.resources is not None:
        for resource in await client.list_resources():
            _entry(f"resource {resource.uri}", resource.description)
        for template in await client.list_resource_templates():
            _entry(f"resource {template.uri_template}", template.description)


def _title(client: Client) -> str:
    info = client.server_info
    name = f"{info.name} {info.version}" if info is not None else "a server without a name"
    return f"{name}, protocol {client.protocol_version}"


def signature(tool: Tool) -> str:
    """A tool as one line of Python-like text: `name(city: string, days: integer = 3)`."""
    required = tool.input_schema.get("required", [])
    parts = []
    for key, schema in tool.input_schema.get("properties", {}).items():
        text = f"{key}: {_kind(schema)}"
        if "default" in schema:
            text += f" = {msgspec.json.encode(schema['default']).decode()}"
        elif key not in required:
            text += " (optional)"
        parts.append(text)
    return f"{tool.name}({', '.join(parts)})"


def _kind(schema: Any) -> str:
    if not isinstance(schema, dict):
        return "any"
    if "enum" in schema:
        return " | ".join(msgspec.json.encode(value).decode() for value in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(_kind(one) for one in schema["anyOf"])
    kind = schema.get("type", "any")
    if kind == "array":
        return f"array of {_kind(schema.get('items', {}))}"
    return " | ".join(kind) if isinstance(kind, list) else str(kind)
