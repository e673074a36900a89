"""`hinge call`: call one tool with arguments from the command line and print what it answers."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from hinge.cli.connect import client_for
from hinge.errors import StartError
from hinge.schema.content import TextContent
from hinge.schema.notifications import LogParams, ProgressParams
from hinge.schema.tools import CallToolResult, Tool


def run(options: argparse.Namespace) -> int:
    """Print the result: text on stdout, progress and logs on stderr. Exit code 1 when the tool failed."""
    return asyncio.run(_run(options))


async def _run(options: argparse.Namespace) -> int:
    async with client_for(options, on_log=_log) as client:
        wanted = [tool for tool in await client.list_tools() if tool.name == options.tool]
        arguments = parse_arguments(options.arguments, wanted[0] if wanted else None)
        limits: dict[str, Any] = {} if options.timeout is None else {"idle": options.timeout, "total": options.timeout}
        result = await client.call_tool(options.tool, arguments, on_progress=_progress, raise_on_error=False, **limits)
    print(_as_json(result) if options.json else _as_text(result))
    return 1 if result.is_error else 0


def parse_arguments(words: Sequence[str], tool: Tool | None) -> dict[str, Any]:
    """`key=value` by the type that the tool declares for `key`, `key:=json` as JSON. Raises StartError."""
    properties: dict[str, Any] = tool.input_schema.get("properties", {}) if tool is not None else {}
    found: dict[str, Any] = {}
    for word in words:
        key, sign, value = word.partition("=")
        if not sign or not key:
            raise StartError(f"{word!r} is no argument: write KEY=VALUE, or KEY:=JSON")
        if key.endswith(":"):
            key = key[:-1]
            try:
                found[key] = msgspec.json.decode(value.encode())
            except msgspec.DecodeError as exc:
                raise StartError(f"{key}: {value!r} is not JSON: {exc}") from exc
        else:
            found[key] = _typed(value, properties.get(key, {}))
    return found


def _typed(value: str, schema: Any) -> Any:
    kinds = _kinds(schema)
    if kinds == {"string"} or (isinstance(schema, dict) and value in schema.get("enum", ())):
        return value
    try:
        found = msgspec.json.decode(value.encode())
    except msgspec.DecodeError:
        return value
    return found if "string" not in kinds or _kind_of(found) & kinds else value


def _kinds(schema: Any) -> set[str]:
    """The types that a schema takes, as far as it says."""
    if not isinstance(schema, dict):
        return set()
    said = schema.get("type", [])
    kinds = {said} if isinstance(said, str) else set(said)
    for one in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        kinds |= _kinds(one)
    return kinds


def _kind_of(value: Any) -> set[str]:
    if value is None:
        return {"null"}
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, int):
        return {"integer", "number"}
    names = {float: "number", str: "string", list: "array", dict: "object"}
    return {names[type(value)]}


def _as_json(result: CallToolResult) -> str:
    return msgspec.json.format(msgspec.json.encode(result)).decode()


def _as_text(result: CallToolResult) -> str:
    lines = []
    for block in result.content:
        lines.append(block.text if isinstance(block, TextContent) else _other(block))
    if not lines and result.structured_content is not UNSET:
        lines.append(msgspec.json.encode(result.structured_content).decode())
    return "\n".join(lines)


def _other(block: Any) -> str:
    return f"[{msgspec.structs.asdict(block).get('mime_type') or type(block).__name__}]"


def _log(params: LogParams) -> None:
    print(f"{params.level}: {params.data}", file=sys.stderr)


def _progress(params: ProgressParams) -> None:
    total = f"/{params.total:g}" if params.total is not None else ""
    print(f"{params.progress:g}{total} {params.message or ''}".rstrip(), file=sys.stderr)
