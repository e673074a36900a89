"""Checks what Python of a document shows: an expression that is followed by `# → value` must have that value.

Its `repr` is compared, or what it prints; `…` stands for anything. The file needs nothing of the project. Run as a program
it is a notebook for a reader: it takes one block per line of standard input, as JSON, and answers each with one line.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import os
import re
import sys
import traceback
import types
from typing import Any

_SHOWN = re.compile(r"#\s*→\s*(?P<value>.*\S)")


def compiled(text: str, place: str, line: int, file: str) -> types.CodeType:
    """The code of a block, which may await. It needs `__shown__` among its globals, which is `shown`.

    Args:
        text: The block.
        place: What an assertion names.
        line: The number of its first line in the file.
        file: The file that tracebacks name.
    """
    tree = _checked(ast.parse(text), text.split("\n"), place)
    ast.increment_lineno(tree, line - 1)
    code: types.CodeType = compile(tree, file, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    return code


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


def shown(value: Any, wanted: str, printed: bool, place: str) -> None:
    found = " ".join(map(str, value)) if printed else repr(value)
    pattern = ".*".join(map(re.escape, wanted.split("…")))
    assert re.fullmatch(pattern, found, re.DOTALL), f"{place}: the document shows {wanted}, but it is {found}"


async def serve() -> None:
    """Run the blocks that come by standard input, in one module; what they print goes to standard error."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    module = types.ModuleType("notebook")
    module.__dict__["__shown__"] = shown
    sys.modules["notebook"] = module
    while line := await asyncio.to_thread(sys.stdin.readline):
        block, failure = json.loads(line), ""
        try:
            result = eval(compiled(block["text"], block["place"], 1, block["place"]), module.__dict__)
            if inspect.isawaitable(result):
                await result
        except BaseException:
            failure = traceback.format_exc()
        print(json.dumps(failure), file=replies, flush=True)


if __name__ == "__main__":
    asyncio.run(serve())
