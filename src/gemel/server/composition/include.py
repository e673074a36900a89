"""Copying the tools, prompts and resources of one router into another, once, with a prefix if there is one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from msgspec import structs

from gemel.errors import DefinitionError
from gemel.schema.methods import LISTS, Feature
from gemel.schema.resources import ReadResourceParams, ReadResourceResult, Resource
from gemel.server.composition.namespace import Prefix
from gemel.server.context import Context
from gemel.server.dispatch import RequestHandler
from gemel.server.features.completion import Completions
from gemel.server.features.prompts import Prompts
from gemel.server.features.resources import RegisteredResource, Resources
from gemel.server.features.tools import Tools
from gemel.server.features.uri_templates import Matched
from gemel.server.features.visibility import Entries, Item
from gemel.server.threads import Threads


class IncludedResource(RegisteredResource):
    """A resource under another URI. Its function gets the values of its own one."""

    __slots__ = ("_prefix",)

    def __init__(self, entry: RegisteredResource, prefix: Prefix) -> None:
        for name in RegisteredResource.__slots__:
            setattr(self, name, getattr(entry, name))
        self._prefix = prefix
        self.uri = prefix.uri(entry.uri)
        is_resource = isinstance(entry.listing, Resource)
        self.listing = prefix.listed(LISTS["resources" if is_resource else "templates"], entry.listing)
        self.item = _renamed(entry.item, self.uri, self.listing)

    def match(self, uri: str) -> Matched | None:
        """The variables of a URI, which the original matches without the prefix."""
        inner = self._prefix.inner_uri(uri)
        return None if inner is None else super().match(inner)

    async def read(
        self, ctx: Context[Any], params: ReadResourceParams, values: Matched, threads: Threads
    ) -> ReadResourceResult:
        """Read the original; URIs in its contents get the prefix."""
        inner = self._prefix.inner_uri(params.uri)
        result = await super().read(ctx, structs.replace(params, uri=inner or params.uri), values, threads)
        prefixed: ReadResourceResult = self._prefix.result(result)
        return prefixed


class Registries(NamedTuple):
    """What a router holds."""

    tools: Tools
    prompts: Prompts
    resources: Resources
    completions: Completions
    #: URIs of folders, which also have a template.
    folders: set[str]

    def entries(self) -> dict[Feature, Entries[Any]]:
        """The registries of items."""
        return {"tools": self.tools, "prompts": self.prompts, "resources": self.resources}

    def handlers(self) -> dict[str, RequestHandler]:
        """The methods of the items."""
        return {
            "tools/list": self.tools.list,
            "tools/call": self.tools.call,
            "prompts/list": self.prompts.list,
            "prompts/get": self.prompts.get,
            "resources/list": self.resources.list,
            "resources/templates/list": self.resources.list_templates,
            "resources/read": self.resources.read,
        }


def include(target: Registries, source: Registries, prefix: str | None) -> None:
    """Copy tools, prompts and resources. Raises DefinitionError, before anything is copied, for names that are taken."""
    names = Prefix(prefix)
    tools = {names.name(name): entry for name, entry in source.tools.all.items()}
    prompts = {names.name(name): entry for name, entry in source.prompts.all.items()}
    resources = {names.uri(uri): IncludedResource(entry, names) for uri, entry in source.resources.all.items()}
    _check("tool", tools, target.tools)
    _check("prompt", prompts, target.prompts)
    _check("resource", resources, target.resources)
    for name, tool in tools.items():
        made = copy.copy(tool)
        made.item = _renamed(tool.item, name, names.listed(LISTS["tools"], tool.item.listing))
        made.run = _outward(tool.run, names)
        target.tools.register(name, made)
    for (inner, prompt), name in zip(source.prompts.all.items(), prompts, strict=True):
        copied = copy.copy(prompt)
        copied.item = _renamed(prompt.item, name, names.listed(LISTS["prompts"], prompt.item.listing))
        copied.run = _outward(prompt.run, names)
        if target.prompts.register(name, copied):
            target.completions.prompts[name] = dict(source.completions.prompts[inner])
    for uri, resource in resources.items():
        inner = names.inner_uri(uri) or uri
        if target.resources.adopt(uri, resource, source.resources.existence(inner)):
            target.completions.resources[uri] = dict(source.completions.resources[inner])
    target.folders.update(names.uri(uri) for uri in source.folders)


def _check(what: str, entries: Mapping[str, Any], registered: Entries[Any]) -> None:
    for name, entry in entries.items():
        existing = registered.all.get(name)
        if existing is not None and registered.on_duplicate == "error":
            raise DefinitionError(
                f"There are two of the {what} {name!r}: {_name_of(existing.function)}, which is here, and "
                f"{_name_of(entry.function)}, to be included: give a prefix, or another name to one of them"
            )


def _name_of(function: object) -> str:
    plain = getattr(function, "__func__", function)
    return f"{getattr(plain, '__module__', '?')}.{getattr(plain, '__qualname__', type(plain).__qualname__)}"


def _renamed(item: Item, name: str, listing: Any) -> Item:
    made = copy.copy(item)
    made.name = name
    made.listing = listing
    return made


def _outward(run: Callable[..., Any], prefix: Prefix) -> Any:
    """The same function, with the prefix on the URIs of its result."""
    if prefix.text is None:
        return run

    async def outward(ctx: Context[Any], arguments: dict[str, Any]) -> Any:
        return prefix.result(await run(ctx, arguments))

    return outward
