"""The mutants of a source file: each has one changed condition, operator or result, or lacks one statement.

Changes that seldom change behaviour are left out: numbers and boundaries that are one more or less, limits of time, log
messages, assertions, and fields of classes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

_OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add}
#: Types, decorators, and texts, in which the positions of nodes are wrong before Python 3.12.
_UNCHANGED_FIELDS = frozenset({"annotation", "returns", "decorator_list", "type_params"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Mutant(NamedTuple):
    """One change of a file.

    Attributes:
        line: Where it is.
        scope: The names of the class and functions around it.
        change: The code before and after it.
        start: The first of the bytes that are replaced.
        end: The end of them.
        code: What replaces them.
    """

    line: int
    scope: str
    change: str
    start: int
    end: int
    code: str

    def applied_to(self, source: str) -> str:
        """Return the file with the change."""
        text = source.encode()
        return (text[: self.start] + self.code.encode() + text[self.end :]).decode()


class _Change(NamedTuple):
    """`node` is replaced by `code`; `shown` is what readers get to see."""

    node: ast.expr | ast.stmt
    code: str
    shown: str


def find_mutants(source: str) -> list[Mutant]:
    """Return all mutants of a source text, in the order of the text."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found: list[Mutant] = []
    for scope, change in _walk(ast.parse(source), ()):
        node = change.node
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        found.append(Mutant(node.lineno, ".".join(scope) or "module", change.shown, start, end, change.code))
    return found


def _walk(node: ast.AST, scope: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], _Change]]:
    """Yield all changes at and below a node, with the names of the classes and functions around it."""
    if isinstance(node, ast.stmt) and _is_plain(node, scope):
        return
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        scope = (*scope, node.name)
    for change in _changes(node):
        yield scope, change
    for field, value in ast.iter_fields(node):
        if field in _UNCHANGED_FIELDS or (isinstance(node, ast.ClassDef) and field != "body"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                yield from _walk(child, scope)


def _is_plain(node: ast.stmt, scope: tuple[str, ...]) -> bool:
    """Whether a statement is left out: log messages, texts, fields of classes, assertions, imports for type checkers."""
    if isinstance(node, ast.AnnAssign):
        return not scope or scope[-1].strip("_")[:1].isupper()
    if isinstance(node, ast.Expr):
        return ast.unparse(node).startswith(("logger.", "warnings.", "'", '"'))
    return isinstance(node, ast.Assert) or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")


def _changes(node: ast.AST) -> Iterator[_Change]:
    if isinstance(node, ast.stmt):
        yield from _statements(node)
    test = getattr(node, "test", None)
    for condition in [test] if isinstance(test, ast.expr) else getattr(node, "ifs", []):
        yield from _conditions(condition)
    if isinstance(node, ast.BoolOp):
        for operand in node.values:
            rest = [value for value in node.values if value is not operand]
            yield _change(node, rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest))
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield _change(node, ast.Constant(not node.value))
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS and _has_names(node):
        yield _change(node, ast.BinOp(node.left, _OPERATORS[type(node.op)](), node.right))


def _statements(node: ast.stmt) -> Iterator[_Change]:
    """Changes of a whole statement: it is left out, or a function returns None or the opposite."""
    left_out = isinstance(node, ast.AugAssign | ast.Raise | ast.Delete)
    left_out |= isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await)
    left_out |= isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute | ast.Subscript)
    if left_out:
        yield _Change(node, "pass", f"{_shown(node)} -> pass")
    if isinstance(node, ast.Return) and node.value is not None:
        value = node.value
        if not isinstance(value, ast.Constant):
            yield _Change(node, "return None", f"{_shown(node)} -> return None")
        if isinstance(value, ast.Compare) and len(value.ops) == 1 and type(value.ops[0]) in _OPPOSITES:
            yield _change(value, ast.Compare(value.left, [_OPPOSITES[type(value.ops[0])]()], value.comparators))
        elif isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not):
            yield _change(value, value.operand)


def _conditions(test: ast.expr) -> Iterator[_Change]:
    """A condition that is always true, or always false. For `and` and `or`, operands are left out instead of one of them."""
    if not isinstance(test, ast.Constant):
        for value in (True, False):
            if not (isinstance(test, ast.BoolOp) and value is isinstance(test.op, ast.And)):
                yield _change(test, ast.Constant(value))


def _has_names(node: ast.BinOp) -> bool:
    """Whether it is more than constants: 64 * 1024 - 1."""
    return any(isinstance(part, ast.Name | ast.Call) for part in ast.walk(node))


def _change(node: ast.expr, new: ast.expr) -> _Change:
    return _Change(node, f"({ast.unparse(new)})", f"{_shown(node)} -> {_shown(new)}")


def _shown(node: ast.AST) -> str:
    line = " ".join(ast.unparse(node).split())
    return line if len(line) <= 120 else f"{line[:80]} … {line[-36:]}"
