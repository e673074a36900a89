"""What a client knows of the server's tools from the last listing: which arguments go into headers, which calls are safe to
repeat, and what their results must look like."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from hinge.errors import DefinitionError, InvalidResponse, shorten
from hinge.protocol.param_headers import ParamHeader, collect_param_headers, param_headers
from hinge.schema.tools import CallToolResult, Tool

if TYPE_CHECKING:
    import jsonschema_rs

logger = logging.getLogger("hinge")

#: A schema of the server's beyond this many bytes is not compiled: its results go unchecked, with a word in the log.
MAX_SCHEMA = 1024 * 1024
MAX_DEPTH = 64


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
        problem = next(iter(validator.iter_errors(result.structured_content)), None)
        if problem is not None:
            place = ".".join(map(str, problem.instance_path)) or "the result"
            raise InvalidResponse(
                f"Tool {self.tool.name!r}: {place} doesn't fit its output schema: {shorten(problem.message)}"
            )

    def _compiled(self, schema: Any) -> jsonschema_rs.Validator | None:
        if not self._compiled_once:
            self._compiled_once = True
            self._validator = _compile(schema, self.tool.name)
        return self._validator


def _compile(schema: Any, name: str) -> jsonschema_rs.Validator | None:
    """A validator with bounds: no remote references, no deep or huge schemas, patterns in linear time (JSON-02…JSON-04)."""
    import jsonschema_rs
    import msgspec

    if len(msgspec.json.encode(schema)) > MAX_SCHEMA or _depth(schema) > MAX_DEPTH:
        logger.warning("Tool %r: its output schema is too large to be checked", name)
        return None
    try:
        linear = jsonschema_rs.RegexOptions()
        return jsonschema_rs.validator_for(schema, retriever=_refuse, pattern_options=linear)
    except Exception as exc:
        logger.warning("Tool %r: its output schema can't be used: %s", name, shorten(str(exc)))
        return None


def _refuse(uri: str) -> Any:
    raise ValueError(f"remote references are not followed: {shorten(uri)}")


def _depth(schema: Any) -> int:
    deepest, left = 0, [(schema, 1)]
    while left and deepest <= MAX_DEPTH:
        item, depth = left.pop()
        deepest = max(deepest, depth)
        inner: Iterable[Any] = ()
        if isinstance(item, dict):
            inner = item.values()
        elif isinstance(item, list):
            inner = item
        left.extend((one, depth + 1) for one in inner)
    return deepest


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
