"""Runs the Python of a document, block after block, in one module, as a user would in a notebook: `await` is allowed.

An expression that is followed by `# → value` is checked: its `repr`, or what it prints, must be that value.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import types
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from hinge.server.run import loading
from tests.docs.documents import Block

_SHOWN = re.compile(r"#\s*→\s*(?P<value>.*\S)")


class Notebook:
    """One document's module. What its hidden blocks may use:

    - `replaced` maps what readers see to what is there: `https://…` to a port on loopback.
    - `opened` holds what is to be closed when the document is over.
    - `directory` is where the document's files are, and the working directory.
    """

    def __init__(self, document: Path, directory: Path) -> None:
        self.module = types.ModuleType(f"document_{document.stem}")
        self.module.__file__ = str(document)
        self.replaced: dict[str, str] = {}
        self.opened = AsyncExitStack()
        given = {"replaced": self.replaced, "opened": self.opened, "directory": directory, "__shown__": _shown}
        self.module.__dict__.update(given)
        sys.modules[self.module.__name__] = self.module
        self._before = set(sys.modules)

    async def close(self) -> None:
        """Close what was opened, forget the modules."""
        try:
            await self.opened.aclose()
        finally:
            del sys.modules[self.module.__name__]
            for name in self._of_the_directory():
                del sys.modules[name]

    def _of_the_directory(self) -> list[str]:
        """Files of the document that were imported: another document may have one of the same name."""
        directory = str(self.module.__dict__["directory"])
        found = {name: getattr(sys.modules[name], "__file__", None) for name in sys.modules.keys() - self._before}
        return [name for name, file in found.items() if file is not None and file.startswith(directory)]

    async def run(self, block: Block) -> None:
        """Run one block; what it raises carries the line of the document."""
        text = replace(block.text, self.replaced) if not block.hidden else block.text
        tree = _checked(ast.parse(text), text.split("\n"), block.place)
        ast.increment_lineno(tree, block.line - 1)
        code = compile(tree, str(block.document), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        with loading():
            result = eval(code, self.module.__dict__)
            if inspect.isawaitable(result):
                await result


def replace(text: str, replaced: Mapping[str, str]) -> str:
    """The text as it can be run here."""
    for seen, there in replaced.items():
        text = text.replace(seen, there)
    return text


class _Checker(ast.NodeTransformer):
    """Wraps each expression that shows its value."""

    def __init__(self, lines: list[str], place: str) -> None:
        self._lines = lines
        self._place = place
        self.found = 0

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """`expression  # → value`, the comment on its last line."""
        assert node.end_lineno is not None
        line = self._lines[node.end_lineno - 1]
        shown = _SHOWN.search(line, len(line.encode()[: node.end_col_offset].decode()))
        if shown is None:
            return node
        self.found += 1
        value, printed = node.value, False
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "print":
            value, printed = ast.Tuple(value.args, ast.Load()), True
        arguments = [ast.Constant(shown["value"]), ast.Constant(printed), ast.Constant(self._place)]
        call = ast.Call(ast.Name("__shown__", ast.Load()), [value, *arguments], [])
        return ast.fix_missing_locations(ast.copy_location(ast.Expr(call), node))


def _checked(tree: ast.Module, lines: list[str], place: str) -> ast.Module:
    checker = _Checker(lines, place)
    checker.visit(tree)
    wanted = sum(_SHOWN.search(line) is not None for line in lines)
    assert checker.found == wanted, f"{place}: `# →` belongs behind an expression that is a statement of its own"
    return tree


def _shown(value: Any, wanted: str, printed: bool, place: str) -> None:
    found = " ".join(map(str, value)) if printed else repr(value)
    pattern = ".*".join(map(re.escape, wanted.split("…")))
    assert re.fullmatch(pattern, found, re.DOTALL), f"{place}: the document shows {wanted}, but it is {found}"
