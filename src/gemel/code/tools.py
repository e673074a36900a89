"""The tools that a caller has in place of all: what their list says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from gemel.code.catalogue import Catalogue
from gemel.schema.tools import Tool, ToolAnnotations

#: What a caller's list has; explained at `CodeMode`.
ListMode: TypeAlias = Literal["code", "search", "all"]
#: The names of the tools of code mode, by mode.
OWN: Final[dict[ListMode, tuple[str, ...]]] = {
    "code": ("search_tools", "query_code", "run_code"),
    "search": ("search_tools", "call_tool"),
    "all": (),
}
MODES: Final = tuple(OWN)
#: Claude Code loads a tool with this at once, so that nobody has to search for the search.
_LOADED = {"anthropic/alwaysLoad": True}

_SEARCH = "Find tools: `query` gives the signatures of those that fit its words, best first, `names` the full texts of these. "
_ALL = "All tools, by module:\n"
_RUN = (
    "Run Python that calls tools, and get the value of its last expression: `from {module} import {function}`, then "
    "`await {function}(…)`. Arguments are named, as search_tools shows. Results stay in the script unless it returns or "
    "prints them: return only what is needed. `asyncio.gather` calls several at a time. A tool that fails raises "
    "RuntimeError. No files, network, clock or randomness; json, re, math, datetime, collections and itertools can be imported. "
    "Types are checked first: nothing runs if one is wrong."
)
_QUERY = "As run_code, with those tools only that change nothing."
_CALL = (
    "Call a tool: its name as `module.function`, its arguments by the names in the signature that search_tools shows."
)


class ToolSearch(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of `search_tools`."""

    query: str = ""
    names: list[str] = []


class CodeCall(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of `run_code` and `query_code`."""

    code: str


class ToolCall(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of `call_tool`."""

    name: str
    arguments: dict[str, Any] = {}


#: The schemas of the types that arguments have.
_SCHEMAS: Final[Mapping[object, dict[str, Any]]] = {
    str: {"type": "string"},
    list[str]: {"type": "array", "items": {"type": "string"}},
    dict[str, Any]: {"type": "object"},
}


def own_tools(catalogue: Catalogue, mode: ListMode) -> list[Tool]:
    """Return the tools of a mode.

    Args:
        catalogue: The tools of the caller.
        mode: The mode.
    """
    first = catalogue.tools[0] if catalogue.tools else None
    module, function = (first.module, first.function.name) if first else ("module", "function")
    names = catalogue.names()
    search = _SEARCH + (_ALL + names if names else f"Modules: {', '.join(catalogue.modules)}.")
    hints = [one.offered.hints for one in catalogue.tools]
    read_only = all(one.read_only for one in hints)
    destructive = any(one.destructive for one in hints if not one.read_only)
    open_world = any(one.open_world for one in hints)
    acts = ToolAnnotations(read_only_hint=read_only, destructive_hint=destructive, open_world_hint=open_world)
    reads = ToolAnnotations(read_only_hint=True, open_world_hint=open_world)
    finds = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
    made: dict[str, tuple[str, str, type[msgspec.Struct], ToolAnnotations]] = {
        "search_tools": ("Search tools", search, ToolSearch, finds),
        "query_code": ("Run code that reads", _QUERY, CodeCall, reads),
        "run_code": ("Run code", _RUN.format(module=module, function=function), CodeCall, acts),
        "call_tool": ("Call a tool", _CALL, ToolCall, acts),
    }
    return [_tool(name, *made[name]) for name in OWN[mode]]


def stand_for_others(tools: Iterable[Tool]) -> bool:
    """Return whether a list has the tools of a mode instead of others.

    Args:
        tools: The tools that a server lists.
    """
    marked = {tool.name for tool in tools if (tool.meta or {}).items() >= _LOADED.items()}
    return any(own and marked.issuperset(own) for own in OWN.values())


def _tool(
    name: str, title: str, description: str, arguments: type[msgspec.Struct], annotations: ToolAnnotations
) -> Tool:
    fields = msgspec.structs.fields(arguments)
    required = [field.name for field in fields if field.required]
    schema: dict[str, Any] = {"type": "object", "properties": {field.name: _SCHEMAS[field.type] for field in fields}}
    schema |= {"required": required} if required else {}
    schema["additionalProperties"] = False
    return Tool(
        name=name, title=title, description=description, input_schema=schema, annotations=annotations, meta=_LOADED
    )
