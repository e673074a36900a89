"""The typed methods of a client: tools, resources, prompts, completion, and what is known about the server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, TypeVar, Unpack, overload

import msgspec
from msgspec import UNSET

from hinge.client.cache import CacheMode
from hinge.client.call_options import CallOptions, RequestOptions
from hinge.client.negotiation import Discovery
from hinge.client.pagination import PageT
from hinge.client.tools import ToolIndex
from hinge.errors import DefinitionError, InvalidResponse, ToolCallError, shorten
from hinge.protocol.eras.base import EraName
from hinge.schema.base import Implementation
from hinge.schema.completion import CompleteResult, Completion
from hinge.schema.content import ResourceLink
from hinge.schema.lifecycle import ServerCapabilities
from hinge.schema.prompts import GetPromptResult, ListPromptsResult, Prompt
from hinge.schema.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
)
from hinge.schema.tools import CallToolResult, ListToolsResult, Tool

ReturnT = TypeVar("ReturnT")
ResultT = TypeVar("ResultT")


class ClientMethods(ABC):
    """The typed methods of a client, on top of `request`.

    Every method that sends a request takes the options of `CallOptions`: `idle`, `total`, `on_progress`, `meta` and
    `headers`. The `total` of a list is the limit of all its pages.

    Args:
        check_results: Whether structured content is checked against the output schema of its tool.
    """

    def __init__(self, *, check_results: bool) -> None:
        self._tools = ToolIndex()
        self._check_results = check_results

    # ---------------------------------------------------------------- what a client provides

    @property
    @abstractmethod
    def discovery(self) -> Discovery:
        """What the negotiation found out. Save it and pass it as `discovery=` to connect later without a round trip.

        Raises:
            NotSent: The client was not connected yet.
        """

    @property
    @abstractmethod
    def mirrors_arguments(self) -> bool:
        """Whether HTTP headers repeat tool arguments: in the stateless era over HTTP."""

    @overload
    @abstractmethod
    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        result: type[ResultT],
        **options: Unpack[RequestOptions],
    ) -> ResultT: ...

    @overload
    @abstractmethod
    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        result: None = None,
        **options: Unpack[RequestOptions],
    ) -> dict[str, Any]: ...

    @abstractmethod
    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, result: Any = None, **options: Any
    ) -> Any:
        """Send any request; see `Client.request`."""

    @abstractmethod
    async def request_pages(
        self, method: str, page: type[PageT], *, cache: CacheMode = "use", **options: Unpack[CallOptions]
    ) -> list[PageT]:
        """Request all pages of a list; see `Client.request_pages`."""

    @abstractmethod
    async def notify(
        self, method: str, params: Mapping[str, Any] | None = None, *, meta: Mapping[str, Any] | None = None
    ) -> None:
        """Send any notification; see `Client.notify`."""

    # ---------------------------------------------------------------- the server

    @property
    def era(self) -> EraName:
        """The protocol generation in use: "2025" (handshake) or "2026" (stateless)."""
        return self.discovery.era

    @property
    def protocol_version(self) -> str:
        """The protocol revision in use, for example "2026-07-28"."""
        return self.discovery.revision

    @property
    def server_info(self) -> Implementation | None:
        """The name and version that the server gives itself, for display only."""
        return self.discovery.server_info

    @property
    def server_capabilities(self) -> ServerCapabilities:
        """The capabilities that the server declares."""
        return self.discovery.capabilities

    @property
    def instructions(self) -> str | None:
        """How the server wants to be used, in its own words."""
        return self.discovery.instructions

    def server_extension(self, extension_id: str) -> dict[str, Any] | None:
        """Get the server's settings of a protocol extension.

        Args:
            extension_id: The id of the extension, for example "io.modelcontextprotocol/ui".

        Returns:
            The settings, or None if the server does not declare the extension.
        """
        offered = self.discovery.capabilities.extensions
        return offered.get(extension_id) if offered else None

    # ---------------------------------------------------------------- tools

    async def list_tools(self, *, cache: CacheMode = "use", **options: Unpack[CallOptions]) -> list[Tool]:
        """List all tools, over all pages (`tools/list`).

        Over HTTP in the stateless era, tools whose `x-mcp-header` annotations are invalid are left out and logged.

        Args:
            cache: "use" the cache of the client, "refresh" it, or "bypass" it.
            **options: See `CallOptions`.

        Returns:
            The tools, in the order of the server.

        Raises:
            CallError: The list could not be fetched.
        """
        pages = await self.request_pages("tools/list", ListToolsResult, cache=cache, **options)
        return self._tools.take([tool for page in pages for tool in page.tools], mirrored=self.mirrors_arguments)

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        returns: type[ReturnT],
        **options: Unpack[CallOptions],
    ) -> ReturnT: ...

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        raise_on_error: bool = True,
        **options: Unpack[CallOptions],
    ) -> CallToolResult: ...

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        returns: Any = None,
        raise_on_error: bool = True,
        **options: Unpack[CallOptions],
    ) -> Any:
        """Call a tool (`tools/call`).

        A call is repeated after a lost connection only if it did not run, or if the tool was listed as read-only or
        idempotent.

        Args:
            name: The name of the tool.
            arguments: The arguments, by name.
            returns: The type of the structured content: with `returns=Day` the result is a Day. A dataclass, a TypedDict, a
                msgspec struct, a pydantic model or a built-in type.
            raise_on_error: Whether a result that is marked as an error raises ToolCallError.
            **options: See `CallOptions`.

        Returns:
            The result with `content`, `structured_content`, `text` and `data`, or with `returns` the value.

        Raises:
            ToolCallError: The tool reported an error. It is a ToolError, too.
            InvalidResponse: The structured content does not fit the output schema of the listed tool, or `returns`.
            CallError: There is no result; `outcome` says whether the tool may have run.
            DefinitionError: The arguments are not a mapping.

        Example:
            >>> result = await client.call_tool("forecast", {"city": "Oslo"})
            >>> result.data
        """
        given = _arguments(arguments, name)
        known = self._tools.known.get(name)
        result: CallToolResult = await self.request(
            "tools/call",
            {"name": name, "arguments": given},
            result=CallToolResult,
            safe=known is not None and known.safe,
            **options,
        )
        if result.is_error and (raise_on_error or returns is not None):
            raise ToolCallError(result.text or f"Tool {name!r} failed without a message", result)
        if known is not None and self._check_results:
            known.check(result)
        return result if returns is None else _converted(returns, result, name)

    # ---------------------------------------------------------------- resources

    async def list_resources(self, *, cache: CacheMode = "use", **options: Unpack[CallOptions]) -> list[Resource]:
        """List all resources, over all pages (`resources/list`).

        Args:
            cache: "use" the cache of the client, "refresh" it, or "bypass" it.
            **options: See `CallOptions`.

        Returns:
            The resources, in the order of the server.

        Raises:
            CallError: The list could not be fetched.
        """
        pages = await self.request_pages("resources/list", ListResourcesResult, cache=cache, **options)
        return [item for page in pages for item in page.resources]

    async def list_resource_templates(
        self, *, cache: CacheMode = "use", **options: Unpack[CallOptions]
    ) -> list[ResourceTemplate]:
        """List all resource templates, over all pages (`resources/templates/list`).

        Args:
            cache: "use" the cache of the client, "refresh" it, or "bypass" it.
            **options: See `CallOptions`.

        Returns:
            The resource templates, in the order of the server.

        Raises:
            CallError: The list could not be fetched.
        """
        pages = await self.request_pages(
            "resources/templates/list", ListResourceTemplatesResult, cache=cache, **options
        )
        return [item for page in pages for item in page.resource_templates]

    async def read_resource(
        self, uri: str | Resource | ResourceLink, *, cache: CacheMode = "use", **options: Unpack[CallOptions]
    ) -> ReadResourceResult:
        """Read a resource (`resources/read`).

        Args:
            uri: The URI, a listed resource, or a link from a result.
            cache: "use" the cache of the client, "refresh" it, or "bypass" it.
            **options: See `CallOptions`.

        Returns:
            The contents.

        Raises:
            PeerError: There is no such resource, see `is_not_found`, or the server failed.
            CallError: There is no result for another reason.
        """
        params = {"uri": uri if isinstance(uri, str) else uri.uri}
        return await self.request("resources/read", params, result=ReadResourceResult, cache=cache, **options)

    # ---------------------------------------------------------------- prompts

    async def list_prompts(self, *, cache: CacheMode = "use", **options: Unpack[CallOptions]) -> list[Prompt]:
        """List all prompts, over all pages (`prompts/list`).

        Args:
            cache: "use" the cache of the client, "refresh" it, or "bypass" it.
            **options: See `CallOptions`.

        Returns:
            The prompts, in the order of the server.

        Raises:
            CallError: The list could not be fetched.
        """
        pages = await self.request_pages("prompts/list", ListPromptsResult, cache=cache, **options)
        return [item for page in pages for item in page.prompts]

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        **options: Unpack[CallOptions],
    ) -> GetPromptResult:
        """Get the messages of a prompt (`prompts/get`).

        Args:
            name: The name of the prompt.
            arguments: The arguments, by name; their values are strings.
            **options: See `CallOptions`.

        Returns:
            The messages.

        Raises:
            CallError: There is no result.
            DefinitionError: The arguments are not a mapping of strings.
        """
        params: dict[str, Any] = {"name": name}
        if arguments is not None:
            params["arguments"] = given = _arguments(arguments, name)
            for argument, value in given.items():
                if not isinstance(value, str):
                    raise DefinitionError(
                        f"Prompt {name!r}: {argument!r} is {value!r}; the arguments of prompts are strings"
                    )
        return await self.request("prompts/get", params, result=GetPromptResult, **options)

    async def complete(
        self,
        *,
        argument: str,
        value: str = "",
        prompt: str | None = None,
        resource: str | None = None,
        given: Mapping[str, str] | None = None,
        **options: Unpack[CallOptions],
    ) -> Completion:
        """Get suggestions for an argument of a prompt or a variable of a resource template (`completion/complete`).

        Args:
            argument: The name of the argument or variable.
            value: What was typed so far.
            prompt: The name of the prompt; either this or `resource`.
            resource: The URI template of the resource.
            given: The values of other arguments.
            **options: See `CallOptions`.

        Returns:
            The suggestions.

        Raises:
            CallError: There is no result.
            ValueError: Both or neither of `prompt` and `resource` are given.
        """
        if (prompt is None) == (resource is None):
            raise ValueError("Say what to complete: prompt=… or resource=…, one of them")
        ref = {"type": "ref/prompt", "name": prompt} if prompt else {"type": "ref/resource", "uri": resource}
        params: dict[str, Any] = {"ref": ref, "argument": {"name": argument, "value": value}}
        if given is not None:
            params["context"] = {"arguments": dict(given)}
        found = await self.request("completion/complete", params, result=CompleteResult, **options)
        return found.completion


def _arguments(arguments: Mapping[str, Any] | None, name: str) -> dict[str, Any]:
    if arguments is not None and not isinstance(arguments, Mapping):
        raise DefinitionError(f"The arguments for {name!r} must be a mapping, not {type(arguments).__name__}")
    return dict(arguments or {})


def _converted(kind: Any, result: CallToolResult, name: str) -> Any:
    """The structured content as the caller's type. Raises InvalidResponse."""
    try:
        value = result.structured_content
        if value is UNSET:  # revisions before 2025-06-18 have no structured content: the text is the same as JSON
            value = result.text if kind is str else msgspec.json.decode(result.text)
        validate = getattr(kind, "model_validate", None)
        if validate is not None:
            return validate(value)
        return msgspec.convert(value, kind)
    except ValueError as exc:  # of msgspec and of pydantic
        raise InvalidResponse(
            f"Tool {name!r}: the result is not a valid {getattr(kind, '__name__', kind)}: {shorten(str(exc))}"
        ) from exc


def is_not_found(error: Exception) -> bool:
    """Tell whether an error says that a resource does not exist.

    The code is -32602 in the stateless revision and -32002 before.

    Args:
        error: An error that `read_resource` raised.

    Returns:
        True if the server answered that there is no such resource.
    """
    code, data = getattr(error, "code", None), getattr(error, "data", None)
    return code == -32002 or (code == -32602 and isinstance(data, dict) and "uri" in data)
