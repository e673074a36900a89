"""Changes of tools of a mounted or proxied server: other names and descriptions, hidden tools, fixed arguments."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, structs

from gemel.errors import DefinitionError, InvalidParams, shorten
from gemel.jsonrpc import ABSENT
from gemel.protocol.scopes import parse_scopes
from gemel.schema.methods import Feature
from gemel.schema.tools import Tool, ToolAnnotations
from gemel.server.composition.namespace import argument_names, plain, suggest
from gemel.server.context import Context, served_call
from gemel.server.dispatch import CallNext
from gemel.server.features.options import annotations_of
from gemel.server.features.visibility import require_scopes
from gemel.server.functions.arguments import Rename

logger = logging.getLogger("gemel")


class ArgumentChange(Struct, frozen=True, kw_only=True):
    """A change of an argument: its `name`, its `description`, or a fixed `value`, which hides the argument."""

    #: The name that callers see.
    name: str | None = None
    #: The description that callers see.
    description: str | None = None
    #: Any JSON value, passed in every call; callers don't see the argument.
    value: Any = UNSET


class ToolChange(Struct, frozen=True, kw_only=True):
    """A change of a tool; members that are not given stay."""

    #: The name that callers see.
    name: str | None = None
    #: The name for people, in user interfaces.
    title: str | None = None
    #: The description that models read.
    description: str | None = None
    #: Hints for the client, in place of those of the tool.
    annotations: ToolAnnotations | Mapping[str, Any] | None = None
    #: Changes of arguments, by their names in the mounted server.
    arguments: Mapping[str, ArgumentChange] = {}
    #: OAuth scopes that a call needs besides those of the tool.
    scopes: Collection[str] = ()


class ToolChanges:
    """Changes of tools, as middleware or as `tools=` of `Server.mount`.

    Args:
        changes: By the name that a tool has in its server: a `ToolChange`, or None to hide the tool.

    Raises:
        DefinitionError: for a change that can't work, or two tools that would get the same name.
    """

    def __init__(self, changes: Mapping[str, ToolChange | None]) -> None:
        if not isinstance(changes, Mapping):
            raise DefinitionError(f'tools={shorten(repr(changes))} is not possible: write {{"name": ToolChange(…)}}')
        self._changes = {name: change or ToolChange() for name, change in changes.items()}
        self._hidden = {name for name, change in changes.items() if change is None}
        #: By the name that callers know: the name inside.
        self._inner: dict[str, str] = {}
        for name, change in self._changes.items():
            if not isinstance(change, ToolChange):
                raise DefinitionError(f"tools: {name!r} must be a ToolChange, or None to hide it, not {change!r}")
            if name in self._hidden:
                continue
            outer = change.name or name
            if outer in self._inner:
                raise DefinitionError(f"tools: {self._inner[outer]!r} and {name!r} can't both be called {outer!r}")
            self._inner[outer] = name
            _check(name, change)
        self._warned = False

    def inner(self, outer: str) -> str | None:
        """Translate the name that callers use.

        Args:
            outer: The name of a tool, as callers see it.

        Returns:
            Its name in the server; None for a tool that is hidden.
        """
        inner = self._inner.get(outer)
        return inner if inner is not None or outer in self._changes else outer

    def outer(self, kind: Feature, inner: str) -> str | None:
        """Translate a name of the server.

        Args:
            kind: What it names; only tools are translated.
            inner: The name in the server.

        Returns:
            The name that callers see; None for a tool that is hidden, or whose name another one has now.
        """
        if kind != "tools":
            return inner
        return (
            (self._changes[inner].name or inner if inner in self._changes else inner) if self._is_shown(inner) else None
        )

    def outer_argument(self, tool: str, inner: str) -> str | None:
        """Translate the name of an argument.

        Args:
            tool: The name of the tool in the server.
            inner: The name of the argument in the server.

        Returns:
            The name that callers see; None for an argument with a fixed value.
        """
        change = self._changes.get(tool)
        argument = change.arguments.get(inner) if change is not None else None
        if argument is None:
            return inner
        return (argument.name or inner) if argument.value is UNSET else None

    def scopes(self, tool: str) -> frozenset[str]:
        """Return the scopes that a call needs besides those of the tool.

        Args:
            tool: The name of the tool in the server.

        Returns:
            The scopes; none for a tool that isn't changed.
        """
        change = self._changes.get(tool)
        return frozenset() if change is None else frozenset(change.scopes)

    async def __call__(self, ctx: Context[Any], call_next: CallNext) -> Any:
        """Change what is called on the way in, and what is listed on the way out."""
        if ctx.method == "tools/call":
            inner = ctx.replace(params=self._called(ctx))
            served_call(inner).layers += (self,)
            return await call_next(inner)
        result = await call_next(ctx)
        if ctx.method != "tools/list":
            return result
        if isinstance(result, Struct):
            return structs.replace(result, tools=self._listed(getattr(result, "tools", [])))
        return {**result, "tools": self._listed(plain(result.get("tools", [])))}

    # ---------------------------------------------------------------- calls

    def _called(self, ctx: Context[Any]) -> Raw:
        """The params of a call with inner names. Raises InvalidParams for names that are hidden, and InsufficientScope."""
        params = ctx.params
        try:
            members = msgspec.json.decode(params if params is not ABSENT else b"{}", type=dict[str, Raw])
            outer = msgspec.json.decode(members["name"], type=str)
            name = self.inner(outer)
            if name is None:
                raise InvalidParams(f"Unknown tool: {suggest(served_call(ctx).layers, 'tools', outer)}")
            members["name"] = Raw(msgspec.json.encode(name))
            change = self._changes.get(name)
            require_scopes(ctx, self.scopes(name))
            if change is not None and change.arguments:
                arguments = msgspec.json.decode(members.get("arguments", b"{}"), type=dict[str, Raw])
                names = argument_names(served_call(ctx).layers, outer) or str
                members["arguments"] = Raw(msgspec.json.encode(_inside(change, arguments, names)))
        except (msgspec.MsgspecError, KeyError):
            return params  # the tool reports what is wrong
        return Raw(msgspec.json.encode(members))

    # ---------------------------------------------------------------- lists

    def _listed(self, tools: list[Any]) -> list[Any]:
        items = [plain(tool) for tool in tools]
        self._warn({_name(item) for item in items})
        return [self._shown(item) for item in items if self._is_shown(_name(item))]

    def _is_shown(self, name: str) -> bool:
        """Whether a tool is listed: it is not hidden, and no other tool has got its name."""
        return name not in self._hidden and (name in self._changes or name not in self._inner)

    def _shown(self, item: Any) -> Any:
        name = _name(item)
        change = self._changes.get(name)
        if change is None:
            return item
        changed: dict[str, Any] = {
            "name": change.name,
            "title": change.title,
            "description": change.description,
            "annotations": annotations_of(ToolAnnotations, change.annotations, f"Tool {name!r}"),
        }
        if isinstance(item, Tool):
            changed["input_schema"] = _outside(name, change, item.input_schema)
        else:
            changed["inputSchema"] = _outside(name, change, plain(item.get("inputSchema")))
        given = {member: value for member, value in changed.items() if value is not None}
        return structs.replace(item, **given) if isinstance(item, Tool) else {**item, **given}

    def _warn(self, listed: set[str]) -> None:
        """Warn once if a list lacks a tool that is to be changed: its name may be mistyped."""
        missing = self._changes.keys() - listed
        if missing and listed and not self._warned:
            self._warned = True
            logger.warning(
                "tools: there is no %s to be changed; there are %s", min(missing), ", ".join(sorted(listed)[:20])
            )


def _name(item: Any) -> str:
    name = item.name if isinstance(item, Tool) else plain(item.get("name"))
    return name if isinstance(name, str) else ""


def _check(name: str, change: ToolChange) -> None:
    annotations_of(ToolAnnotations, change.annotations, f"tools: {name!r}")
    parse_scopes(f"tools: {name!r}", change.scopes)
    names = [one.name for one in change.arguments.values() if one.name is not None and one.value is UNSET]
    if len(set(names)) != len(names):
        raise DefinitionError(f"tools: two arguments of {name!r} can't have one name: {', '.join(names)}")


def _inside(change: ToolChange, given: Mapping[str, Any], names: Rename) -> dict[str, Any]:
    """Arguments by their inner names, with those that are always sent. Raises InvalidParams for a name that isn't shown."""
    renamed = {one.name: name for name, one in change.arguments.items() if one.name is not None and one.value is UNSET}
    gone = {name for name, one in change.arguments.items() if one.name not in (None, name) or one.value is not UNSET}
    fixed = {name: one.value for name, one in change.arguments.items() if one.value is not UNSET}
    for name, value in given.items():
        if name not in renamed and name in gone:
            raise InvalidParams(f"{shorten(names(name) or name)}: unknown argument")
        fixed[renamed.get(name, name)] = value
    return fixed


def _outside(tool: str, change: ToolChange, schema: object) -> Any:
    """The schema of the arguments as callers see it."""
    if not change.arguments or not isinstance(schema, dict):
        return schema
    properties = schema.get("properties")
    shown: dict[str, Any] = {}
    for name, member in properties.items() if isinstance(properties, dict) else ():
        one = change.arguments.get(name)
        if one is None:
            shown.setdefault(name, member)
        elif one.value is UNSET:
            words = {} if one.description is None else {"description": one.description}
            shown[one.name or name] = {**member, **words} if isinstance(member, dict) else member
    names = {name: one.name or name for name, one in change.arguments.items() if one.value is UNSET}
    required = [
        names.get(name, name) for name in schema.get("required", ()) if name in names or name not in change.arguments
    ]
    rest = {key: value for key, value in schema.items() if key != "required"}
    return {**rest, "properties": shown, **({"required": required} if required else {})}
