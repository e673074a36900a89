"""What a client asks of a server, method by method, typed. How asking works is in `requests`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Any, TypeVar, Unpack, overload

import msgspec
from msgspec import UNSET

from hinge.client.cache import CacheMode
from hinge.client.pagination import PageT, all_pages
from hinge.client.requests import CallOptions
from hinge.client.tools import ToolIndex
from hinge.errors import DefinitionError, InvalidResponse, ToolCallError, shorten
from hinge.protocol.limits import Limits
from hinge.schema.completion import CompleteResult, Completion
from hinge.schema.content import ResourceLink
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


class Features(ABC):
    """Tools, resources, prompts and completion of one server; the client says how to ask.

    Every method takes CallOptions: `idle`, `total`, `on_progress`, `meta`, `headers`. For a list, `total`
    is the limit of all its pages, everything else goes with each.
    """

    limits: Limits
    _tools: ToolIndex
    _check_results: bool

    @property
    @abstractmethod
    def mirrors(self) -> bool:
        """Whether arguments go into headers: the stateless era over HTTP."""

    @abstractmethod
    async def request(self, method: str, params: Mapping[str, Any] | None = None, **options: Any) -> Any:
        """One request, typed."""

    async def _pages(
        self, method: str, kind: type[PageT], cache: CacheMode, options: CallOptions | None = None
    ) -> list[PageT]:
        asking = partial(self.request, cache=cache)
        return await all_pages(asking, method, kind, self.limits, options or CallOptions())

    async def list_tools(self, *, cache: CacheMode = "use", **options: Unpack[CallOptions]) -> list[Tool]:
        """All tools, over all pages. Over HTTP, a tool whose header annotations are invalid is left out, with a log line."""
        pages = await self._pages("tools/list", ListToolsResult, cache, options)
        return self._tools.take([tool for page in pages for tool in page.tools], mirrored=self.mirrors)

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
        """Call a tool.

        The result has `content`, `structured_content`, `text` and `data`; with `returns=Day` it is a Day. `idle` and
        `total` are seconds without a word from the server, and at all (None: no limit). A result marked as an error
        raises ToolCallError, unless `raise_on_error=False`. Structured content is checked against the output schema of a
        tool that was listed. Raises a CallError, whose `outcome` says whether the tool may have run.
        """
        given = _arguments(arguments, name)
        known = self._tools.get(name)
        result: CallToolResult = await self.request(
            "tools/call",
            {"name": name, "arguments": given},
            result=CallToolResult,
            safe=known is not None and known.safe,
            **options,
        )
        if result.is_error and (raise_on_error or returns is not None):
            raise ToolCallError(result.text or f"Tool {name!r} failed without a word", result)
        if known is not None and self._check_results:
            known.check(result)
        return result if returns is None else _as(returns, result, name)

    async def list_resources(self, *, cache: CacheMode = "use", **options: Unpack[CallOptions]) -> list[Resource]:
        """All resources, over all pages."""
        pages = await self._pages("resources/list", ListResourcesResult, cache, options)
        return [item for page in pages for item in page.resources]

    async def list_resource_templates(
        self, *, cache: CacheMode = "use", **options: Unpack[CallOptions]
    ) -> list[ResourceTemplate]:
        """All resource templates, over all pages."""
        pages = await self._pages("resources/templates/list", ListResourceTemplatesResult, cache, options)
        return [item for page in pages for item in page.resource_templates]

    async def read_resource(
        self, uri: str | Resource | ResourceLink, *, cache: CacheMode = "use", **options: Unpack[CallOptions]
    ) -> ReadResourceResult:
        """What a resource holds: by its URI, as it was listed, or as a result links to it. Raises PeerError when there is
        none; see `is_not_found`."""
        params = {"uri": uri if isinstance(uri, str) else uri.uri}
        found: ReadResourceResult = await self.request(
            "resources/read", params, result=ReadResourceResult, cache=cache, **options
        )
        return found

    async def list_prompts(self, *, cache: CacheMode = "use", **options: Unpack[CallOptions]) -> list[Prompt]:
        """All prompts, over all pages."""
        pages = await self._pages("prompts/list", ListPromptsResult, cache, options)
        return [item for page in pages for item in page.prompts]

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        **options: Unpack[CallOptions],
    ) -> GetPromptResult:
        """The messages of a prompt; argument values are strings (PRM-03)."""
        params: dict[str, Any] = {"name": name}
        if arguments is not None:
            params["arguments"] = given = _arguments(arguments, name)
            for argument, value in given.items():
                if not isinstance(value, str):
                    raise DefinitionError(
                        f"Prompt {name!r}: {argument!r} is {value!r}; the arguments of prompts are strings"
                    )
        found: GetPromptResult = await self.request("prompts/get", params, result=GetPromptResult, **options)
        return found

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
        """Suggestions for an argument of a prompt, or a variable of a resource template; `given` are the others' values."""
        if (prompt is None) == (resource is None):
            raise ValueError("Say what to complete: prompt=… or resource=…, one of them")
        ref = {"type": "ref/prompt", "name": prompt} if prompt else {"type": "ref/resource", "uri": resource}
        params: dict[str, Any] = {"ref": ref, "argument": {"name": argument, "value": value}}
        if given is not None:
            params["context"] = {"arguments": dict(given)}
        found: CompleteResult = await self.request("completion/complete", params, result=CompleteResult, **options)
        return found.completion


def _arguments(arguments: Mapping[str, Any] | None, name: str) -> dict[str, Any]:
    if arguments is not None and not isinstance(arguments, Mapping):
        raise DefinitionError(
            f"The arguments for {name!r} must map names to values: a {type(arguments).__name__} doesn't"
        )
    return dict(arguments or {})


def _as(kind: Any, result: CallToolResult, name: str) -> Any:
    """The structured content as the caller's type; pydantic models read themselves."""
    try:
        value = result.structured_content
        if value is UNSET:  # an older revision had no place for it: the text says the same as JSON (TOOL-17)
            value = result.text if kind is str else msgspec.json.decode(result.text)
        validate = getattr(kind, "model_validate", None)
        if validate is not None:
            return validate(value)
        return msgspec.convert(value, kind)
    except ValueError as exc:  # msgspec's and pydantic's alike
        raise InvalidResponse(
            f"Tool {name!r}: the result is no {getattr(kind, '__name__', kind)}: {shorten(str(exc))}"
        ) from exc


def is_not_found(error: Exception) -> bool:
    """Whether a PeerError says that a resource doesn't exist, by the code of any revision (RES-07)."""
    code, data = getattr(error, "code", None), getattr(error, "data", None)
    return code == -32002 or (code == -32602 and isinstance(data, dict) and "uri" in data)
