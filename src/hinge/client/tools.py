"""What a client knows of the server's tools from the last listing: which arguments go into headers, which calls are safe to
repeat, and what their results must look like."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from hinge.errors import DefinitionError, InvalidResponse, shorten
from hinge.protocol.http.parameters import ParamHeader, collect_param_headers, param_headers
from hinge.protocol.validation import compile_schema, first_problem
from hinge.schema.tools import CallToolResult, Tool

if TYPE_CHECKING:
    import jsonschema_rs

logger = logging.getLogger("hinge")


class KnownTool:
    """One listed tool."""

    __slots__ = ("_compiled_once", "_validator", "headers", "tool")

    def __init__(self, tool: Tool, headers: tuple[ParamHeader, ...]) -> None:
        self.tool = tool
        self.headers = headers
        self._validator: jsonschema_rs.Validator | None = None
        self._compiled_once = False

    @property
    def safe(self) -> bool:
        """Whether a call may be repeated when its outcome is unknown: by the server's own word (TOOL-10)."""
        hints = self.tool.annotations
        return hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)

    def check(self, result: CallToolResult) -> None:
        """Structured content must fit the output schema (TOOL-16). Raises InvalidResponse."""
        schema = self.tool.output_schema
        if schema is None or result.is_error:
            return
        if result.structured_content is UNSET:
            raise InvalidResponse(
                f"Tool {self.tool.name!r} has an output schema, but answered without structured content"
            )
        validator = self._compiled(schema)
        if validator is None:
            return
        problem = first_problem(validator, result.structured_content)
        if problem is not None:
            raise InvalidResponse(f"Tool {self.tool.name!r}: the result doesn't fit its output schema: {problem}")

    def _compiled(self, schema: Any) -> jsonschema_rs.Validator | None:
        if not self._compiled_once:
            self._compiled_once = True
            self._validator = _compile(schema, self.tool.name)
        return self._validator


def _compile(schema: Any, name: str) -> jsonschema_rs.Validator | None:
    """A bounded validator, or None with a word in the log."""
    try:
        return compile_schema(schema)
    except ValueError as exc:
        logger.warning("Tool %r: its results are not checked: %s", shorten(name), exc)
        return None


class ToolIndex:
    """The tools of the last listing, by name."""

    def __init__(self) -> None:
        self._known: dict[str, KnownTool] = {}

    def take(self, tools: Iterable[Tool], *, mirrored: bool) -> list[Tool]:
        """Remember a listing; where arguments go into headers, leave out tools whose annotations are invalid (HDR-15)."""
        self._known = {}
        kept: list[Tool] = []
        for tool in tools:
            headers: tuple[ParamHeader, ...] = ()
            try:
                headers = collect_param_headers(tool.input_schema)
            except DefinitionError as exc:
                if mirrored:
                    logger.warning("Tool %r is left out: %s", shorten(tool.name), exc)
                    continue
            self._known[tool.name] = KnownTool(tool, headers)
            kept.append(tool)
        return kept

    def get(self, name: str) -> KnownTool | None:
        """What is known of a tool; None for one that wasn't listed."""
        return self._known.get(name)

    def headers(self, name: str, arguments: Mapping[str, Any]) -> dict[str, str]:
        """The headers that mirror a call's arguments (HDR-13, HDR-14); none for an unknown tool."""
        known = self._known.get(name)
        return param_headers(known.headers, arguments) if known is not None and known.headers else {}
