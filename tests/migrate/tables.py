"""Reads the tables of docs/migration: which name of another library is what in Gemel, and whether that exists."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple, get_overloads

import gemel
from gemel.cli.arguments.parser import COMMANDS
from gemel.transports.http.server import options as http_options
from tests.source import ROOT

FOLDER = ROOT / "docs" / "migration"
STATES = ("same", "renamed", "different", "missing")
#: What the variables of the examples are.
_VARIABLES = {
    "server": "Server",
    "ctx": "Context",
    "client": "Client",
    "group": "ClientGroup",
    "result": "CallToolResult",
}
_CODE = re.compile(r"`([^`]+)`")


class Row(NamedTuple):
    """A row of a table: the names that it is about, and what they are in Gemel."""

    section: str
    names: tuple[str, ...]
    state: str
    gemel: str
    text: str


def rows(page: str) -> Iterator[Row]:
    """The rows of all tables that have one of the states in their second column."""
    section = ""
    for line in (FOLDER / page).read_text(encoding="utf-8").split("\n"):
        if line.startswith("#"):
            section = line.lstrip("# ")
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 4 and cells[1] in STATES:
            yield Row(section, tuple(_CODE.findall(cells[0])), *cells[1:])


def missing_in_gemel(text: str) -> Iterator[str]:
    """The code in a cell that names something Gemel doesn't have."""
    for code in _CODE.findall(text):
        if code.startswith("gemel "):
            if code.split()[1] not in COMMANDS:
                yield code
            continue
        tree = ast.parse(code.removeprefix("@").replace("…", "_").replace("{_}", "_"), mode="eval").body
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                accepted = keywords_of(_value(node.func))
                yield from (f"{code}: {word.arg}" for word in node.keywords if word.arg not in accepted)
        head = tree.func if isinstance(tree, ast.Call) else tree
        if isinstance(head, ast.Name | ast.Attribute) and _value(head) is None:
            yield code


def _value(node: ast.expr) -> Any:
    """What a dotted name is in Gemel; None for what isn't there."""
    parts = ast.unparse(node).split(".")
    if parts[0] == "function":
        return _completed if parts[1:] == ["complete"] else None
    if parts[0] in _VARIABLES:
        parts[0] = _VARIABLES[parts[0]]
    if parts[0] == "gemel":
        parts = parts[1:]
    value: Any = gemel
    path = "gemel"
    for part in parts:
        path = f"{path}.{part}"
        inner = getattr(value, part, None)
        if inner is None and part in getattr(value, "__annotations__", {}):
            inner = value.__annotations__[part]
        if inner is None and inspect.ismodule(value):
            try:
                inner = importlib.import_module(path)
            except ImportError:
                return None
        if inner is None:
            return None
        value = inner
    return value


def _completed(argument: str) -> None:
    """What `function.complete` takes."""


def keywords_of(function: Any) -> set[str]:
    """The keyword arguments of a function, with the options that it takes as a TypedDict, in all its overloads."""
    found: set[str] = set()
    for one in [function, *get_overloads(function)] if callable(function) else []:
        for name, parameter in inspect.signature(one).parameters.items():
            found.add(name)
            options = re.fullmatch(r"Unpack\[(\w+)\]", str(parameter.annotation))
            if options:
                module = sys.modules[one.__module__]
                found |= set((getattr(module, options[1], None) or getattr(http_options, options[1])).__annotations__)
    return found
