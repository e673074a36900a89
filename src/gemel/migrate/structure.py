"""Statements that change their shape: answers of the user, and the nested `async with` of the official client.

These go first, because a condition on the answer's action becomes an `except`. What has another shape than the ones here is
left to the notes of the second pass.
"""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst
import libcst.matchers as m

from gemel.migrate import names
from gemel.migrate.arguments import CallArguments, code_of
from gemel.migrate.bindings import Bindings
from gemel.migrate.names import Name

_DECLINED = "Declined"
_QUESTION = m.Name("elicit") | m.Name("elicit_url")


class StructurePass(cst.CSTTransformer):
    """The first pass.

    Args:
        bindings: What the expressions of the module refer to.
    """

    def __init__(self, bindings: Bindings) -> None:
        super().__init__()
        self._bindings = bindings
        #: What the rewritten statements need.
        self.imports: set[Name] = set()
        #: Names of imports that may have lost their uses.
        self.dropped: set[str] = set()

    # ---------------------------------------------------------------- answers

    def leave_IndentedBlock(self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock) -> cst.BaseSuite:
        old, new = original_node.body, list(updated_node.body)
        if len(old) != len(new):
            return updated_node
        for index in range(len(old) - 2, -1, -1):
            name = self._asked(old[index])
            if name is not None and isinstance(new[index + 1], cst.If):
                replaced = self._answered(name, new[index], new[index + 1], new[index + 2 :])
                if replaced is not None:
                    new[index:] = replaced
                    self.imports.add(Name(_DECLINED))
        return updated_node.with_changes(body=new)

    def _asked(self, statement: cst.BaseStatement) -> str | None:
        """The name in `name = await ctx.elicit(…)`, or in that of `elicit_url`."""
        matched = m.extract(
            statement,
            m.SimpleStatementLine(
                body=[
                    m.Assign(
                        targets=[m.AssignTarget(m.SaveMatchedNode(m.Name(), "name"))],
                        value=m.Await(
                            m.Call(func=m.Attribute(value=m.SaveMatchedNode(m.Name(), "ctx"), attr=_QUESTION))
                        ),
                    )
                ]
            ),
        )
        if matched is None or self._bindings.kind(matched["ctx"]) != "context":  # type: ignore[arg-type]  # a visit or a pattern keeps the kind of node
            return None
        return matched["name"].value  # type: ignore[union-attr, no-any-return]  # a visit or a pattern keeps the kind of node

    def _answered(
        self, name: str, ask: cst.BaseStatement, test: cst.BaseStatement, following: Sequence[cst.BaseStatement]
    ) -> list[cst.BaseStatement] | None:
        """The `try` in place of a question and the `if` behind it; None for other shapes."""
        assert isinstance(test, cst.If)
        condition, more = _first_condition(test.test) if test.orelse is None else (test.test, None)
        accepted = self._accepts(condition, name)
        if accepted is None or (more is not None and not accepted):
            return None
        self.dropped.add("AcceptedElicitation")
        data = _Data(name)
        if accepted:
            inner = test.with_changes(test=more, leading_lines=()) if more is not None else None
            body = (test.body if inner is None else cst.IndentedBlock([inner])).visit(data)
            otherwise: cst.BaseSuite | None = None
            if isinstance(test.orelse, cst.Else):
                otherwise = test.orelse.body
            elif isinstance(test.orelse, cst.If):
                otherwise = cst.IndentedBlock([test.orelse])
            handler, needs_error = self._handler(otherwise, name)
            if handler is None or data.other or any(_uses(statement, name) for statement in following):
                return None
            return [_try(ask, handler, needs_error, name, body), *following]  # type: ignore[arg-type]  # a visit or a pattern keeps the kind of node
        if test.orelse is not None or not _ends(test.body):
            return None
        handler, needs_error = self._handler(test.body, name)
        changed = [statement.visit(data) for statement in following]
        if handler is None or data.other:
            return None
        return [_try(ask, handler, needs_error, name, None), *changed]  # type: ignore[list-item]  # a visit or a pattern keeps the kind of node

    def _accepts(self, test: cst.BaseExpression, name: str) -> bool | None:
        """Whether a condition holds for an accepted answer; False if it holds for all others, None if it is another one."""
        action = m.Attribute(value=m.Name(name), attr=m.Name("action"))
        accept = m.SimpleString(value=m.MatchIfTrue(lambda text: text[1:-1] == "accept"))
        if m.matches(test, m.Comparison(left=action, comparisons=[m.ComparisonTarget(m.Equal(), accept)])):
            return True
        if m.matches(test, m.Comparison(left=action, comparisons=[m.ComparisonTarget(m.NotEqual(), accept)])):
            return False
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            inner = self._accepts(test.expression, name)
            return None if inner is None else not inner
        is_instance = m.Call(func=m.Name("isinstance"), args=[m.Arg(m.Name(name)), m.Arg(m.DoNotCare())])
        if m.matches(test, is_instance) and code_of(test.args[1].value).endswith("AcceptedElicitation"):  # type: ignore[attr-defined]  # a visit or a pattern keeps the kind of node
            return True
        return None

    def _handler(self, body: cst.BaseSuite | None, name: str) -> tuple[cst.BaseSuite | None, bool]:
        """What happens without an answer, and whether it needs the error; None if it uses more than the action."""
        if body is None:
            return cst.IndentedBlock([cst.SimpleStatementLine([cst.Pass()])]), False
        action = _Action(name)
        changed = body.visit(action)
        if action.other:
            return None, False
        return changed, action.used  # type: ignore[return-value]  # a visit or a pattern keeps the kind of node

    # ---------------------------------------------------------------- clients

    def leave_With(self, original_node: cst.With, updated_node: cst.With) -> cst.With:
        """`async with stdio_client(…) as (r, w), ClientSession(r, w) as session:` as one client, nested or not."""
        target = self._transport(original_node.items[0].item)
        if target is None:
            return updated_node
        items, body = list(updated_node.items), updated_node.body
        old_session = original_node.items[1].item if len(original_node.items) > 1 else None
        if len(items) == 1:
            inner, old_inner = body.body, original_node.body.body
            if len(inner) != 1 or not isinstance(inner[0], cst.With) or not isinstance(old_inner[0], cst.With):
                return updated_node
            items += inner[0].items
            body, old_session = inner[0].body, old_inner[0].items[0].item
        if len(items) != 2 or not isinstance(old_session, cst.Call):
            return updated_node
        if self._bindings.imported(old_session.func) not in names.SESSIONS:
            return updated_node
        call = items[1].item
        assert isinstance(call, cst.Call)
        self.dropped.update(
            code_of(with_item.item.func)
            for with_item in original_node.items[:1]
            if isinstance(with_item.item, cst.Call)
        )
        options = [arg for arg in call.args if arg.keyword is not None]
        client = call.with_changes(args=[*target, *options])
        item = items[1].with_changes(item=client, comma=cst.MaybeSentinel.DEFAULT)
        return updated_node.with_changes(
            items=[item], body=body, lpar=cst.MaybeSentinel.DEFAULT, rpar=cst.MaybeSentinel.DEFAULT
        )

    def _transport(self, node: cst.BaseExpression) -> list[cst.Arg] | None:
        """The arguments of a client for one of the official transports."""
        if not isinstance(node, cst.Call):
            return None
        full_name = self._bindings.imported(node.func)
        arguments = CallArguments(node, ("url", "headers") if full_name in names.URL_TRANSPORTS else ("server",))
        allowed = {"url", "headers"} if full_name in names.URL_TRANSPORTS else {"server"}
        if full_name not in names.URL_TRANSPORTS | names.PROCESS_TRANSPORTS or set(arguments.names()) - allowed:
            return None
        arguments.name_all_but(1)
        return list(arguments.call().args)


class _Data(cst.CSTTransformer):
    """`name.data` as `name`; `other` tells whether the name is used otherwise."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self.other = False

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        return not m.matches(node, m.Attribute(value=m.Name(self._name), attr=m.Name("data")))

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        if m.matches(original_node, m.Attribute(value=m.Name(self._name), attr=m.Name("data"))):
            return cst.Name(self._name)
        return updated_node

    def visit_Name(self, node: cst.Name) -> None:
        if node.value == self._name:
            self.other = True


class _Action(cst.CSTTransformer):
    """`name.action`, which the error has too; an `elif` for a declined answer needs no other change."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self.used = self.other = False

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        if m.matches(node, m.Attribute(value=m.Name(self._name), attr=m.Name("action"))):
            self.used = True
            return False
        return True

    def visit_Name(self, node: cst.Name) -> None:
        if node.value == self._name:
            self.other = True


def _first_condition(test: cst.BaseExpression) -> tuple[cst.BaseExpression, cst.BaseExpression | None]:
    """The first of the conditions that `and` joins, and the others."""
    if not isinstance(test, cst.BooleanOperation) or not isinstance(test.operator, cst.And):
        return test, None
    first, more = _first_condition(test.left)
    return first, test.right if more is None else test.with_changes(left=more)


def _try(
    ask: cst.BaseStatement, handler: cst.BaseSuite, needs_error: bool, name: str, body: cst.BaseSuite | None
) -> cst.Try:
    blank = ask.leading_lines if isinstance(ask, cst.SimpleStatementLine) else ()
    return cst.Try(
        leading_lines=blank,
        body=cst.IndentedBlock([ask.with_changes(leading_lines=())]),
        handlers=[
            cst.ExceptHandler(
                type=cst.Name(_DECLINED),
                name=cst.AsName(cst.Name(name)) if needs_error else None,
                body=handler,
            )
        ],
        orelse=None if body is None else cst.Else(body),
    )


def _uses(node: cst.CSTNode, name: str) -> bool:
    return bool(m.findall(node, m.Name(name)))


def _ends(body: cst.BaseSuite) -> bool:
    """Whether a block leaves the function or the loop."""
    last = body.body[-1] if body.body else None
    leaves = m.Return() | m.Raise() | m.Continue() | m.Break()
    return last is not None and m.matches(last, m.SimpleStatementLine(body=[leaves]) | leaves)
