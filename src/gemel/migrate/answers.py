"""Answers of users that are used in other shapes than those of `structure.py`: without an answer the error is the value.

The other libraries return an object with `action` and `data`. Here the question stands in a `try` that keeps the error, so that
`answer.data` is the value itself and `isinstance(answer, AcceptedElicitation)` is `not isinstance(answer, Declined)`.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
import libcst.matchers as m

from gemel.migrate import names
from gemel.migrate.arguments import CallArguments, code_of, text_of
from gemel.migrate.bindings import Bindings
from gemel.migrate.names import Name

_ASKS = ("elicit", "elicit_url")


class AnswersPass(cst.CSTTransformer):
    """The pass after that of `structure.py`.

    Args:
        bindings: What the expressions of the module refer to.
        module: The module.
    """

    def __init__(self, bindings: Bindings, module: cst.Module) -> None:
        super().__init__()
        self._bindings = bindings
        #: What the rewritten statements need.
        self.imports: set[Name] = set()
        #: Names of imports that may have lost their uses.
        self.dropped: set[str] = set()
        #: The statements that ask, with the name of the answer; and `return Elicit(…)` in dependencies.
        self._questions: dict[cst.SimpleStatementLine, str] = {}
        self._returned: set[cst.SimpleStatementLine] = set()
        #: The names of answers where they are used, with the type of the form.
        self._uses: dict[cst.Name, str | None] = {}
        #: Annotations of parameters, and of what dependencies return.
        self._annotations: dict[cst.BaseExpression, str] = {}
        self._asking: set[cst.FunctionDef] = set()
        #: The quotes of the formatted strings around a node.
        self._quotes: list[str] = []
        #: What the error is called; the name is gone after its handler.
        self._error = "unanswered" if m.findall(module, m.Name("declined")) else "declined"
        self._caught = {
            line
            for tried in m.findall(module, m.Try(handlers=[m.AtLeastN(m.ExceptHandler(type=m.Name("Declined")), n=1)]))
            for line in m.findall(cst.ensure_type(tried, cst.Try).body, m.SimpleStatementLine())
        }
        functions = [node for node in m.findall(module, m.FunctionDef()) if isinstance(node, cst.FunctionDef)]
        if bindings.is_taken("Declined", Name("Declined")):
            return
        for function in functions:
            self._answers_of(function)
        self._resolved(module, functions)

    # ---------------------------------------------------------------- what there is

    def _answers_of(self, function: cst.FunctionDef) -> None:
        """Find `name = await ctx.elicit(…)` whose name is used in known shapes only."""
        asked: dict[str, list[tuple[cst.SimpleStatementLine, cst.Name, str | None]]] = {}
        for line in m.findall(
            function.body, m.SimpleStatementLine(body=[m.Assign(targets=[m.AssignTarget(m.Name())])])
        ):
            assert isinstance(line, cst.SimpleStatementLine)
            assign = cst.ensure_type(line.body[0], cst.Assign)
            call = assign.value.expression if isinstance(assign.value, cst.Await) else None
            if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Attribute):
                continue
            if call.func.attr.value in _ASKS and self._bindings.kind(call.func.value) == "context":
                target = cst.ensure_type(assign.targets[0].target, cst.Name)
                asked.setdefault(target.value, []).append((line, target, _form(call)))
        for name, questions in asked.items():
            targets = {target for _, target, _ in questions}
            forms = {form for _, _, form in questions}
            if any(line in self._caught for line, _, _ in questions):
                continue
            uses = self._known_uses(function, name, forms.pop() if len(forms) == 1 else None, targets)
            if uses is not None:
                self._uses |= uses
                self._questions |= {line: name for line, _, _ in questions}

    def _known_uses(
        self, function: cst.FunctionDef, name: str, form: str | None, targets: set[cst.Name]
    ) -> dict[cst.Name, str | None] | None:
        """The uses of an answer in a function; None if there is one of another shape."""
        finder = _Finder(name)
        function.body.visit(finder)
        known: dict[cst.Name, str | None] = {}
        for node in finder.attributes:
            known[cst.ensure_type(node.value, cst.Name)] = form
        for call in finder.tests:
            if self._tested(call) is not None:
                known[cst.ensure_type(call.args[0].value, cst.Name)] = form
        for match in finder.matches:
            if all(self._pattern(case.pattern, form) is not None for case in match.cases):
                known[cst.ensure_type(match.subject, cst.Name)] = form
        return known if set(known) | targets == set(finder.names) else None

    def _tested(self, call: cst.Call) -> frozenset[str] | None:
        """The actions that `isinstance(answer, …)` is true for; None if it names another class."""
        classes = call.args[1].value
        parts = list(_alternatives(classes))
        kinds = [names.ANSWERS.get(self._bindings.imported(part) or "") for part in parts]
        return frozenset(kind for kind in kinds if kind) if all(kinds) else None

    def _resolved(self, module: cst.Module, functions: list[cst.FunctionDef]) -> None:
        """Find `Annotated[ElicitationResult[T], Resolve(f)]`, for functions whose answers are used so everywhere."""
        resolved = [
            node
            for node in m.findall(module, m.Call(args=[m.Arg(m.Name())]))
            if isinstance(node, cst.Call) and self._bindings.imported(node.func) in names.RESOLVERS
        ]
        used: dict[str, list[tuple[cst.FunctionDef, cst.Param, cst.Subscript]]] = {}
        for function in functions:
            for parameter in (*function.params.params, *function.params.kwonly_params):
                found = self._result_of(parameter)
                if found is not None:
                    resolver, result = found
                    used.setdefault(resolver, []).append((function, parameter, result))
        for resolver, uses in used.items():
            asker = self._bindings.functions.get(resolver)
            everywhere = sum(code_of(call.args[0].value) == resolver for call in resolved) == len(uses)
            returned = list(self._returned_questions(asker)) if asker is not None else []
            if asker is None or not everywhere or not returned:
                continue
            known: dict[cst.Name, str | None] = {}
            for function, parameter, result in uses:
                inner = cst.ensure_type(result.slice[0].slice, cst.Index).value
                name, form = parameter.name.value, inner.value if isinstance(inner, cst.Name) else None
                found_uses = self._known_uses(function, name, form, set())
                if found_uses is None:
                    break
                known |= found_uses
            else:
                self._uses |= known
                self._returned.update(returned)
                self._asking.add(asker)
                for _, _, result in uses:
                    self._annotations[result] = code_of(cst.ensure_type(result.slice[0].slice, cst.Index).value)

    def _result_of(self, parameter: cst.Param) -> tuple[str, cst.Subscript] | None:
        """The function and the `ElicitationResult[T]` of a parameter; None for others."""
        annotation = parameter.annotation.annotation if parameter.annotation is not None else None
        if not isinstance(annotation, cst.Subscript) or len(annotation.slice) != 2:
            return None
        first, second = (part.slice for part in annotation.slice)
        if not isinstance(first, cst.Index) or not isinstance(second, cst.Index):
            return None
        result, call = first.value, second.value
        if not isinstance(result, cst.Subscript) or not isinstance(call, cst.Call) or len(call.args) != 1:
            return None
        if self._bindings.imported(result.value) not in names.ANSWER_UNIONS:
            return None
        resolver = call.args[0].value
        known = self._bindings.imported(call.func) in names.RESOLVERS and isinstance(resolver, cst.Name)
        return (code_of(resolver), result) if known else None

    def _returned_questions(self, function: cst.FunctionDef) -> Iterator[cst.SimpleStatementLine]:
        for line in m.findall(function.body, m.SimpleStatementLine(body=[m.Return(m.Call())])):
            assert isinstance(line, cst.SimpleStatementLine)
            call = cst.ensure_type(cst.ensure_type(line.body[0], cst.Return).value, cst.Call)
            if names.QUESTIONS.get(self._bindings.imported(call.func) or "", ("", None))[0] == "elicit":
                yield line

    # ---------------------------------------------------------------- what becomes of it

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement:
        if original_node in self._questions:
            kept = f"{self._questions[original_node]} = {self._error}"
        elif original_node in self._returned:
            kept = f"return {self._error}"
        else:
            return updated_node
        self.imports.add(Name("Declined"))
        handler = cst.ExceptHandler(
            type=cst.Name("Declined"),
            name=cst.AsName(cst.Name(self._error)),
            body=cst.IndentedBlock([cst.parse_statement(kept)]),
        )
        body = cst.IndentedBlock([updated_node.with_changes(leading_lines=())])
        return cst.Try(body=body, handlers=[handler], leading_lines=updated_node.leading_lines)

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        if original_node.value not in self._uses:
            return updated_node
        name = code_of(original_node.value)
        if original_node.attr.value == "data":
            return cst.Name(name)
        quote = "'" if '"' in "".join(self._quotes) else '"'
        return cst.parse_expression(f"({name}.action if isinstance({name}, Declined) else {quote}accept{quote})")

    def visit_FormattedString(self, node: cst.FormattedString) -> None:
        self._quotes.append(node.start)

    def leave_FormattedString(
        self, original_node: cst.FormattedString, updated_node: cst.FormattedString
    ) -> cst.FormattedString:
        self._quotes.pop()
        return updated_node

    def leave_Comparison(self, original_node: cst.Comparison, updated_node: cst.Comparison) -> cst.BaseExpression:
        """`answer.action == "accept"` as `not isinstance(answer, Declined)`."""
        left = original_node.left
        if not isinstance(left, cst.Attribute) or left.value not in self._uses or left.attr.value != "action":
            return updated_node
        target = original_node.comparisons[0]
        if len(original_node.comparisons) != 1 or text_of(target.comparator) != "accept":
            return updated_node
        tests = {cst.Equal: "not isinstance({}, Declined)", cst.NotEqual: "isinstance({}, Declined)"}
        test = tests.get(type(target.operator))
        return cst.parse_expression(test.format(code_of(left.value))) if test is not None else updated_node

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        if not m.matches(original_node, _IS_INSTANCE) or original_node.args[0].value not in self._uses:
            return updated_node
        actions = self._tested(original_node)
        assert actions is not None
        self._drop(original_node.args[1].value)
        name = code_of(original_node.args[0].value)
        declined = actions - {"accept"}
        wanted = f"isinstance({name}, Declined)"
        if len(declined) == 1:
            wanted = f'({wanted} and {name}.action == "{"".join(declined)}")'
        if "accept" not in actions:
            return cst.parse_expression(wanted)
        if not declined:
            return cst.parse_expression(f"not isinstance({name}, Declined)")
        if len(declined) == 2:
            return cst.Name("True")
        other = "".join({"decline", "cancel"} - declined)
        return cst.parse_expression(f'not (isinstance({name}, Declined) and {name}.action == "{other}")')

    def leave_UnaryOperation(
        self, original_node: cst.UnaryOperation, updated_node: cst.UnaryOperation
    ) -> cst.BaseExpression:
        """`not not isinstance(…)` as `isinstance(…)`."""
        inner = updated_node.expression
        if inner is original_node.expression or not isinstance(inner, cst.UnaryOperation):
            return updated_node
        is_twice = isinstance(updated_node.operator, cst.Not) and isinstance(inner.operator, cst.Not)
        return inner.expression if is_twice else updated_node

    def leave_Match(self, original_node: cst.Match, updated_node: cst.Match) -> cst.Match:
        if original_node.subject not in self._uses:
            return updated_node
        form = self._uses[cst.ensure_type(original_node.subject, cst.Name)]
        cases = []
        for old, new in zip(original_node.cases, updated_node.cases, strict=True):
            pattern = self._pattern(old.pattern, form)
            assert pattern is not None
            if pattern is not old.pattern:
                self._drop(old.pattern)
            cases.append(new.with_changes(pattern=pattern))
        return updated_node.with_changes(cases=cases)

    def _pattern(self, pattern: cst.MatchPattern, form: str | None) -> cst.MatchPattern | None:
        """The pattern for a value or an error; None for one that is not known."""
        if isinstance(pattern, cst.MatchAs) and pattern.pattern is None:
            return pattern  # `case _` and `case name`
        if isinstance(pattern, cst.MatchOr):
            options = [self._pattern(option.pattern, form) for option in pattern.patterns]
            if not all(isinstance(option, cst.MatchPattern) for option in options):
                return None
            elements = zip(pattern.patterns, options, strict=True)
            return pattern.with_changes(patterns=[element.with_changes(pattern=new) for element, new in elements])
        if not isinstance(pattern, cst.MatchClass) or pattern.patterns:
            return None
        kind = names.ANSWERS.get(self._bindings.imported(pattern.cls) or "")
        data = [element.pattern for element in pattern.kwds if element.key.value == "data"]
        if kind is None or len(data) != len(pattern.kwds):
            return None
        if kind != "accept":
            return _case(f'Declined(action="{kind}")') if not data else None
        if data and not _catches_all(data[0]):
            return data[0]
        if form is None:
            return None
        if not data:
            return _case(f"{form}()")
        name = cst.ensure_type(data[0], cst.MatchAs).name
        return _case(f"{form}() as {name.value}" if name is not None else f"{form}()")

    def leave_Subscript(self, original_node: cst.Subscript, updated_node: cst.Subscript) -> cst.BaseExpression:
        if original_node not in self._annotations:
            return updated_node
        self._drop(original_node.value)
        self.imports.add(Name("Declined"))
        return cst.parse_expression(f"{self._annotations[original_node]} | Declined")

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        """A dependency that returns the error, too."""
        if original_node not in self._asking or updated_node.returns is None:
            return updated_node
        returns = updated_node.returns
        joined = cst.BinaryOperation(returns.annotation, cst.BitOr(), cst.Name("Declined"))
        return updated_node.with_changes(returns=returns.with_changes(annotation=joined))

    def _drop(self, node: cst.CSTNode) -> None:
        self.dropped.update(name.value for name in m.findall(node, m.Name()) if isinstance(name, cst.Name))


_IS_INSTANCE = m.Call(func=m.Name("isinstance"), args=[m.Arg(m.Name()), m.Arg()])


class _Finder(cst.CSTVisitor):
    """Where a function uses a name: as a plain name, and in the shapes that can be rewritten."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self.names: list[cst.Name] = []
        self.attributes: list[cst.Attribute] = []
        self.tests: list[cst.Call] = []
        self.matches: list[cst.Match] = []

    def visit_Name(self, node: cst.Name) -> None:
        if node.value == self._name:
            self.names.append(node)

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        if m.matches(node, m.Attribute(m.Name(self._name), m.Name("action") | m.Name("data"))):
            self.attributes.append(node)
        node.value.visit(self)
        return False

    def visit_Arg(self, node: cst.Arg) -> bool:
        node.value.visit(self)
        return False

    def visit_MatchKeywordElement(self, node: cst.MatchKeywordElement) -> bool:
        node.pattern.visit(self)
        return False

    def visit_Call(self, node: cst.Call) -> None:
        if m.matches(node, _IS_INSTANCE) and m.matches(node.args[0].value, m.Name(self._name)):
            self.tests.append(node)

    def visit_Match(self, node: cst.Match) -> None:
        if m.matches(node.subject, m.Name(self._name)):
            self.matches.append(node)


def _form(call: cst.Call) -> str | None:
    """The class in `ctx.elicit(message, schema)`, if that is a plain name."""
    if cst.ensure_type(call.func, cst.Attribute).attr.value != "elicit":
        return None
    arguments = CallArguments(call, ("message", "schema"))
    form = arguments.get("schema") or arguments.get("response_type")
    return form.value if isinstance(form, cst.Name) and form.value != "None" else None


def _alternatives(classes: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """The classes in `A`, `(A, B)` and `A | B`."""
    if isinstance(classes, cst.Tuple):
        yield from (element.value for element in classes.elements)
    elif isinstance(classes, cst.BinaryOperation) and isinstance(classes.operator, cst.BitOr):
        yield from _alternatives(classes.left)
        yield from _alternatives(classes.right)
    else:
        yield classes


def _catches_all(pattern: cst.MatchPattern) -> bool:
    return isinstance(pattern, cst.MatchAs) and pattern.pattern is None


def _case(pattern: str) -> cst.MatchPattern:
    """Parse a pattern."""
    match = cst.ensure_type(cst.parse_statement(f"match x:\n    case {pattern}:\n        pass\n"), cst.Match)
    return match.cases[0].pattern
