"""What a client knows about the listed tools: arguments that headers repeat, calls that are safe to repeat, output schemas."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import UNSET

from hinge.errors import DefinitionError, InvalidResponse, shorten
from hinge.protocol.http.mirror import ParamHeader, collect_param_headers, param_headers
from hinge.protocol.validation import Validator, compile_schema, first_problem
from hinge.schema.tools import CallToolResult, Tool

logger = logging.getLogger("hinge")


class KnownTool:
    """One listed tool."""

    __slots__ = ("_compiled_once", "_validator", "headers", "tool")

    def __init__(self, tool: Tool, headers: tuple[ParamHeader, ...]) -> None:
        self.tool = tool
        self.headers = headers
        self._validator: Validator | None = None
        self._compiled_once = False

    @property
    def safe(self) -> bool:
        """Whether a call may be repeated when its outcome is unknown, by the hints of the server."""
        hints = self.tool.annotations
        return hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)

    def check(self, result: CallToolResult) -> None:
        """Validate structured content against the output schema. Raises InvalidResponse."""
        schema = self.tool.output_schema
        if schema is None or result.is_error:
            return
        if result.structured_content is UNSET:
            raise InvalidResponse(
                f"Tool {self.tool.name!r} has an output schema, but its result has no structured content"
            )
        validator = self._compiled(schema)
        if validator is None:
            return
        problem = first_problem(validator, result.structured_content)
        if problem is not None:
            raise InvalidResponse(f"Tool {self.tool.name!r}: the result does not fit its output schema: {problem}")

    def _compiled(self, schema: Any) -> Validator | None:
        if not self._compiled_once:
            self._compiled_once = True
            self._validator = _compile(schema, self.tool.name)
        return self._validator


def _compile(schema: Any, name: str) -> Validator | None:
    """A bounded validator; None, with a log message, for a schema that can't be used."""
    try:
        return compile_schema(schema)
    except ValueError as exc:
        logger.warning("Tool %r: its results are not validated: %s", shorten(name), exc)
        return None


class ToolIndex:
    """The tools of the last listing."""

    def __init__(self) -> None:
        self.by_name: dict[str, KnownTool] = {}
        #: Whom they were requested for: another caller may have other tools.
        self.caller: tuple[str, tuple[tuple[str, str], ...]] = "", ()

    def take(self, tools: Iterable[Tool], *, mirrored: bool) -> list[Tool]:
        """Replace the tools. If headers repeat arguments, tools with invalid annotations for that are left out and logged."""
        self.by_name = {}
        kept: list[Tool] = []
        for tool in tools:
            headers: tuple[ParamHeader, ...] = ()
            try:
                headers = collect_param_headers(tool.input_schema)
            except DefinitionError as exc:
                if mirrored:
                    logger.warning("Tool %r is left out: %s", shorten(tool.name), exc)
                    continue
            self.by_name[tool.name] = KnownTool(tool, headers)
            kept.append(tool)
        return kept

    def headers(self, name: str, arguments: Mapping[str, Any]) -> dict[str, str]:
        """The headers that repeat the arguments of a call; none for an unknown tool."""
        tool = self.by_name.get(name)
        return param_headers(tool.headers, arguments) if tool is not None and tool.headers else {}
