"""What scripts can call: the tools of each server as the functions of one module, and how a model finds them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from msgspec import structs

from gemel.code.search import WordIndex
from gemel.errors import shorten
from gemel.policies.request import Hints
from gemel.schema.tools import Tool
from gemel.stubs.functions import ToolFunction, ToolFunctions
from gemel.stubs.python_source import LONGEST_FUNCTION, distinct

#: Tools that a search shows, and names that are looked up at a time.
_FOUND, _NAMED = 10, 50
#: Up to so many tools a description has the names of all.
_ALL_NAMES = 250
#: The longest list of names in a description, in characters.
_LONGEST_NAMES = 20_000
#: Tools that are proposed in place of one that there isn't, and names for which some are; only their start is compared.
_MEANT, _COMPARED = 3, 100


class OfferedTool(NamedTuple):
    """A tool that a caller has.

    Attributes:
        server: The server that it is of, by its prefix or name.
        name: Its name there.
        tool: The tool, under the name by which it is called here.
        hints: What it says of itself, if that is believed; otherwise the defaults of the specification.
    """

    server: str
    name: str
    tool: Tool
    hints: Hints


class ModuleTool(NamedTuple):
    """A tool as a function of a module."""

    module: str
    function: ToolFunction
    offered: OfferedTool

    @property
    def path(self) -> str:
        """The name of the module and of the function."""
        return f"{self.module}.{self.function.name}"

    @property
    def names(self) -> tuple[str, ...]:
        """All names by which it can be asked for."""
        offered = self.offered
        return self.path, self.function.name, offered.tool.name, offered.name, f"{self.module}.{offered.name}"


class CodeModule(NamedTuple):
    """The tools of one server."""

    name: str
    functions: ToolFunctions
    tools: list[ModuleTool]

    def chosen(self, *, read_only: bool) -> list[ModuleTool]:
        """Return all tools, or those that only read."""
        return [one for one in self.tools if one.offered.hints.read_only or not read_only]

    def stubs(self, tools: Sequence[ModuleTool], *, short: bool) -> str:
        """Return the functions of some tools with their types, as a model reads them.

        Args:
            tools: The tools.
            short: With the first lines of the descriptions only.
        """
        return self.functions.text([one.function for one in tools], short=short)

    def source(self, tools: Sequence[ModuleTool]) -> str:
        """Return the text of a `.pyi` file, as type checkers read it.

        Args:
            tools: Those to contain.
        """
        text = self.stubs(tools, short=True)
        return self.functions.imports(text) + text


class Catalogue:
    """The tools of one caller, as modules.

    Args:
        tools: The tools in the order of their list.
    """

    def __init__(self, tools: Iterable[OfferedTool]) -> None:
        by_server: dict[str, list[OfferedTool]] = {}
        for one in tools:
            by_server.setdefault(one.server, []).append(one)
        names = _module_names(by_server)
        self.modules = {name: _module(name, by_server[server]) for server, name in zip(by_server, names, strict=True)}
        self.tools = [one for module in self.modules.values() for one in module.tools]
        self._index = WordIndex((one.module, one.function.tool) for one in self.tools)

    def names(self) -> str:
        """Return the names of all functions, a line for each module; empty if these are too many."""
        if len(self.tools) > _ALL_NAMES:
            return ""
        lines = (f"{name}: {', '.join(one.function.name for one in each.tools)}" for name, each in self.modules.items())
        text = "\n".join(lines)
        return text if len(text) <= _LONGEST_NAMES else ""

    def called(self, name: str) -> list[ModuleTool]:
        """Return the tools that a name can mean: `module.function`, the name of a function, or of a tool."""
        return [one for one in self.tools if name in one.names]

    def meant(self, name: str, missing: Mapping[str, str]) -> str:
        """Return the end of an error about a name that no tool has: the tools that may be meant, or how to find one.

        Args:
            name: The name.
            missing: See `missing_modules`.
        """
        module = name.partition(".")[0]
        if module in missing:
            return f": the server of `{module}` can't be used: {missing[module]}"
        paths = {each: one.path for one in self.tools for each in one.names}
        near = dict.fromkeys(paths[each] for each in get_close_matches(name[:_COMPARED], paths, _MEANT))
        return f"; did you mean {' or '.join(map(repr, near))}?" if near else ": search for it with `query`"

    def answer(self, query: str, names: Sequence[str], missing: Mapping[str, str]) -> str:
        """Return what a search finds, as text for a model.

        Args:
            query: Words; empty for none.
            names: Names of tools whose full texts are wanted.
            missing: See `missing_modules`.
        """
        parts = [self.described(names, missing)] if names else []
        parts += [self.found(query)] if query else []
        parts += [
            f"# no {module}: its server can't be used: {missing[module]}" for module in list(missing)[:_FOUND] if query
        ]
        return "\n".join(parts) or f"Give `query` or `names`. {self.names()}"

    def found(self, query: str) -> str:
        """Return the signatures of the tools that fit a query, as text for a model."""
        places = self._index.find(query, _FOUND)
        if not places:
            return f"No tool has a word of {shorten(query)!r}. Modules: {', '.join(self.modules) or 'none'}"
        return self._stubs([self.tools[place] for place in places], short=True)

    def described(self, names: Sequence[str], missing: Mapping[str, str]) -> str:
        """Return the full texts of tools, as text for a model. `missing` is explained at `missing_modules`."""
        chosen = {one.path: one for name in names[:_NAMED] for one in self.called(name)}
        unknown = [name for name in names[:_NAMED] if not self.called(name)]
        parts = [self._stubs(list(chosen.values()), short=False)] if chosen else []
        parts += [f"There is no tool {shorten(name)!r}{self.meant(name, missing)}" for name in unknown[:_MEANT]]
        parts += (
            [f"There is no tool {', '.join(shorten(repr(name)) for name in unknown[_MEANT:])}"]
            if unknown[_MEANT:]
            else []
        )
        parts += [f"Only {_NAMED} names are looked up at a time"] if len(names) > _NAMED else []
        return "\n".join(parts)

    def _stubs(self, tools: Sequence[ModuleTool], *, short: bool) -> str:
        """Return the functions of some tools, by module in the order in which these come."""
        by_module: dict[str, list[ModuleTool]] = {}
        for one in tools:
            by_module.setdefault(one.module, []).append(one)
        return "\n".join(
            f"# from {module} import {', '.join(one.function.name for one in each)}\n"
            + self.modules[module].stubs(each, short=short)
            for module, each in by_module.items()
        )


def missing_modules(servers: Mapping[str, str]) -> dict[str, str]:
    """Return the names of the modules that there aren't because their servers failed, each with the reason on one line.

    Args:
        servers: The reasons by the prefix or name of each server.
    """
    reasons = (shorten(" ".join(reason.split())) for reason in servers.values())
    return dict(zip(_module_names(servers), reasons, strict=True))


def _module_names(servers: Iterable[str]) -> list[str]:
    """Return the name of the module of each server."""
    return distinct(list(servers), "server", sys.stdlib_module_names, longest=LONGEST_FUNCTION)


def _module(name: str, offered: Sequence[OfferedTool]) -> CodeModule:
    functions = ToolFunctions(structs.replace(one.tool, name=one.name) for one in offered)
    tools = [ModuleTool(name, function, one) for function, one in zip(functions.functions, offered, strict=True)]
    return CodeModule(name, functions, tools)
