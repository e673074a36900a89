"""`hinge list`: who a server is, and which tools, prompts and resources it has."""

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
from hinge.client.screen import Style, is_terminal, plain, plain_lines, width_of, wrapped
from hinge.schema.prompts import Prompt
from hinge.schema.tools import Tool


def run(options: argparse.Namespace) -> int:
    """Print them, one to a paragraph."""
    options.no_input = True
    return asyncio.run(_run(options))


async def _run(options: argparse.Namespace) -> int:
    console = Console(options)
    async with client_for(options, **console.client_options()) as client:
        found = await _offered(client)
        title = _title(client)
    if options.json:
        console.print(as_json(found))
        return 0
    width = width_of(sys.stdout) if is_terminal(sys.stdout) else 100_000
    console.page("\n".join([*wrapped(title, width), *_lines(found, Style(sys.stdout), width)]))
    return 0


async def _offered(client: Client) -> dict[str, list[Any]]:
    """All lists that the server has, by their names in the protocol."""
    offers, found = client.server_capabilities, dict[str, list[Any]]()
    if offers.tools is not None:
        found["tools"] = await client.list_tools()
    if offers.prompts is not None:
        found["prompts"] = await client.list_prompts()
    if offers.resources is not None:
        found["resources"] = await client.list_resources()
        found["resourceTemplates"] = await client.list_resource_templates()
    return found


def _lines(found: dict[str, list[Any]], style: Style, width: int) -> Iterator[str]:
    for tool in found.get("tools", ()):
        yield from _entry(signature(tool), tool.description, style, width)
        yield from _arguments(tool.input_schema, style, width)
    for prompt in found.get("prompts", ()):
        yield from _entry(_prompt(prompt), prompt.description, style, width)
    for resource in found.get("resources", ()):
        yield from _entry(f"resource {resource.uri}", resource.description, style, width)
    for template in found.get("resourceTemplates", ()):
        yield from _entry(f"resource {template.uri_template}", template.description, style, width)


def _entry(head: str, text: str | None, style: Style, width: int) -> Iterator[str]:
    """One thing: its name, and what the server says of it, below."""
    yield ""
    first, *more = wrapped(plain(head), width)
    yield style.bold(first)
    yield from (style.bold(f"        {line}") for part in more for line in wrapped(part, width - 8))
    for line in plain_lines(text or "") if text else ():
        indent = "    " + " " * (len(line) - len(line.lstrip()))
        yield from (f"{indent}{part}".rstrip() for part in wrapped(line.strip(), width - len(indent)))


def _arguments(schema: dict[str, Any], style: Style, width: int) -> Iterator[str]:
    """What is said of the arguments."""
    properties = schema.get("properties")
    for name, found in properties.items() if isinstance(properties, dict) else ():
        text = found.get("description") if isinstance(found, dict) else None
        if isinstance(text, str) and text:
            lines = wrapped(plain(" ".join(f"{name}: {text}".split())), width - 12)
            yield from (style.dim(f"{' ' * (8 if number == 0 else 12)}{line}") for number, line in enumerate(lines))


def _prompt(prompt: Prompt) -> str:
    names = [item.name if item.required else f"{item.name}?" for item in prompt.arguments or ()]
    return f"prompt {prompt.name}({', '.join(names)})"


def _title(client: Client) -> str:
    info = client.server_info
    name = f"{info.name} {info.version}" if info is not None else "a server without a name"
    return plain(f"{name}, protocol {client.protocol_version}")


def signature(tool: Tool) -> str:
    """A tool as one line of Python-like text: `name(city: string, days: integer = 3)`."""
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
    """A type in a word or two; of an object also which members it has."""
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
