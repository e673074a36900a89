"""`hinge list`: the name of a server and its tools, prompts and resources."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from hinge.cli.connect import client_for
from hinge.cli.console import Console, as_json
from hinge.client.client import Client
from hinge.client.terminal.display import Layout, escape_line, escape_text
from hinge.schema.prompts import Prompt
from hinge.schema.tools import Tool


def run(options: argparse.Namespace) -> int:
    """Print a paragraph for each of them."""
    options.no_input = True
    return asyncio.run(_run(options))


async def _run(options: argparse.Namespace) -> int:
    with Console(options) as console:
        async with client_for(options, **console.client_options()) as client:
            lists = await _fetch_lists(client)
            title = _title(client)
        if options.json:
            console.print(as_json(lists))
        else:
            layout = Layout(sys.stdout)
            console.page("\n".join([*layout.lines(title), *_lines(lists, layout)]))
    return 0


async def _fetch_lists(client: Client) -> dict[str, list[Any]]:
    """Return all lists that the server has, by their names in the protocol."""
    offers, found = client.server_capabilities, dict[str, list[Any]]()
    if offers.tools is not None:
        found["tools"] = await client.list_tools()
    if offers.prompts is not None:
        found["prompts"] = await client.list_prompts()
    if offers.resources is not None:
        found["resources"] = await client.list_resources()
        found["resourceTemplates"] = await client.list_resource_templates()
    return found


def _lines(lists: dict[str, list[Any]], layout: Layout) -> Iterator[str]:
    for tool in lists.get("tools", ()):
        yield from _entry(signature(tool), tool.description, layout)
        yield from _arguments(tool.input_schema, layout)
    for prompt in lists.get("prompts", ()):
        yield from _entry(_prompt(prompt), prompt.description, layout)
    for resource in lists.get("resources", ()):
        yield from _entry(f"resource {resource.uri}", resource.description, layout)
    for template in lists.get("resourceTemplates", ()):
        yield from _entry(f"resource {template.uri_template}", template.description, layout)


def _entry(head: str, description: str | None, layout: Layout) -> Iterator[str]:
    yield ""
    yield from layout.lines(escape_line(head), style="bold")
    for line in escape_text(description).split("\n") if description else ():
        text = line.lstrip()
        yield from layout.lines(text, " " * (4 + len(line) - len(text)))


def _arguments(schema: dict[str, Any], layout: Layout) -> Iterator[str]:
    """Yield the descriptions of the arguments."""
    properties = schema.get("properties")
    for name, argument in properties.items() if isinstance(properties, dict) else ():
        text = argument.get("description") if isinstance(argument, dict) else None
        if isinstance(text, str) and text:
            yield from layout.lines(escape_line(" ".join(f"{name}: {text}".split())), " " * 8, style="dim")


def _prompt(prompt: Prompt) -> str:
    names = [item.name if item.required else f"{item.name}?" for item in prompt.arguments or ()]
    return f"prompt {prompt.name}({', '.join(names)})"


def _title(client: Client) -> str:
    info = client.server_info
    name = f"{info.name} {info.version}" if info is not None else "unnamed server"
    return escape_line(f"{name}, protocol {client.protocol_version}")


def signature(tool: Tool) -> str:
    """Return a tool as one line in the style of Python: `name(city: string, days: integer = 3)`."""
    required = tool.input_schema.get("required") or ()
    properties = tool.input_schema.get("properties")
    parts = []
    for key, schema in properties.items() if isinstance(properties, dict) else ():
        text = f"{key}: {_kind(schema, tool.input_schema)}"
        if isinstance(schema, dict) and "default" in schema:
            text += f" = {msgspec.json.encode(schema['default']).decode()}"
        elif key not in required:
            text += " (optional)"
        parts.append(text)
    return f"{tool.name}({', '.join(parts)})"


def _kind(schema: Any, root: dict[str, Any]) -> str:
    """Name a type; of an object also its members."""
    if not isinstance(schema, dict):
        return "any"
    if isinstance(schema.get("$ref"), str):
        name = schema["$ref"].rpartition("/")[2]
        definitions = root.get("$defs")
        found = definitions.get(name) if isinstance(definitions, dict) else None
        return f"{name}{_members(found)}"
    if "enum" in schema:
        return " | ".join(msgspec.json.encode(value).decode() for value in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(_kind(one, root) for one in schema["anyOf"])
    kind = schema.get("type", "any")
    if kind == "array":
        return f"array of {_kind(schema.get('items', {}), root)}"
    return " | ".join(kind) if isinstance(kind, list) else f"{kind}{_members(schema)}"


def _members(schema: Any) -> str:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or not properties:
        return ""
    required = schema.get("required") or ()
    return " {" + ", ".join(name if name in required else f"{name}?" for name in properties) + "}"
