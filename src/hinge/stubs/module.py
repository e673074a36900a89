"""The module for one server: its types, and a class with a method for each tool, prompt and resource template."""

from __future__ import annotations

import ast
import keyword
from collections.abc import Sequence
from typing import Any, NamedTuple

from hinge.contracts.json_schema import Node, Root, newest, normal
from hinge.errors import DefinitionError
from hinge.schema.base import Implementation
from hinge.schema.prompts import Prompt
from hinge.schema.resources import ResourceTemplate
from hinge.schema.tools import Tool
from hinge.server.features.uri_templates import UriTemplate
from hinge.stubs.layout import WIDTH, Bracket, Piece, docstring, lay, literal
from hinge.stubs.names import ModuleNames, pascal, snake, unique
from hinge.stubs.types import ANY, NONE, Part, Types

#: Where each name comes from that a module may need.
_HOMES = {
    "Any": "typing",
    "Literal": "typing",
    "Never": "typing",
    "NotRequired": "typing",
    "TypeAlias": "typing",
    "TypedDict": "typing",
    "Union": "typing",
    "Unpack": "typing",
    "UNSET": "msgspec",
    "UnsetType": "msgspec",
    "CallToolResult": "hinge",
    "GetPromptResult": "hinge",
    "ReadResourceResult": "hinge",
    "UriTemplate": "hinge",
    "CallOptions": "hinge.client.call_options",
}
_RESERVED = (*_HOMES, "annotations", "msgspec", "Client", "self", "given", "kind", "found", "answer", "template", "uri")
_TYPES = ("bool", "dict", "float", "int", "list", "str", "tuple")
#: No parameter is called so: the body of its method means something else by it.
_NOT_HERE = (*_RESERVED, *_TYPES)
_LONGEST_DEFAULT = 40


class Offered(NamedTuple):
    """What a server lists, and what it says of itself."""

    server: Implementation | None
    instructions: str | None
    tools: Sequence[Tool] = ()
    prompts: Sequence[Prompt] = ()
    templates: Sequence[ResourceTemplate] = ()


class Parameter(NamedTuple):
    """One parameter: its name here and on the wire, its annotation, its default as Python text, what is said of it."""

    name: str
    wire: str
    annotation: str
    default: str | None
    said: str


def module_text(offered: Offered, *, blocking: bool = False, name: str | None = None) -> str:
    """The text of a module, formatted. `blocking` is for `hinge.sync`; `name` is the class's, by default the server's."""
    if name is not None and (not name.isidentifier() or keyword.iskeyword(name) or name in _RESERVED or name[0] == "_"):
        raise DefinitionError(f"{name!r} can't be the name of the class: use letters, digits and _")
    return _Module(offered, blocking, name).text()


class _Module:
    def __init__(self, offered: Offered, blocking: bool, name: str | None) -> None:
        self._offered = offered
        self._blocking = blocking
        self._names = ModuleNames(_RESERVED)
        called = offered.server.name if offered.server is not None else ""
        self._class = self._names.take(name or pascal(called, "Server"))
        self._types = Types(self._names)
        self._methods: dict[str, list[str]] = {}

    def text(self) -> str:
        methods = [line for lines in self._each_method() for line in ["", *lines]]
        body = [*self._head(), *methods]
        helper = [_WITHOUT_UNSET] if any("given = _without_unset(" in line for line in methods) else []
        blocks = [*self._types.blocks, *helper, body]
        below = "".join("\n\n\n" + "\n".join(block) for block in blocks)
        return "\n".join([*self._top(), *self._imports(below)]) + below + "\n"

    # ---------------------------------------------------------------- top

    def _top(self) -> list[str]:
        info = self._offered.server
        who = f"{info.name} {info.version}" if info is not None else "a server without a name"
        said = " ".join(f"What the MCP server {who} offers, typed. Written by `hinge stubs`: changes are lost.".split())
        return [*docstring(said, 0), "", "from __future__ import annotations"]

    def _imports(self, below: str) -> list[str]:
        """What is named below."""
        groups: dict[str, list[str]] = {}
        words = _names_in(below)
        for name, home in _HOMES.items():
            if name in words:
                groups.setdefault(home, []).append(name)
        lines = _from("typing", sorted(groups.pop("typing")))
        client = "hinge.sync" if self._blocking else "hinge"
        groups.setdefault(client, []).append("Client")
        third = [_from(home, sorted(names, key=_case)) for home, names in sorted(groups.items())]
        needs_msgspec = ["import msgspec"] if "msgspec" in words else []
        return ["", *lines, "", *needs_msgspec, *(line for lines in third for line in lines)]

    def _head(self) -> list[str]:
        said = self._offered.instructions or "A typed face of a connected client."
        first = Bracket("def __init__(", ["self", "client: Client", "**options: Unpack[CallOptions]"], ") -> None:")
        return [
            f"class {self._class}:",
            *(docstring(said, 4) or docstring("A typed face of a connected client.", 4)),
            "",
            *lay(first, 4),
            "        self._client = client",
            "        self._options = options",
        ]

    # ---------------------------------------------------------------- methods

    def _each_method(self) -> list[list[str]]:
        for tool in self._offered.tools:
            self._tool(tool)
        for prompt in self._offered.prompts:
            self._prompt(prompt)
        for template in self._offered.templates:
            self._template(template)
        return list(self._methods.values())

    def _named(self, text: str, fallback: str, prefix: str = "") -> str:
        found = unique(prefix + snake(text, fallback), {*self._methods, *self._names.taken})
        self._methods[found] = []
        return found

    def _tool(self, tool: Tool) -> None:
        name = self._named(tool.name, "tool")
        hint = pascal(tool.name, "Tool")
        result, simple = self._result(tool, hint)
        parameters = self._parameters(tool, hint, {"self", *_used_in(result)})
        said = _documented(tool.description or tool.title, parameters)
        call: list[Piece] = [literal(tool.name), "given"]
        body = self._given(parameters)
        if tool.output_schema is None:
            body += lay(self._returning("call_tool", call), 8)
        elif simple:
            body += lay(self._returning("call_tool", [*call, f"returns={result}"]), 8)
        else:
            body += [f"        kind: Any = {result}"]
            asked = self._asked("call_tool", [*call, "returns=kind"])
            if result == "None":
                body += lay(asked, 8)
            else:
                body += lay(asked._replace(head=f"answer: Any = {asked.head}"), 8)
                body += [f"        found: {result} = answer", "        return found"]
        self._method(name, parameters, result, said, body)

    def _result(self, tool: Tool, hint: str) -> tuple[str, bool]:
        """The type of a tool's result, and whether it is a class as type checkers see it."""
        if tool.output_schema is None:
            return "CallToolResult", True
        node = _node(tool.output_schema)
        parts = self._types.parts(node, "result", f"{hint}Result")
        if not parts:
            return "Any", False
        found = self._types.joined(parts, f"{hint}Result")
        return found, parts[0] not in (ANY, NONE) and self._types.is_class(found)

    def _parameters(self, tool: Tool, hint: str, taken: set[str]) -> list[Parameter]:
        """The required ones first, in the order of the schema."""
        node = _node(tool.input_schema)
        properties, required = node.get("properties"), node.get("required")
        needed = required if isinstance(required, list) else []
        found: list[Parameter] = []
        for wire, schema in properties.items() if isinstance(properties, dict) else ():
            name = unique(snake(wire, "argument"), {*taken, *_NOT_HERE, *(one.name for one in found)})
            inner, inner_hint = node.inner(schema), f"{hint}{pascal(wire, 'Argument')}"
            parts = self._types.parts(inner, "argument", inner_hint)
            annotation = self._types.joined(parts, inner_hint)
            default = None if wire in needed else _default(inner, parts)
            if default == "UNSET":
                annotation = _or_unset(annotation)
                if len(name) + len(annotation) > WIDTH - 20:
                    annotation = "Any"
            said = inner.get("description")
            found.append(Parameter(name, wire, annotation, default, said if isinstance(said, str) else ""))
        return sorted(found, key=lambda one: one.default is not None)

    def _prompt(self, prompt: Prompt) -> None:
        name = self._named(prompt.name, "unnamed", "prompt_")
        parameters: list[Parameter] = []
        for one in prompt.arguments or ():
            own = unique(snake(one.name, "argument"), {*_NOT_HERE, *(other.name for other in parameters)})
            annotation, default = ("str", None) if one.required else ("str | UnsetType", "UNSET")
            parameters.append(Parameter(own, one.name, annotation, default, one.description or ""))
        parameters.sort(key=lambda one: one.default is not None)
        body = [*self._given(parameters), *lay(self._returning("get_prompt", [literal(prompt.name), "given"]), 8)]
        said = _documented(prompt.description or prompt.title, parameters)
        self._method(name, parameters, "GetPromptResult", said, body)

    def _template(self, template: ResourceTemplate) -> None:
        try:
            variables = UriTemplate(template.uri_template).variables
        except DefinitionError:
            return  # a server's own mistake: nobody could read it
        name = self._named(template.name, "resource", "read_")
        parameters: list[Parameter] = []
        for one in dict.fromkeys(variable.name for variable in variables):
            several = any(variable.explode for variable in variables if variable.name == one)
            own = unique(snake(one, "variable"), {*_NOT_HERE, *(other.name for other in parameters)})
            parameters.append(Parameter(own, one, "list[str]" if several else "str", None, ""))
        made = Bracket("template = UriTemplate(", [literal(template.uri_template)], ")", comma=False)
        expanded = ["        uri = template.expand(given)"]
        body = [*self._given(parameters), *lay(made, 8), *expanded, *lay(self._returning("read_resource", ["uri"]), 8)]
        said = _documented(template.description or template.title, parameters)
        self._method(name, parameters, "ReadResourceResult", said, body)

    # ---------------------------------------------------------------- lines of a method

    def _method(self, name: str, parameters: Sequence[Parameter], result: str, said: str, body: list[str]) -> None:
        items: list[Piece] = ["self"]
        for one in parameters:
            if one.default is not None and "*" not in items:
                items.append("*")
            items.append(f"{one.name}: {one.annotation}" + (f" = {one.default}" if one.default is not None else ""))
        start = "def" if self._blocking else "async def"
        lines = lay(Bracket(f"{start} {name}(", items, f") -> {result}:"), 4)
        self._methods[name] = [*lines, *docstring(said, 8), *body]

    def _given(self, parameters: Sequence[Parameter]) -> list[str]:
        """What goes out: everything but what was left out."""
        items = [f"{literal(one.wire)}: {one.name}" for one in parameters]
        if not any(one.default == "UNSET" for one in parameters):
            return lay(Bracket("given: dict[str, Any] = {", items, "}"), 8)
        return lay(Bracket("given = _without_unset(", [Bracket("{", items, "}")], ")", comma=False), 8)

    def _asked(self, method: str, arguments: Sequence[Piece]) -> Bracket:
        wait = "" if self._blocking else "await "
        return Bracket(f"{wait}self._client.{method}(", [*arguments, "**self._options"], ")")

    def _returning(self, method: str, arguments: Sequence[Piece]) -> Bracket:
        asked = self._asked(method, arguments)
        return asked._replace(head=f"return {asked.head}")


_WITHOUT_UNSET = [
    "def _without_unset(given: dict[str, Any]) -> dict[str, Any]:",
    "    return {name: value for name, value in given.items() if value is not UNSET}",
]
_SPACED = str.maketrans(dict.fromkeys("[](){}|,:=.*", " "))


def _names_in(text: str) -> set[str]:
    """The names that Python text uses; in a TypedDict that is a call, types are texts."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "TypedDict":
            members = node.args[1]
            for value in members.values if isinstance(members, ast.Dict) else ():
                if isinstance(value, ast.Constant):
                    found |= _names_in(str(value.value))
    return found


def _node(schema: Any) -> Node:
    """A schema in the default dialect; anything where it can't be written in that."""
    found = newest(normal(schema))
    found = True if found is None else found
    return Node(Root(found), found)


def _default(node: Node, parts: Sequence[Part]) -> str | None:
    """The default of an optional argument as Python text: the schema's, if it is simple and fits, else UNSET."""
    if not isinstance(node.schema, dict) or "default" not in node.schema:
        return "UNSET"
    value = node.schema["default"]
    text, kind = _simple(value)
    if text is None:
        return "UNSET"
    if any(part is ANY or text in part.values or (kind in part.kinds and not part.values) for part in parts):
        return text
    numbers = kind == "integer" and any("number" in part.kinds for part in parts)
    return text if numbers else "UNSET"


def _simple(value: Any) -> tuple[str | None, str]:
    if value is None or isinstance(value, bool):
        return str(value), "null" if value is None else "boolean"
    if isinstance(value, str):
        text = literal(value)
        return (text if len(text) <= _LONGEST_DEFAULT else None), "string"
    if isinstance(value, int | float) and abs(value) < 2**53:
        if float(value).is_integer():
            return str(int(value)), "integer"
        return (repr(value) if "e" not in repr(value) else None), "number"
    return None, ""


def _or_unset(annotation: str) -> str:
    return annotation if annotation == "Any" else f"{annotation} | UnsetType"


def _documented(said: str | None, parameters: Sequence[Parameter]) -> str:
    """A description with those of the parameters."""
    lines = [f"    {one.name}: {' '.join(one.said.split())}" for one in parameters if one.said.strip()]
    return "\n".join([said or "", *(["", "Args:", *lines] if lines else [])])


def _used_in(annotation: str) -> set[str]:
    return set(annotation.replace('"', " ").translate(_SPACED).split())


def _case(name: str) -> tuple[bool, str]:
    """The order of a sorter of imports: constants, classes, the rest."""
    return (not name.isupper(), name)


def _from(home: str, names: Sequence[str]) -> list[str]:
    line = f"from {home} import {', '.join(names)}"
    return [line] if len(line) <= WIDTH else lay(Bracket(f"from {home} import (", names, ")"), 0)
