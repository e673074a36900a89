"""What a client knows about the listed tools: arguments that headers repeat, calls that are safe to repeat, output schemas."""

from __future__ import annotations

import logging
import typing
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any

import msgspec
from msgspec import UNSET

from gemel.errors import DefinitionError, InvalidParams, InvalidResponse, MissingClientCapability, PeerError, shorten
from gemel.protocol.http.mirror import ParamHeader, collect_param_headers, may_annotate, param_headers
from gemel.protocol.peer_log import warn_about_peer
from gemel.protocol.validation import Validator, compile_schema, first_problem
from gemel.schema.content import TextContent
from gemel.schema.tools import CallToolResult, Tool, wraps_result
from gemel.values.encoding import NotSerializable, encode_value, plain_value
from gemel.values.reading import read_as, refusal_of

logger = logging.getLogger("gemel")


class KnownTool:
    """One listed tool."""

    __slots__ = ("_compiled_once", "_validator", "headers", "needs_task", "safe", "tool")

    def __init__(self, tool: Tool, headers: tuple[ParamHeader, ...] = ()) -> None:
        self.tool = tool
        self.headers = headers
        hints, execution = tool.annotations, tool.execution
        #: Whether a call may be repeated when its outcome is unknown, by the hints of the server.
        self.safe = hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)
        #: Whether a call must be a task (2025-11-25, "Tool-Level Negotiation").
        self.needs_task = execution is not None and execution.get("taskSupport") == "required"
        self._validator: Validator | None = None
        self._compiled_once = False

    @property
    def wraps(self) -> bool:
        """Whether the server marked the output schema as that of an object around the value."""
        return wraps_result(self.tool.output_schema)

    def check(self, result: CallToolResult) -> None:
        """Validate structured content against the output schema. Raises InvalidResponse."""
        schema = self.tool.output_schema
        if schema is None or result.is_error:
            return
        if result.structured_content is UNSET:
            raise InvalidResponse(
                f"Tool {self.tool.name!r} has an output schema, but its result has no structured content"
            )
        if not self._compiled_once:
            self._compiled_once = True
            self._validator = _compile(schema, self.tool.name)
        validator, value = self._validator, result.structured_content
        if validator is not None and not validator.is_valid(value):
            problem = first_problem(validator, value)
            raise InvalidResponse(f"Tool {self.tool.name!r}: the result does not fit its output schema: {problem}")


def _compile(schema: object, name: str) -> Validator | None:
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

    def take(self, tools: Sequence[Tool], *, mirrored: bool) -> list[Tool]:
        """Replace the tools. If headers repeat arguments, tools with invalid annotations for that are left out and logged."""
        if not may_annotate([tool.input_schema for tool in tools]):
            self.by_name = {tool.name: KnownTool(tool) for tool in tools}
            return list(tools)
        self.by_name = {}
        usable: list[Tool] = []
        left_out = 0
        for tool in tools:
            headers: tuple[ParamHeader, ...] = ()
            try:
                headers = collect_param_headers(tool.input_schema)
            except DefinitionError as exc:
                if mirrored:
                    left_out = warn_about_peer(left_out, "Tool %r is left out: %s", shorten(tool.name), exc)
                    continue
            self.by_name[tool.name] = KnownTool(tool, headers)
            usable.append(tool)
        return usable

    def headers(self, name: str, arguments: Mapping[str, Any]) -> dict[str, str]:
        """The headers that repeat the arguments of a call; none for an unknown tool."""
        tool = self.by_name.get(name)
        if tool is None or not tool.headers:
            return {}
        try:
            return param_headers(tool.headers, plain_value(arguments))
        except NotSerializable:  # then the request is not sent
            return {}


# ---------------------------------------------------------------- results


#: Errors that a model can do something about.
FOR_THE_MODEL = frozenset({InvalidParams.code, MissingClientCapability.code})


def refused(error: PeerError) -> CallToolResult[Any]:
    """The error result for a call that the server refused for a reason that the model can do something about.

    That is -32602, since a model invents names and arguments, and -32021: this client can't do what the tool needs. Raises any
    other error.
    """
    if error.code not in FOR_THE_MODEL:
        raise error
    return CallToolResult(content=[TextContent(text=error.description)], is_error=True)


def is_wrapped(value: object) -> bool:
    """Return whether a value may be one that is wrapped for revisions 2025-06-18 and 2025-11-25."""
    return isinstance(value, dict) and value.keys() == {"result"}


def converted(kind: object, result: CallToolResult[Any], name: str, *, wraps: bool) -> Any:
    """The structured content as the caller's type.

    It is unwrapped if the output schema of the tool says that it is wrapped, or if the type rejects the whole and accepts
    the member. Raises InvalidResponse.
    """
    try:
        value: Any = result.structured_content
        if value is UNSET:  # revisions before 2025-06-18 have no structured content: the text is the same as JSON
            value = result.text if kind is str else _from_text(result.text)
        elif is_wrapped(value) and wraps:
            value = value["result"]
        try:
            return read_as(kind, encode_value(value))
        except ValueError:
            if not is_wrapped(value) or wraps:
                raise
            return read_as(kind, encode_value(value["result"]))
    except ValueError as exc:  # of msgspec and of pydantic
        raise InvalidResponse(
            f"Tool {name!r}: the result does not have the type {_name_of(kind)}: {shorten(refusal_of(exc))}"
        ) from exc


def _from_text(text: str) -> Any:
    """What a text says: JSON, or text. Nothing is what a tool returns that returns None."""
    try:
        return msgspec.json.decode(text) if text else None
    except msgspec.DecodeError:
        return text


def _name_of(kind: object) -> str:
    if kind is NoneType:
        return "None"
    return kind.__name__ if isinstance(kind, type) and not typing.get_args(kind) else str(kind)
