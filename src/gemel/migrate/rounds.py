"""Functions that return `InputRequiredResult` and run again with the answers: they stand in a function that asks."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
import libcst.matchers as m

from gemel.migrate.arguments import code_of
from gemel.migrate.bindings import Bindings
from gemel.migrate.written import IN_ROUNDS, Written

_ROUND = ("input_responses", "request_state")
#: Names that the rewritten functions use.
_USED = frozenset({*_ROUND, "run", "in_rounds"})
NOTE = (
    "in_rounds() asks for what the function requires; with each answer of a stateless client it runs again from its first round: "
    "what must not happen twice belongs in ctx.step"
)


class RoundsPass(cst.CSTTransformer):
    """A pass before the names are rewritten.

    Args:
        bindings: What the expressions of the module refer to.
        module: The module.
    """

    def __init__(self, bindings: Bindings, module: cst.Module) -> None:
        super().__init__()
        self._bindings = bindings
        #: What is left to check by hand, with the line.
        self.notes: list[tuple[int, str]] = []
        #: What is written out.
        self.written: list[Written] = []
        taken = {name.value for name in m.findall(module, m.Name()) if isinstance(name, cst.Name)}
        attributes = {
            node.attr.value for node in m.findall(module, m.Attribute()) if isinstance(node, cst.Attribute)
        } | {
            arg.keyword.value
            for arg in m.findall(module, m.Arg(keyword=m.Name()))
            if isinstance(arg, cst.Arg) and arg.keyword
        }
        self._free = not (taken - attributes) & _USED
        #: The functions, each with its context.
        self._functions: dict[cst.FunctionDef, str] = {}
        self._members: set[cst.Attribute] = set()
        for function in m.findall(module, m.FunctionDef()):
            if isinstance(function, cst.FunctionDef) and self._free:
                self._find(function)

    def _find(self, function: cst.FunctionDef) -> None:
        """Keep an async function that reads the answers of its context, if it has no functions of its own."""
        members = [
            node
            for node in m.findall(function.body, m.Attribute(attr=m.OneOf(*map(m.Name, _ROUND))))
            if isinstance(node, cst.Attribute) and self._bindings.kind(node.value) == "context"
        ]
        contexts = {code_of(node.value) for node in members}
        inner = m.findall(function.body, m.FunctionDef() | m.Lambda() | m.Yield())
        if function.asynchronous is None or len(contexts) != 1 or inner or function.returns is None:
            return
        returned = [part for part in _union(function.returns.annotation) if not self._asks(part)]
        if returned and len(returned) < len(list(_union(function.returns.annotation))):
            self._functions[function] = contexts.pop()
            self._members.update(members)

    def _asks(self, annotation: cst.BaseExpression) -> bool:
        return (self._bindings.imported(annotation) or "").endswith(".InputRequiredResult")

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        return updated_node.attr if original_node in self._members else updated_node

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        context = self._functions.get(original_node)
        if context is None or original_node.returns is None or not isinstance(updated_node.body, cst.IndentedBlock):
            return updated_node
        self.notes.append((self._bindings.line(original_node), NOTE))
        self.written = [IN_ROUNDS]
        body = list(updated_node.body.body)
        docstring = body[:1] if m.matches(body[0], _DOCSTRING) else []
        returns = code_of(original_node.returns.annotation)
        run = cst.parse_statement(
            f"async def run(input_responses: dict[str, Any] | None, request_state: str | None) -> {returns}:\n    pass\n"
        )
        assert isinstance(run, cst.FunctionDef)
        blank = [cst.EmptyLine(indent=False)] if docstring else []
        run = run.with_changes(
            body=updated_node.body.with_changes(body=body[len(docstring) :]),
            returns=updated_node.returns,
            leading_lines=blank,
        )
        last = cst.parse_statement(f"return await in_rounds({context}, run)")
        assert isinstance(last, cst.SimpleStatementLine)
        last = last.with_changes(leading_lines=[cst.EmptyLine(indent=False)])
        kept = [code_of(part) for part in _union(original_node.returns.annotation) if not self._asks(part)]
        return updated_node.with_changes(
            body=updated_node.body.with_changes(body=[*docstring, run, last]),
            returns=original_node.returns.with_changes(annotation=cst.parse_expression(" | ".join(kept))),
        )


_DOCSTRING = m.SimpleStatementLine(body=[m.Expr(value=m.SimpleString() | m.ConcatenatedString())])


def _union(annotation: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """The types in `A | B`."""
    if isinstance(annotation, cst.BinaryOperation) and isinstance(annotation.operator, cst.BitOr):
        yield from _union(annotation.left)
        yield from _union(annotation.right)
    else:
        yield annotation
