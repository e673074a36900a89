"""`gemel list`: the name of a server and its tools, prompts and resources."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterator
from typing import Any

import msgspec

from gemel.cli.connect import client_for
from gemel.cli.console import Console, as_json, describe_server
from gemel.client.client import Client
from gemel.client.lists import list_offered
from gemel.client.terminal.display import Layout
from gemel.schema.methods import BY_SECTION, ItemList, Section
from gemel.schema.prompts import Prompt
from gemel.schema.tools import Tool, wraps_result
from gemel.visible import escape_line, escape_text

_NOTHING = "It offers nothing: no tools, prompts or resources."


async def run(options: argparse.Namespace) -> int:
    """Print a paragraph for each tool, prompt and resource."""
    with Console(options) as console:
        async with client_for(options, **console.client_options()) as client:
            lists = await fetch_lists(client)
            title = escape_line(describe_server(client))
        if options.json:
            console.print(as_json(lists))
        else:
            layout = Layout(sys.stdout)
            entries = list(_lines(lists, layout)) or ["", *layout.lines(_NOTHING)]
            console.page("\n".join([*layout.lines(title), *entries]))
    return 0


async def fetch_lists(client: Client, names: Collection[Section] = tuple(BY_SECTION)) -> dict[Section, list[Any]]:
    """Return those of the named lists that the server has, by their names in the protocol."""
    lists: dict[Section, list[Any] | None] = {name: await list_offered(client, BY_SECTION[name]) for name in names}
    return {name: items for name, items in lists.items() if items is not None}


def _lines(lists: dict[Section, list[Any]], layout: Layout) -> Iterator[str]:
    for name, items in lists.items():
        for item in items:
            yield from _entry(_head(BY_SECTION[name], item), item.description, layout)
            if isinstance(item, Tool):
                yield from _arguments(item.input_schema, layout)


def _head(of: ItemList, item: Any) -> str:
    if isinstance(item, Tool):
        return signature(item)
    kind = of.feature.removesuffix("s")  # a template is a resource, for people
    return _prompt(item) if isinstance(item, Prompt) else f"{kind} {of.key_of(item)}"


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
    return f"{tool.name}({', '.join(parts)}){_output(tool.output_schema)}"


def _output(schema: object) -> str:
    """Return ` -> TYPE` of the structured content; of a value that was wrapped in an object, the type of the value."""
    if not isinstance(schema, dict):
        return ""
    if wraps_result(schema):
        return f" -> {_kind((schema.get('properties') or {}).get('result'), schema)}"
    return f" -> {_kind(schema, schema)}"


def _kind(schema: object, root: dict[str, Any]) -> str:
    """Name a type; of an object also its members."""
    if not isinstance(schema, dict):
        return "any"
    if isinstance(schema.get("$ref"), str):
        name: str = schema["$ref"].rpartition("/")[2]
        definitions = root.get("$defs")
        return name + _members(definitions.get(name) if isinstance(definitions, dict) else None)
    if "const" in schema:
        return msgspec.json.encode(schema["const"]).decode()
    if isinstance(schema.get("enum"), list):
        return " | ".join(msgspec.json.encode(value).decode() for value in schema["enum"])
    for word, sign in (("anyOf", " | "), ("oneOf", " | "), ("allOf", " & ")):
        if isinstance(schema.get(word), list):
            return sign.join(_kind(option, root) for option in schema[word])
    kind = schema.get("type", "any")
    if kind == "string" and isinstance(schema.get("format"), str):
        return f"{schema['format']}{_range(schema)}"
    if kind == "array":
        return f"array of {_kind(schema.get('items', {}), root)}"
    return " | ".join(kind) if isinstance(kind, list) else f"{kind}{_range(schema)}{_members(schema)}"


def _range(schema: dict[str, Any]) -> str:
    """Return the limits of a number or of the length of a string: ` 1 to 14`, ` ≥ 0`, ` of 1 to 80 characters`."""
    for least, most, more, unit in (("minimum", "maximum", "", ""), ("minLength", "maxLength", "of ", " characters")):
        low, high = schema.get(least), schema.get(most)
        if low is not None and high is not None:
            return f" {more}{low} to {high}{unit}"
        if low is not None or high is not None:
            return f" {more}{'≥' if high is None else '≤'} {low if high is None else high}{unit}"
    low, high = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    limits = [f"> {low}"] * (low is not None) + [f"< {high}"] * (high is not None)
    return f" {', '.join(limits)}" if limits else ""


def _members(schema: Any) -> str:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or not properties:
        return ""
    required = schema.get("required") or ()
    return " {" + ", ".join(name if name in required else f"{name}?" for name in properties) + "}"
