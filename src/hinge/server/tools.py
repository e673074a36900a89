"""Tools: registering functions, listing them, calling them. Knows nothing of eras, channels or the wire's envelope."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET

from hinge.errors import DefinitionError, InvalidArguments, InvalidParams, ProtocolError, ToolError, shorten
from hinge.protocol.param_headers import check_param_headers, collect_param_headers
from hinge.schema.content import ContentBlock, TextContent
from hinge.schema.revisions import knows
from hinge.schema.tools import CallToolParams, CallToolResult, ListToolsResult, Tool, ToolAnnotations
from hinge.server.context import Context
from hinge.server.pages import paginate
from hinge.server.registration import as_blocks, icons_of, is_context
from hinge.server.schema_arguments import SchemaArguments
from hinge.server.signature import Signature, inspect_function
from hinge.server.threads import Threads

logger = logging.getLogger("hinge")

#: TOOL-09
_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,128}\Z")

ToolFunction: TypeAlias = Callable[..., Any]


class RegisteredTool:
    """A tool as it is served: its listing, its typed arguments, its function."""

    __slots__ = ("_injected", "_inline", "arguments", "function", "header_params", "signature", "tool")

    def __init__(
        self,
        function: ToolFunction,
        tool: Tool,
        signature: Signature,
        reader: Signature | SchemaArguments,
        *,
        blocking: bool,
    ) -> None:
        self.function = function
        self.tool = tool
        self.signature = signature
        #: From JSON text to checked keyword arguments.
        self.arguments = reader.arguments
        self._injected = tuple(signature.injected)
        self._inline = signature.is_async or not blocking
        self.header_params = collect_param_headers(tool.input_schema)

    async def call(self, ctx: Context[Any], arguments: dict[str, Any], threads: Threads) -> CallToolResult:
        """Run the function with checked arguments and turn what it returns into a result."""
        for name in self._injected:
            arguments[name] = ctx
        if self._inline:
            value = self.function(**arguments)
        else:
            value = await threads.run(self.function, arguments)
        if self.signature.is_async or isinstance(value, Awaitable):  # also of a plain function around an async one
            value = await value
        return self.result(value)

    def result(self, value: Any) -> CallToolResult:
        """A returned value as content and, where the tool has an output schema, as structured content (TOOL-15, TOOL-17)."""
        if isinstance(value, CallToolResult):
            return value
        if self.signature.output_schema is None:
            blocks = as_blocks(value)
            if blocks is not None:
                return CallToolResult(content=blocks)
        encoded = self.signature.encode(value)
        text: list[ContentBlock] = [TextContent(text=encoded.text)]
        structured = encoded.structured if self.tool.output_schema is not None else UNSET
        return CallToolResult(content=text, structured_content=structured)


class Tools:
    """The tools of one server."""

    def __init__(self, threads: Threads, changed: Callable[[], None], page_size: int | None) -> None:
        self._tools: dict[str, RegisteredTool] = {}
        self._threads = threads
        self._changed = changed
        self._page_size = page_size
        self._listed: list[Tool] | None = None

    def __len__(self) -> int:
        return len(self._tools)

    def add(
        self,
        function: ToolFunction,
        *,
        name: str | None = None,
        description: str | None = None,
        blocking: bool = True,
        listing: Mapping[str, Any],
    ) -> RegisteredTool:
        """Register a function. Raises DefinitionError with one line that says what to change."""
        given = listing.get("input_schema")
        signature = inspect_function(function, injected=is_context, name=name)
        found = signature.name
        if found == "<lambda>":
            raise DefinitionError('A tool needs a name: write server.tool("name")(function)')
        if not _NAME.match(found):
            raise DefinitionError(
                f"Tool name {shorten(found)!r} is not allowed: use 1 to 128 of A-Z a-z 0-9 _ - . (no blanks)"
            )
        if found in self._tools:
            raise DefinitionError(f"There is a tool {found!r} already: give this one another name, or remove the first")
        reader = signature if given is None else SchemaArguments(signature, given, found)
        tool = Tool(
            name=found,
            description=description if description is not None else signature.description,
            **_listing(signature, listing),
        )
        try:
            registered = RegisteredTool(function, tool, signature, reader, blocking=blocking)
        except ValueError as exc:
            raise DefinitionError(f"Tool {found!r}: {exc}") from exc
        self._tools[found] = registered
        self._change()
        return registered

    def remove(self, name: str) -> None:
        """Take a tool away. Raises KeyError when there is none of that name."""
        del self._tools[name]
        self._change()

    def _change(self) -> None:
        self._listed = None
        self._changed()

    async def list(self, ctx: Context[Any], params: Any) -> ListToolsResult:
        """`tools/list`, in the order of registration (TOOL-03)."""
        if self._listed is None:
            self._listed = [entry.tool for entry in self._tools.values()]
        page, cursor = paginate(self._listed, params.cursor, self._page_size)
        return ListToolsResult(tools=page, next_cursor=cursor)

    async def call(self, ctx: Context[Any], params: CallToolParams) -> CallToolResult:
        """`tools/call`: an unknown tool is an error, a failing one a result (TOOL-18, TOOL-19, TOOL-21)."""
        entry = self._tools.get(params.name)
        if entry is None:
            raise InvalidParams(_unknown(params.name, self._tools))
        if entry.header_params and ctx.call.era == "2026" and ctx.call.origin.headers is not None:
            check_param_headers(entry.header_params, ctx.call.origin.headers, msgspec.json.decode(params.arguments))
        try:
            arguments = entry.arguments(params.arguments)
        except InvalidArguments as exc:
            if not knows(ctx.protocol_version, "argument results"):
                raise InvalidArguments(exc.problems, params.name) from None
            return failure(str(InvalidArguments(exc.problems, params.name)))
        try:
            return await entry.call(ctx, arguments, self._threads)
        except ToolError as exc:
            return failure(str(exc))
        except ProtocolError:
            raise
        except Exception:
            logger.exception("Tool %r failed", params.name)
            return failure(f"Tool {params.name!r} failed unexpectedly. The server's log tells why.")


def failure(text: str) -> CallToolResult:
    """A result that says the tool failed, in words for the model."""
    return CallToolResult(content=[TextContent(text=text)], is_error=True)


def _unknown(name: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name[:128], known, n=1)
    hint = f". Did you mean {near[0]!r}?" if near else ""
    return f"Unknown tool: {shorten(name)}{hint}"


def _listing(signature: Signature, listing: Mapping[str, Any]) -> dict[str, Any]:
    annotations = listing.get("annotations")
    if isinstance(annotations, Mapping):
        annotations = msgspec.convert(annotations, ToolAnnotations)
    output = listing.get("output_schema", UNSET)
    return {
        "input_schema": listing.get("input_schema") or signature.input_schema,
        "output_schema": signature.output_schema if output is UNSET else output,
        "title": listing.get("title"),
        "annotations": annotations,
        "icons": icons_of(listing.get("icons")),
        "meta": listing.get("meta"),
    }
