"""The tools that are listed behind a policy: their hints and the names of their arguments, for tools of other servers."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from gemel.schema.tools import Tool
from gemel.server.composition.namespace import plain

#: Seconds for which a list is used; a tool that is not in it is looked for in a new one.
TTL = 5.0
_CALLERS = 256
_PAGES = 1000


class Listings:
    """The last list of each caller, by what identifies the caller."""

    def __init__(self) -> None:
        self._by_caller: OrderedDict[Hashable, tuple[float, Mapping[str, Any]]] = OrderedDict()

    def forget(self) -> None:
        """Forget all of them: a list has changed."""
        self._by_caller.clear()

    async def find(self, caller: Hashable, name: str, fetch: Callable[[], Awaitable[Mapping[str, Any]]]) -> Any:
        """Return a tool by its name as it is listed; None if it isn't."""
        since, tools = self._by_caller.get(caller, (0.0, {}))
        if name in tools and time.monotonic() - since < TTL:
            return tools[name]
        started = time.monotonic()
        tools = await fetch()
        self._by_caller.pop(caller, None)
        self._by_caller[caller] = started, tools
        if len(self._by_caller) > _CALLERS:
            self._by_caller.popitem(last=False)
        return tools.get(name)


async def all_tools(request: Callable[[dict[str, Any]], Awaitable[Any]]) -> dict[str, Any]:
    """All pages of a list by name; of two tools with one name the first counts."""
    tools: dict[str, Any] = {}
    cursor: Any = None
    for _ in range(_PAGES):
        page = await request({} if cursor is None else {"cursor": cursor})
        for tool in tools_of(page):
            tools.setdefault(name_of(tool), tool)
        before, cursor = cursor, plain(member(page, "next_cursor", "nextCursor"))
        if not isinstance(cursor, str) or cursor == before:
            break
    return tools


def tools_of(page: Any) -> Sequence[Any]:
    """The tools of a page, each a `Tool` or a JSON object."""
    tools = plain(member(page, "tools", "tools"))
    return [plain(tool) for tool in tools if isinstance(plain(tool), Tool | Mapping)] if isinstance(tools, list) else []


def with_tools(page: Any, tools: Sequence[Any], *, private: bool) -> Any:
    """The page with other tools; `private` if they depend on the caller."""
    if isinstance(page, Struct):
        scope: dict[str, Any] = {"cache_scope": "private"} if private else {}
        return structs.replace(page, tools=list(tools), **scope)
    scope = {"cacheScope": "private"} if private and "cacheScope" in page else {}
    return {**page, "tools": list(tools), **scope}


def member(value: Any, field: str, name: str) -> Any:
    """A member of a struct or of a JSON object; None without it."""
    return getattr(value, field, None) if isinstance(value, Struct) else plain(value.get(name))


def name_of(tool: Any) -> str:
    """The name of a listed tool."""
    return str(member(tool, "name", "name"))


def annotations_of(tool: Any) -> Any:
    """The annotations of a listed tool; None without them."""
    found = member(tool, "annotations", "annotations")
    return found if isinstance(found, Struct | Mapping) else None


def by_schema(tool: Any, given: Mapping[str, Any], *, defaults: bool) -> tuple[dict[str, Any], bool]:
    """What a listed tool gets of the arguments that are sent, as far as its input schema tells.

    Args:
        tool: The tool; None for one that is not listed.
        given: The arguments.
        defaults: Whether the defaults of the schema are believed.

    Returns:
        The arguments, and whether the tool may get others: some are not in the schema.
    """
    schema = {} if tool is None else member(tool, "input_schema", "inputSchema")
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping):
        return dict(given), tool is None and bool(given)
    inexact = not _is_open(schema) and not given.keys() <= properties.keys()
    known = properties.items() if defaults else ()
    filled = {name: one["default"] for name, one in known if isinstance(one, Mapping) and "default" in one}
    return {**filled, **given}, inexact


#: Keywords by which an object may have further members that its `properties` don't name.
_FURTHER = ("additionalProperties", "unevaluatedProperties")
_COMPOSED = frozenset({"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas"})


def _is_open(schema: Mapping[str, Any]) -> bool:
    """Whether a schema says that there may be arguments which it doesn't name. One that is silent about that is closed here."""
    return "patternProperties" in schema or any(schema.get(name, False) is not False for name in _FURTHER)


def parameters_of(tool: Any) -> frozenset[str] | None:
    """The names of the arguments that a listed tool takes; None if its input schema doesn't tell all of them."""
    schema = None if tool is None else member(tool, "input_schema", "inputSchema")
    if not isinstance(schema, Mapping) or _is_open(schema) or not _COMPOSED.isdisjoint(schema):
        return None
    properties = schema.get("properties", {})
    return frozenset(properties) if isinstance(properties, Mapping) else None
