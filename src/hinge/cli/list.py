"""`hinge list`: who a server is and which tools it has."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

import msgspec

from hinge.cli.connect import client_for
from hinge.client.client import Client
from hinge.schema.tools import Tool


def run(options: argparse.Namespace) -> int:
    """Print the tools, one to a paragraph."""
    return asyncio.run(_run(options))


async def _run(options: argparse.Namespace) -> int:
    async with client_for(options) as client:
        tools = await client.list_tools() if client.server_capabilities.tools is not None else []
        if options.json:
            print(msgspec.json.format(msgspec.json.encode(tools)).decode())
            return 0
        print(_title(client))
        for tool in tools:
            print()
            print(signature(tool))
            for line in (tool.description or "").splitlines():
                print(f"    {line}".rstrip())
    return 0


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
