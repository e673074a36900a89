"""What scripts can call: the tools of each server as the functions of one module, and how a model finds them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from msgspec import structs

from gemel.code.sandbox import HostFunction, ScriptModule
from gemel.code.search import WordIndex
from gemel.errors import ToolError, shorten
from gemel.policies.request import Hints
from gemel.schema.tools import Tool
from gemel.stubs.functions import ToolFunction, ToolFunctions
from gemel.stubs.python_source import LONGEST_FUNCTION, distinct

#: Tools that a search shows, and names that are looked up at a time.
_FOUND, _NAMED = 10, 50
#: Up to so many tools a description has the names of all.
_ALL_NAMES = 250
#: Tools that are proposed in place of one that there isn't, and names for which some are; only their start is compared.
_MEANT, _COMPARED = 3, 100
#: Where an error of a script names a function or a module that there isn't.
_UNKNOWN = re.compile(
    r"Module `(?P<of>\w+)` has no member `(?P<member>\w+)`|Cannot resolve imported module `(?P<module>\w+)`"
    r"|Name `(?P<name>\w+)` used when not defined"
)


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


class Catalogue:
    """The tools of one caller, as modules.

    Args:
        tools: The tools in the order of their list.
        missing: The servers whose tools it has not because they failed: the reason by prefix or name.
    """

    def __init__(self, tools: Iterable[OfferedTool], missing: Mapping[str, str]) -> None:
        by_server: dict[str, list[OfferedTool]] = {}
        for one in tools:
            by_server.setdefault(one.server, []).append(one)
        self.modules: dict[str, ToolFunctions] = {}
        self.tools: list[ModuleTool] = []
        for name, offered in zip(_module_names(by_server), by_server.values(), strict=True):
            made = ToolFunctions(structs.replace(one.tool, name=one.name) for one in offered)
            self.modules[name] = made
            self.tools += map(ModuleTool, [name] * len(offered), made.functions, offered)
        reasons = (shorten(" ".join(reason.split())) for reason in missing.values())
        #: The modules that there aren't because their servers failed, each with the reason on one line.
        self._missing = dict(zip(_module_names(missing), reasons, strict=True))
        self._index = WordIndex((one.module, one.function.tool) for one in self.tools)

    # ---------------------------------------------------------------- for scripts

    def script_modules(self, call: Callable[[ModuleTool], HostFunction], *, read_only: bool) -> dict[str, ScriptModule]:
        """Return what a script may import.

        Args:
            call: Returns what calls a tool.
            read_only: Whether only tools that read can be imported.
        """
        modules: dict[str, ScriptModule] = {}
        for name, tools in _by_module(self._chosen(read_only=read_only)).items():
            functions = self.modules[name]
            text = functions.text([one.function for one in tools], short=True)
            text = text.replace(" = ...", " | None = ...")  # None leaves an argument out
            modules[name] = ScriptModule(
                {one.function.name: call(one) for one in tools}, functions.imports(text) + text
            )
        return modules

    def advice(self, error: str, *, read_only: bool) -> list[str]:
        """Return what can be done about the imports that an error of a script is about, as lines.

        Args:
            error: The error.
            read_only: Whether only tools that read could be imported.
        """
        unknown = list(_UNKNOWN.finditer(error))
        failed = dict.fromkeys(each["module"] for each in unknown if each["module"] in self._missing)
        lines = [f"The server of `{each}` can't be used: {self._missing[each]}" for each in failed]
        if unknown and not failed:
            of, member, module, name = unknown[0].groups()
            chosen = self._chosen(read_only=read_only)
            if name in self.modules:
                near = [f"import {name}"]
            elif module is None:
                near = [
                    f"from {one.module} import {one.function.name}" for one in _near(name or f"{of}.{member}", chosen)
                ]
            else:
                near = [
                    f"from {each} import …"
                    for each in get_close_matches(module[:_COMPARED], _by_module(chosen), _MEANT)
                ]
            lines += [f"Did you mean {' or '.join(f'`{each}`' for each in near)}?"] if near else []
        if read_only and "[unresolved-import]" in error:
            lines.append("Only tools that change nothing can be imported here: use run_code for others")
        return lines

    def _chosen(self, *, read_only: bool) -> list[ModuleTool]:
        return [one for one in self.tools if one.offered.hints.read_only or not read_only]

    # ---------------------------------------------------------------- for models

    def names(self) -> str:
        """Return the names of all functions, a line for each module; empty if these are too many."""
        if len(self.tools) > _ALL_NAMES:
            return ""
        return "\n".join(
            f"{name}: {', '.join(one.name for one in each.functions)}" for name, each in self.modules.items()
        )

    def tool(self, name: str) -> ModuleTool:
        """Return the tool that a name means: `module.function`, the name of a function, or of a tool.

        Raises:
            ToolError: There is none, or there are several.
        """
        found = self._called(name)
        if not found:
            raise ToolError(self._unknown(name))
        if len(found) > 1:
            paths = shorten(", ".join(one.path for one in found))
            raise ToolError(f"{len(found)} tools have the name {shorten(name)!r}: call it as one of {paths}")
        return found[0]

    def answer(self, query: str, names: Sequence[str]) -> str:
        """Return what a search finds, as text for a model.

        Args:
            query: Words; empty for none.
            names: Names of tools whose full texts are wanted.
        """
        parts = self._described(names)
        if query:
            found = [self.tools[place] for place in self._index.find(query, _FOUND)]
            modules = ", ".join(self.modules) or "none"
            parts.append(
                self._stubs(found, short=True) or f"No tool has a word of {shorten(query)!r}. Modules: {modules}"
            )
            failed = list(self._missing.items())[:_FOUND]
            parts += [f"# no {module}: its server can't be used: {reason}" for module, reason in failed]
        return "\n".join(parts) or f"Give `query` or `names`. {self.names()}"

    def _described(self, names: Sequence[str]) -> list[str]:
        """Return the full texts of tools, and which there aren't."""
        named = {name: self._called(name) for name in names[:_NAMED]}
        chosen = {one.path: one for tools in named.values() for one in tools}
        unknown = [name for name, tools in named.items() if not tools]
        parts = [self._stubs(list(chosen.values()), short=False)] if chosen else []
        parts += map(self._unknown, unknown[:_MEANT])
        if unknown[_MEANT:]:
            parts.append(f"There is no tool {', '.join(shorten(repr(name)) for name in unknown[_MEANT:])}")
        if len(names) > _NAMED:
            parts.append(f"Only {_NAMED} names are looked up at a time")
        return parts

    def _called(self, name: str) -> list[ModuleTool]:
        return [one for one in self.tools if name in one.names]

    def _unknown(self, name: str) -> str:
        """Return the error about a name that no tool has, with the tools that may be meant, or how to find one."""
        module = name.partition(".")[0]
        if module in self._missing:
            advice = f": the server of `{module}` can't be used: {self._missing[module]}"
        elif near := _near(name, self.tools):
            advice = f"; did you mean {' or '.join(repr(one.path) for one in near)}?"
        else:
            advice = ": search for it with `query`"
        return f"There is no tool {shorten(name)!r}{advice}"

    def _stubs(self, tools: Sequence[ModuleTool], *, short: bool) -> str:
        """Return the functions of some tools, by module in the order in which these come."""
        return "\n".join(
            f"# from {module} import {', '.join(one.function.name for one in each)}\n"
            + self.modules[module].text([one.function for one in each], short=short)
            for module, each in _by_module(tools).items()
        )


def _by_module(tools: Iterable[ModuleTool]) -> dict[str, list[ModuleTool]]:
    by_module: dict[str, list[ModuleTool]] = {}
    for one in tools:
        by_module.setdefault(one.module, []).append(one)
    return by_module


def _near(name: str, tools: Iterable[ModuleTool]) -> list[ModuleTool]:
    """Return the tools that have a name, else those with the names that are most like it."""
    named: dict[str, list[ModuleTool]] = {}
    for one in tools:
        for each in one.names:
            named.setdefault(each, []).append(one)
    near = [name] if name in named else get_close_matches(name[:_COMPARED], named, _MEANT)
    return list({one.path: one for each in near for one in named[each]}.values())[:_MEANT]


def _module_names(servers: Iterable[str]) -> list[str]:
    """Return the name of the module of each server."""
    return distinct(list(servers), "server", sys.stdlib_module_names, longest=LONGEST_FUNCTION)
