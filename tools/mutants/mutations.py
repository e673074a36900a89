"""The mutants of a source file: each has one changed condition, constant, operator or result, or lacks one statement."""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

#: Mistakes at a boundary, and the opposite of a comparison.
_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_BOUNDARIES = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add}
#: What is not mutated: types, texts (in which the positions of nodes are wrong before Python 3.12), decorators.
_UNCHANGED_FIELDS = frozenset({"annotation", "returns", "decorator_list", "type_params", "bases"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_Statement: TypeAlias = ast.stmt


class Mutant(NamedTuple):
    """One change. `lines` are the first and the last line that a test has to reach to notice it."""

    name: str
    lines: tuple[int, int]
    text: str
    #: The same for equal changes of an equal function or class, wherever it stands in the file.
    key: str


class _Change(NamedTuple):
    """`node` is replaced by `code`; `shown` is what readers get to see."""

    node: ast.expr | ast.stmt
    code: str
    before: str
    after: str


def find_mutants(source: str) -> list[Mutant]:
    """Return all mutants of a source text, in the order of the text."""
    found: list[Mutant] = []
    names: Counter[str] = Counter()
    text = source.encode()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def position(line: int, column: int) -> int:
        return starts[line - 1] + column

    for unit in ast.parse(source).body:
        end = position(unit.end_lineno or unit.lineno, unit.end_col_offset or 0)
        for scope, statement, change in _walk(unit, (), unit):
            node = change.node
            first = position(node.lineno, node.col_offset)
            last = position(node.end_lineno or node.lineno, node.end_col_offset or 0)
            changed = text[:first] + change.code.encode() + text[last:]
            name = f"{'.'.join(scope) or 'module'}: {change.before} -> {change.after}"
            names[name] += 1
            name += f" #{names[name]}" if names[name] > 1 else ""
            unit_changed = changed[position(unit.lineno, 0) : end + len(changed) - len(text)]
            key = hashlib.sha256(b"%b\n%b" % (name.encode(), unit_changed)).hexdigest()
            lines = (statement.lineno, node.end_lineno or node.lineno)
            found.append(Mutant(name, lines, changed.decode(), key))
    return found


def _walk(
    node: ast.AST, scope: tuple[str, ...], statement: _Statement
) -> Iterator[tuple[tuple[str, ...], _Statement, _Change]]:
    """Yield all changes at and below a node, with the names of the functions around it and its statement."""
    if isinstance(node, ast.stmt):
        statement = node
        if _is_plain(node, scope):
            return
    if isinstance(node, ast.BinOp) and not any(isinstance(part, ast.Name | ast.Call) for part in ast.walk(node)):
        return  # 64 * 1024
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        scope = (*scope, node.name)
    for change in _changes(node):
        yield scope, statement, change
    for field, value in ast.iter_fields(node):
        if field in _UNCHANGED_FIELDS or (isinstance(node, ast.ClassDef) and field != "body"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                if isinstance(child, ast.Constant) and isinstance(child.value, int | float):
                    for change in _constants(child, node):
                        yield scope, statement, change
                yield from _walk(child, scope, statement)


def _is_plain(node: ast.stmt, scope: tuple[str, ...]) -> bool:
    """Whether a statement is not mutated: log messages, fields of classes, assertions for type checkers."""
    if isinstance(node, ast.Assert):
        return True
    if isinstance(node, ast.AnnAssign):
        return not scope or scope[-1][:1].isupper() or scope[-1][:2].strip("_").isupper()
    return isinstance(node, ast.Expr) and ast.unparse(node).startswith(("logger.", "warnings.", "'", '"'))


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
    elif isinstance(node, ast.Compare) and isinstance(node.ops[0], _BOUNDARIES):
        yield _change(node, _compared(node))
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and _is_limits(node.value):
        yield _change(node, ast.BinOp(node, ast.Mult(), ast.Constant(1000)))
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS and not isinstance(node.left, ast.Constant):
        yield _change(node, ast.BinOp(node.left, _OPERATORS[type(node.op)](), node.right))


def _is_limits(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name.strip("_") == "limits"


def _statements(node: ast.stmt) -> Iterator[_Change]:
    """Changes of a whole statement: it is left out, or a function returns None or the opposite."""
    left_out = isinstance(node, ast.AugAssign | ast.Raise | ast.Delete)
    left_out |= isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await)
    left_out |= isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute | ast.Subscript)
    if left_out:
        yield _Change(node, "pass", _shown(node), "pass")
    if isinstance(node, ast.Return) and node.value is not None:
        if not (isinstance(node.value, ast.Constant) and node.value.value in (None, False)):
            yield _Change(node, "return None", _shown(node), "return None")
        value = node.value
        if isinstance(value, ast.Compare) and not isinstance(value.ops[0], _BOUNDARIES) and len(value.ops) == 1:
            yield _change(value, _compared(value))
        elif isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not):
            yield _change(value, value.operand)
        elif isinstance(value, ast.BoolOp) and any(isinstance(part, ast.Compare) for part in value.values):
            yield _change(value, ast.Constant(True))


def _conditions(test: ast.expr) -> Iterator[_Change]:
    """A condition that is always true, or always false. For `and` and `or`, operands are left out instead of one of them."""
    if not isinstance(test, ast.Constant):
        for value in (True, False):
            if not (isinstance(test, ast.BoolOp) and value is isinstance(test.op, ast.And)):
                yield _change(test, ast.Constant(value))


def _constants(node: ast.Constant, parent: ast.AST) -> Iterator[_Change]:
    """Another number or truth value."""
    old = node.value
    if isinstance(old, bool):
        new: ast.expr = ast.Constant(not old)
    elif isinstance(old, int):
        new = ast.Constant(old + 1)
    else:
        new = ast.Constant(1000 * float(old) or 1000.0)  # type: ignore[arg-type]  # int, float or str by the check above
    if isinstance(parent, ast.Return):
        yield _Change(node, ast.unparse(new), _shown(parent), f"return {ast.unparse(new)}")
    elif isinstance(parent, ast.expr | ast.keyword | ast.Assign | ast.AugAssign | ast.AnnAssign):
        before = ast.unparse(parent)
        node.value, after = new.value, ""  # type: ignore[attr-defined]  # a constant node has a value
        after = _short(ast.unparse(parent))
        node.value = old
        yield _Change(node, ast.unparse(new), _short(before), after)
    else:
        yield _change(node, new)


def _compared(node: ast.Compare) -> ast.expr:
    return ast.Compare(node.left, [_COMPARISONS[type(node.ops[0])](), *node.ops[1:]], node.comparators)


def _change(node: ast.expr, new: ast.expr) -> _Change:
    return _Change(node, f"({ast.unparse(new)})", _shown(node), _shown(new))


def _shown(node: ast.AST) -> str:
    return _short(ast.unparse(node))


def _short(code: str) -> str:
    line = " ".join(code.split())
    return line if len(line) <= 120 else f"{line[:80]} … {line[-36:]}"
