"""Every public method of the classes that users hold in their hands is in an example of a guide.

What is found: a name is an object of such a class if it is made by the class (`client = Client(…)`, `async with Client(…) as
client`, `Server.from_client(…)`, also in a hidden block) or is annotated with it (`ctx: Context[Notes]`). Each attribute of such a
name, or of the class itself, in the Python that readers see counts as shown. Decisions, the architecture, and the pages on
migration show how things were or what others have, and don't count.

A method without an example fails here: give it one in the guide where a reader would look for it.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from gemel import Client, ClientGroup, Context, Server
from tests.docs.documents import blocks, documents
from tests.source import ROOT

CLASSES: Mapping[str, type] = {"Client": Client, "ClientGroup": ClientGroup, "Context": Context, "Server": Server}
NO_GUIDES = {"decisions", "migration", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"}

#: Methods that sessions call, not programs.
CALLED_BY_SESSIONS: Mapping[str, set[str]] = {"Server": {"handle"}}


@pytest.mark.parametrize("name", CLASSES)
def test_every_public_method_is_in_an_example(name: str) -> None:
    missing = methods(CLASSES[name]) - {method for cls, method in shown() if cls == name}
    assert missing == CALLED_BY_SESSIONS.get(name, set())


def methods(cls: type) -> set[str]:
    """The public methods of a class, inherited ones included."""
    return {name for name in dir(cls) if not name.startswith("_") and callable(getattr(cls, name))}


@cache
def shown() -> frozenset[tuple[str, str]]:
    """Pairs of a class and a method that the guides show."""
    return frozenset(pair for document in guides() for pair in _shown(document))


def guides() -> list[Path]:
    return [path for path in documents() if not NO_GUIDES & set(path.relative_to(ROOT).parts)]


def _shown(document: Path) -> Iterator[tuple[str, str]]:
    held = {name: {name} for name in CLASSES}
    for block in blocks(document):
        if block.language != "python":
            continue
        tree = ast.parse(f"async def document():\n{textwrap.indent(block.text, '    ')}\n    ...")
        for node in ast.walk(tree):
            for target, cls in _made(node):
                held[cls].add(target)
        for node in ast.walk(tree) if not block.hidden else ():
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                yield from ((cls, node.attr) for cls, names in held.items() if node.value.id in names)


def _made(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Names that a statement binds to an object of a class, with the class."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        yield from _of(node.targets[0].id, node.value)
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield from _of(node.target.id, node.annotation)
    elif isinstance(node, ast.withitem) and isinstance(node.optional_vars, ast.Name):
        yield from _of(node.optional_vars.id, node.context_expr)
    elif isinstance(node, ast.arg) and node.annotation is not None:
        yield from _of(node.arg, node.annotation)


def _of(name: str, expression: ast.expr) -> Iterator[tuple[str, str]]:
    """The class of `Client(…)`, `Client.from_config(…)`, `Context[Notes]`, `gemel.sync.Client`."""
    while isinstance(expression, ast.Await | ast.Call | ast.Subscript):
        if isinstance(expression, ast.Call):
            enters = isinstance(expression.func, ast.Attribute) and expression.func.attr.startswith("enter_")
            expression = expression.args[0] if enters else expression.func
        else:
            expression = expression.value
    if isinstance(expression, ast.Attribute):
        expression = expression.value if expression.attr.startswith("from_") else ast.Name(expression.attr)
    if isinstance(expression, ast.Name) and expression.id in CLASSES:
        yield name, expression.id
