"""Tools as typed functions: one async function with keyword arguments for each tool, as the text of a `.pyi` file."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from gemel.errors import shorten
from gemel.schema.tools import Tool, wraps_result
from gemel.stubs.module import MethodParameter, documented, schema_node, tool_parameters
from gemel.stubs.python_source import (
    Bracket,
    ModuleNames,
    Piece,
    docstring,
    flat,
    literal,
    pascal,
    plain,
    unique,
)
from gemel.stubs.types import Types

_TYPING = ("Any", "Literal", "Never", "NotRequired", "TypeAlias", "TypedDict", "Union")
_TYPES = ("bool", "dict", "float", "int", "list", "str", "tuple")
_WORD = re.compile(r"\w+")
#: A description in a signature, at most, in characters.
_SHORT = 160


class ToolFunction(NamedTuple):
    """A tool as a function.

    Attributes:
        name: The name of the function.
        tool: The tool.
        wires: The name in JSON of each parameter.
        omitted: The parameters that may be left out and can't be null: None leaves them out.
        is_open: Whether it takes arguments of other names, as the schema says by `additionalProperties`.
        head: Its signature, up to the colon.
        description: What it does, with its parameters.
        types: The definitions that the signature needs, each after those it needs itself.
    """

    name: str
    tool: Tool
    wires: dict[str, str]
    omitted: frozenset[str]
    is_open: bool
    head: str
    description: str
    types: list[list[str]]

    def arguments(self, given: Mapping[str, object]) -> dict[str, Any]:
        """Return the arguments of a call of the tool.

        Args:
            given: Those of a call of the function.

        Raises:
            TypeError: The function has no parameter of this name.
        """
        unknown = sorted(given.keys() - self.wires.keys())
        if unknown and not self.is_open:
            names = ", ".join(self.wires) or "none"
            raise TypeError(f"{self.name} has no parameter {unknown[0]!r}; there are: {names}")
        return self.named(given)

    def named(self, given: Mapping[str, object]) -> dict[str, Any]:
        """Return arguments with their names in JSON, unknown ones as they are.

        Args:
            given: Those of a call of the function.
        """
        left_out = {name for name in self.omitted if given.get(name) is None}
        return {self.wires.get(name, name): value for name, value in given.items() if name not in left_out}

    def text(self, *, short: bool = False) -> str:
        """Return the types and the function.

        Args:
            short: With the first line of the description only.
        """
        first = (self.tool.description or self.tool.title or "").strip().split("\n", 1)[0]
        said = docstring(first[:_SHORT] if short else self.description, 4)
        body = said or ["    ..."]
        is_plain = self.name in (self.tool.name, plain(self.tool.name))
        called = [] if is_plain else [f"# the tool {literal(shorten(self.tool.name))}"]
        return "\n".join(line for block in [*self.types, [*called, self.head, *body]] for line in block)


class ToolFunctions:
    """The functions of the tools of one module.

    Args:
        tools: The tools, in the order in which names are given.
        taken: Names that no function may have.
    """

    def __init__(self, tools: Iterable[Tool], taken: Collection[str] = ()) -> None:
        self._names = ModuleNames((*_TYPING, *taken))
        self._types = Types(self._names)
        listed = list(tools)
        names = self._names.take_functions([tool.name for tool in listed], "tool")
        self.functions = [self._function(tool, name) for tool, name in zip(listed, names, strict=True)]

    def text(self, functions: Sequence[ToolFunction] | None = None, *, short: bool = False) -> str:
        """Return the text of a module.

        Args:
            functions: Those to contain; all by default.
            short: With the first lines of the descriptions only.
        """
        blocks: dict[str, None] = {}
        for one in self.functions if functions is None else functions:
            blocks.update(dict.fromkeys("\n".join(block) for block in one.types))
            blocks[one._replace(types=[]).text(short=short)] = None
        return "\n".join(blocks)

    @staticmethod
    def imports(text: str) -> str:
        """Return the line that imports what the text uses of `typing`."""
        words = set(_WORD.findall(text))
        return f"from typing import {', '.join(name for name in _TYPING if name in words) or 'Any'}\n"

    def _function(self, tool: Tool, name: str) -> ToolFunction:
        hint = pascal(tool.name, "Tool")
        result = self._result(tool, hint)
        parameters = tool_parameters(tool, hint, self._types, {*_WORD.findall(result), *_TYPING, *_TYPES})
        items: list[Piece] = ["*"] if parameters else []
        items += [_parameter(one) for one in parameters]
        others = self._others(tool, hint)
        items += [f"**{unique('others', [one.name for one in parameters])}: {others}"] if others else []
        head = flat(Bracket(f"async def {name}(", items, f") -> {result}:"))
        wires = {one.name: one.wire for one in parameters}
        omitted = frozenset(one.name for one in parameters if one.default is not None and not one.takes_null)
        description = documented(tool.description or tool.title, parameters)
        return ToolFunction(name, tool, wires, omitted, bool(others), head, description, self._needed(head))

    def _others(self, tool: Tool, hint: str) -> str:
        """Return the type of arguments that the schema allows and doesn't name; empty if it doesn't say so."""
        node = schema_node(tool.input_schema)
        rest = node.get("additionalProperties")
        return self._types.annotation(node.inner(rest), "argument", f"{hint}Other") if rest not in (None, False) else ""

    def _needed(self, head: str) -> list[list[str]]:
        """Return the definitions that a signature names, directly or through others."""
        words, found = set(_WORD.findall(head)), list[list[str]]()
        for block in reversed(self._types.blocks):
            text = " ".join(block)
            defined = _DEFINED.match(text)
            if defined is not None and defined["name"] in words:
                words |= set(_WORD.findall(text))
                found.insert(0, block if text.startswith("class ") else [" ".join(map(str.strip, block))])
        return found

    def _result(self, tool: Tool, hint: str) -> str:
        """Return the type of a result: Any without an output schema, whose text may be JSON."""
        if tool.output_schema is None:
            return "Any"
        node = schema_node(tool.output_schema)
        properties = node.get("properties")
        if wraps_result(tool.output_schema) and isinstance(properties, dict):
            node = node.inner(properties.get("result", True))
        return self._types.annotation(node, "argument", f"{hint}Result")


_DEFINED = re.compile(r"(?:class )?(?P<name>\w+)")


def _parameter(one: MethodParameter) -> str:
    """Return a parameter; what may be left out has no value here."""
    return f"{one.name}: {one.annotation}" + ("" if one.default is None else " = ...")
