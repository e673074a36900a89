"""What the adapters share: the tools of a client, converted once and chosen; calls whose errors are meant for the model."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET

from gemel.client.content import content_to_text
from gemel.client.group.group import ClientGroup
from gemel.client.group.names import CHANGED, name_for_models, names_for_models
from gemel.client.methods import ClientMethods
from gemel.errors import DefinitionError, InvalidParams, PeerError
from gemel.schema.content import EmbeddedResource, TextContent
from gemel.schema.resources import ReadResourceResult
from gemel.schema.tools import CallToolResult, Tool, ToolAnnotations
from gemel.sync import Client as SyncClient
from gemel.sync import ClientGroup as SyncClientGroup
from gemel.version import install_command

#: What an adapter takes: one server, or several.
AnyClient: TypeAlias = ClientMethods | ClientGroup
#: The same without async.
AnySyncClient: TypeAlias = SyncClient | SyncClientGroup
#: Which tools a model gets: their names, or a function that decides about each.
Include: TypeAlias = Collection[str] | Callable[[Tool], bool]

AnyClientT = TypeVar("AnyClientT", bound=AnyClient | AnySyncClient)
ToolT = TypeVar("ToolT")

READ_RESOURCE = Tool(
    name="read_resource",
    description="Read a resource by its URI, for example one that the result of a tool links to.",
    input_schema={
        "type": "object",
        "properties": {"uri": {"type": "string", "description": "The URI of the resource."}},
        "required": ["uri"],
    },
    annotations=ToolAnnotations(read_only_hint=True),
)

#: Errors by which a server refuses what a model wrote: invalid params, an unknown tool, a resource that does not exist.
_FOR_THE_MODEL = frozenset({InvalidParams.code, -32002})


class _Tools(ABC, Generic[AnyClientT, ToolT]):
    """The tools of a client in the form of a framework. A tool is converted again only if the server changed it.

    Args:
        client: A connected client or client group.
        convert: Makes the framework's tool.
        include: The names of the tools to use, or a function of a tool; all by default.
        resources: Whether there is also a tool `read_resource`.
        model_names: Whether tools with names that models don't take get a short name.

    Raises:
        DefinitionError: `include` is neither names nor a function.
    """

    def __init__(
        self,
        client: AnyClientT,
        convert: Callable[[Tool], ToolT],
        *,
        include: Include | None,
        resources: bool,
        model_names: bool = True,
    ) -> None:
        if isinstance(include, str) or not (include is None or callable(include) or isinstance(include, Collection)):
            raise DefinitionError(f"include must be a list of names or a function of a Tool, got {include!r}")
        self.client = client
        self.resources = resources
        self._convert = convert
        self._include = include
        #: Whether the names of `include` were looked for.
        self._checked = False
        self._converted: dict[str, tuple[Tool, ToolT]] = {}
        self._model_names = model_names
        #: The names that the server uses, by those that were changed for models.
        self._own_names: dict[str, str] = {}

    def converted(self, tools: list[Tool]) -> list[ToolT]:
        """The framework's tools for a list. Raises DefinitionError if `include` names a tool that the first list lacks."""
        names = names_for_models(tool.name for tool in tools) if self._model_names else {}
        self._own_names = {short: name for name, short in names.items() if short != name}
        chosen = [
            msgspec.structs.replace(tool, name=names[tool.name]) if tool.name in self._own_names.values() else tool
            for tool in tools
            if self._includes(tool)
        ]
        if self.resources:
            if any(tool.name == READ_RESOURCE.name for tool in chosen):
                raise DefinitionError("resources=True adds a tool 'read_resource', but the server has one of this name")
            chosen.append(READ_RESOURCE)
        if not self._checked and isinstance(self._include, Collection):
            listed = {self.own_name(tool.name) for tool in chosen}
            missing = sorted(name for name in self._include if listed.isdisjoint(self._names_of(name)))
            if missing:
                shown = ", ".join(repr(tool.name) for tool in tools)
                raise DefinitionError(f"include has {missing[0]!r}, but the tools are {shown or 'none'}")
        self._checked = True
        before, self._converted = self._converted, {}
        for tool in chosen:
            last = before.get(tool.name)
            self._converted[tool.name] = last if last and last[0] == tool else (tool, self._convert(tool))
        return [converted for _, converted in self._converted.values()]

    def _includes(self, tool: Tool) -> bool:
        if self._include is None:
            return True
        if callable(self._include):
            return self._include(tool)
        return any(tool.name in self._names_of(name) for name in self._include)

    def _names_of(self, name: str) -> tuple[str, ...]:
        """The names that a tool of `include` may have in a list: the same, its own behind a short one, a short one of a group."""
        return (name, self.own_name(name), name_for_models(name)) if self._model_names else (name,)

    def is_unlisted(self, name: str) -> bool:
        """Whether a name is one that was changed for models, of a list that was read elsewhere."""
        return self._model_names and not self._checked and CHANGED.search(name) is not None

    def own_name(self, name: str) -> str:
        """The name that the client uses for a tool."""
        return self._own_names.get(name, name)

    def reads(self, name: str) -> bool:
        """Whether a name is that of the tool `read_resource`."""
        return self.resources and name == READ_RESOURCE.name

    @abstractmethod
    def list(self) -> Any:
        """List the tools, as the client does."""


class AsyncTools(_Tools[AnyClient, ToolT]):
    """The tools of an async client."""

    async def list(self) -> list[ToolT]:
        """List the tools. Raises what `list_tools` raises."""
        return self.converted(await self.client.list_tools())

    async def call(
        self, name: str, arguments: Mapping[str, Any] | None, meta: Mapping[str, Any] | None = None
    ) -> CallToolResult:
        """Call a tool. `is_error` says that the content is an error for the model; other errors are raised."""
        try:
            if self.reads(name):
                return _contents(await self.client.read_resource(_uri(arguments)))
            if self.is_unlisted(name):
                await self.list()
            return await self.client.call_tool(self.own_name(name), arguments, raise_on_error=False, meta=meta)
        except PeerError as exc:
            return _refusal(exc)


class SyncTools(_Tools[AnySyncClient, ToolT]):
    """The tools of a client without async."""

    def list(self) -> list[ToolT]:
        """List the tools. Raises what `list_tools` raises."""
        return self.converted(self.client.list_tools())

    def call(self, name: str, arguments: Mapping[str, Any] | None) -> CallToolResult:
        """Call a tool. `is_error` says that the content is an error for the model; other errors are raised."""
        try:
            if self.reads(name):
                return _contents(self.client.read_resource(_uri(arguments)))
            if self.is_unlisted(name):
                self.list()
            return self.client.call_tool(self.own_name(name), arguments, raise_on_error=False)
        except PeerError as exc:
            return _refusal(exc)

    async def call_in_thread(self, name: str, arguments: Mapping[str, Any] | None) -> CallToolResult:
        """Call a tool without blocking the event loop."""
        return await asyncio.to_thread(self.call, name, arguments)


def _uri(arguments: Mapping[str, Any] | None) -> str:
    return str((arguments or {}).get("uri", ""))


def _contents(result: ReadResourceResult) -> CallToolResult:
    return CallToolResult(content=[EmbeddedResource(resource=contents) for contents in result.contents])


def _refusal(error: PeerError) -> CallToolResult:
    """The refusal as the error of a tool. Raises the error if it is not the model's."""
    if error.code not in _FOR_THE_MODEL:
        raise error
    return CallToolResult(content=[TextContent(text=error.description)], is_error=True)


def text_for_model(result: CallToolResult) -> str:
    """The whole result as text: other content in brackets, and never empty for an error."""
    return content_to_text(result) or ("The tool failed without a message" if result.is_error else "")


def description_of(tool: Tool) -> str:
    """The description, or what stands in for it where a framework demands one."""
    return tool.description or tool.display_name


def metadata_of(tool: Tool) -> dict[str, Any]:
    """The annotations of a tool, and its `_meta`, as on the wire."""
    annotations: dict[str, Any] = {} if tool.annotations is None else msgspec.to_builtins(tool.annotations)
    return {**annotations, **({"_meta": tool.meta} if tool.meta else {})}


def structured_of(result: CallToolResult) -> Any:
    """The structured content; None if there is none."""
    return None if result.structured_content is UNSET else result.structured_content


def missing_package(error: ModuleNotFoundError, module: str, package: str, extra: str) -> ImportError:
    """What to raise when a framework can't be imported.

    Args:
        error: What was raised.
        module: The module of the framework.
        package: Its package.
        extra: The extra of Gemel that has it.

    Returns:
        One line that says what to install; the error itself if the framework is there and something else is not.
    """
    top = module.partition(".")[0]
    if error.name is None or (not f"{module}.".startswith(f"{error.name}.") and error.name.partition(".")[0] != top):
        return error
    text = f"gemel.adapters.{extra.replace('-', '_')} needs {package}: {install_command(extra)}"
    return ImportError(text, name=error.name)
