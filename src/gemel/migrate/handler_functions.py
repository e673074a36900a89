"""Functions that servers call: injected parameters, dependencies that ask the client, and completions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst
import libcst.matchers as m

from gemel.migrate import names
from gemel.migrate.arguments import CallArguments, code_of
from gemel.migrate.names import Name
from gemel.migrate.rewrite_state import RewriteState
from gemel.migrate.tokens import injected_token
from gemel.migrate.written import PROGRESS

#: Annotations of a list whose items may be anything. For one that says so, the official SDK lists a schema of the result, which
#: is then data; FastMCP doesn't.
_BARE_LIST = re.compile(r"(?:typing\.)?(?:list|List|tuple|Tuple|Sequence|Iterable)")
_LIST_OF_ANYTHING = re.compile(rf"{_BARE_LIST.pattern}\[(?:typing\.)?(?:Any|object)(?:, \.\.\.)?\]")
#: What becomes blocks of content in a list.
_CONTENT = names.MEDIA | {old for old, new in names.NAMES.items() if new.name in names.FIXED_TYPE}
_CONTENT_OF_FASTMCP = frozenset(name for name in _CONTENT if name.startswith("fastmcp."))


@dataclass
class Asked:
    """The parameter of a function that is the context, and whether the function asks the client."""

    context: str
    asks: bool = False


class HandlerFunctions:
    """The part of the second pass that is about the functions which servers call.

    Args:
        state: What the parts of the pass share.
    """

    def __init__(self, state: RewriteState) -> None:
        self._state = state
        self._bindings = state.bindings
        #: One for each function around a node.
        self._around: list[Asked] = []

    def enter(self, node: cst.FunctionDef) -> None:
        """Note the context of a function, and the members in its decorators."""
        self._around.append(Asked(self._context_name(node.params.params)))
        self._state.replaced_members.update(
            call.func for part in node.decorators if (call := self._completion_call(part)) is not None
        )

    def leave(self) -> Asked:
        """Return what the function asked that was entered last, and forget it."""
        return self._around.pop()

    def function(
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef, asked: Asked, *, registered: bool
    ) -> cst.FunctionDef | cst.FlattenSentinel[cst.BaseStatement]:
        """Return a function as Gemel calls it.

        Args:
            original_node: The function before anything in it was rewritten.
            updated_node: The function.
            asked: What `leave` returned for it.
            registered: Whether it is registered as a tool, resource or prompt.
        """
        if registered:
            updated_node = self._returning(original_node, self._annotated(updated_node))
        if asked.asks:
            return self._asker(original_node, updated_node, asked.context)
        for decorator in original_node.decorators:
            if (call := self._completion_call(decorator)) is not None:
                return self._completion(original_node, updated_node, decorator, call)
        parameters = updated_node.params
        kept: list[cst.Param] = []
        moved: list[cst.Param] = []
        for old, new in zip(original_node.params.params, parameters.params, strict=True):
            changed = self._injected(old, new)
            if changed is None:
                kept.append(new)
            elif kept and kept[-1].default is not None:
                moved.append(changed)
            else:
                kept.append(changed)
        if not moved and all(a is b for a, b in zip(kept, parameters.params, strict=True)):
            return updated_node
        first = next((index for index, parameter in enumerate(kept) if parameter.default is not None), len(kept))
        ordered = [
            parameter.with_changes(comma=cst.MaybeSentinel.DEFAULT)
            for parameter in (*kept[:first], *moved, *kept[first:])
        ]
        return updated_node.with_changes(params=parameters.with_changes(params=ordered if moved else kept))

    def _annotated(self, node: cst.FunctionDef) -> cst.FunctionDef:
        """A function whose parameters without an annotation take anything, even where the other library lists them as texts."""

        def annotated(parameters: Sequence[cst.Param]) -> list[cst.Param]:
            return [
                one
                if one.annotation is not None
                else one.with_changes(annotation=cst.Annotation(cst.Name("Any")), **spaced(one))
                for one in parameters
            ]

        def spaced(parameter: cst.Param) -> dict[str, cst.AssignEqual]:
            blank = cst.SimpleWhitespace(" ")
            return {} if parameter.default is None else {"equal": cst.AssignEqual(blank, blank)}

        given = node.params
        if all(one.annotation is not None for one in (*given.params, *given.kwonly_params)):
            return node
        self._state.imports.add(Name("Any", "typing"))
        made = given.with_changes(params=annotated(given.params), kwonly_params=annotated(given.kwonly_params))
        return node.with_changes(params=made)

    def _returning(self, old: cst.FunctionDef, new: cst.FunctionDef) -> cst.FunctionDef:
        """A function whose list holds content, and whose annotation doesn't say so, with one that does."""
        annotation = "" if old.returns is None else code_of(old.returns.annotation)
        if _BARE_LIST.fullmatch(annotation):
            holding = _CONTENT
        elif _LIST_OF_ANYTHING.fullmatch(annotation):
            holding = _CONTENT_OF_FASTMCP
        else:
            return new
        called = (
            self._bindings.imported(cst.ensure_type(call, cst.Call).func) for call in m.findall(old.body, m.Call())
        )
        content = next((names.NAMES[name] for name in called if name in holding), None)
        if content is None or self._bindings.is_taken(content.name, content):
            return new
        self._state.imports.add(content)
        returned = cst.parse_expression(f"list[str | {content.name}]")
        return new.with_changes(returns=cst.Annotation(returned))

    def _completion_call(self, decorator: cst.Decorator) -> cst.Call | None:
        """`server.completion()` of the official SDK."""
        call = decorator.decorator
        if not isinstance(call, cst.Call) or not m.matches(call.func, m.Attribute(m.Name(), m.Name("completion"))):
            return None
        return call if self._bindings.kind(call.func.value) == "server" else None  # type: ignore[attr-defined]  # matched

    def _completion(
        self, old: cst.FunctionDef, new: cst.FunctionDef, decorator: cst.Decorator, call: cst.Call
    ) -> cst.FlattenSentinel[cst.BaseStatement]:
        """The function as it was, and behind it the handler of the protocol's request, which calls it."""
        self._state.imports |= {
            Name("Context"),
            Name("Completion"),
            Name("CompleteResult", "gemel.schema.completion"),
            Name("CompleteParams", "gemel.schema.completion"),
        }
        name, server = old.name.value, code_of(call.func).rpartition(".")[0]
        wait = "await " if old.asynchronous is not None else ""
        handler = cst.parse_statement(
            f'@{server}.request("completion/complete")\n'
            f"async def serve_{name}(ctx: Context, params: CompleteParams) -> CompleteResult:\n"
            f"    found = {wait}{name}(params.ref, params.argument, params.context)\n"
            "    return CompleteResult(completion=found or Completion(values=[]))\n"
        )
        assert isinstance(handler, cst.FunctionDef)
        kept = [
            changed for before, changed in zip(old.decorators, new.decorators, strict=True) if before is not decorator
        ]
        blank = [cst.EmptyLine(indent=False)] * (1 if self._around else 2)
        return cst.FlattenSentinel([new.with_changes(decorators=kept), handler.with_changes(leading_lines=blank)])

    def _context_name(self, parameters: Sequence[cst.Param]) -> str:
        """The parameter of a function that is the context, or is to be added as that; "" if it can't be added."""
        for parameter in parameters:
            annotation = parameter.annotation.annotation if parameter.annotation is not None else None
            if self._bindings.kind_of_annotation(annotation) == "context":
                return parameter.name.value
        taken = any(parameter.name.value == "ctx" for parameter in parameters)
        return "" if taken or self._bindings.is_taken("Context", Name("Context")) else "ctx"

    def question(self, old: cst.BaseExpression | None, new: cst.BaseExpression | None) -> cst.BaseExpression | None:
        """Return `Elicit(…)`, `Sample(…)` and `ListRoots()` of a dependency as the awaited call of its context; None for others."""
        if (
            not isinstance(old, cst.Call)
            or not isinstance(new, cst.Call)
            or not self._around
            or self._state.registered[-1]
        ):
            return None
        method, _ = names.QUESTIONS.get(self._bindings.imported(old.func) or "", ("", None))
        if not method or not self._around[-1].context:
            return None
        self._around[-1].asks = True
        arguments = CallArguments(new, ("message", "schema") if method == "elicit" else ("messages",))
        if method == "elicit":
            arguments.rename("schema", "form")
        call = arguments.call().with_changes(func=cst.parse_expression(f"{self._around[-1].context}.{method}"))
        if method != "list_roots":
            return cst.Await(call)
        self._state.imports.add(Name("ListRootsResult", "gemel.schema.roots"))
        return cst.parse_expression(f"ListRootsResult(roots=await {code_of(call)})")

    def _asker(self, old: cst.FunctionDef, new: cst.FunctionDef, context: str) -> cst.FunctionDef:
        """A dependency that asks the client: it is async, has a context, and returns the answer."""
        parameters = list(new.params.params)
        if all(parameter.name.value != context for parameter in parameters):
            self._state.imports.add(Name("Context"))
            at = next((index for index, one in enumerate(parameters) if one.default is not None), len(parameters))
            annotation = cst.Annotation(cst.Name("Context"))
            parameters.insert(at, cst.Param(cst.Name(context), annotation))
            parameters = [one.with_changes(comma=cst.MaybeSentinel.DEFAULT) for one in parameters]
        returns = new.returns
        if old.returns is not None and returns is not None:
            kinds = list(dict.fromkeys(self._answers(old.returns.annotation, returns.annotation)))
            returns = returns.with_changes(annotation=cst.parse_expression(" | ".join(kinds)))
        return new.with_changes(
            params=new.params.with_changes(params=parameters), returns=returns, asynchronous=cst.Asynchronous()
        )

    def _answers(self, old: cst.BaseExpression, new: cst.BaseExpression) -> Iterator[str]:
        """The types in a union, those of questions as those of their answers."""
        if isinstance(old, cst.BinaryOperation) and isinstance(new, cst.BinaryOperation):
            yield from self._answers(old.left, new.left)
            yield from self._answers(old.right, new.right)
            return
        base = old.value if isinstance(old, cst.Subscript) else old
        method, answer = names.QUESTIONS.get(self._bindings.imported(base) or "", ("", None))
        if answer is not None:
            self._state.imports.add(answer)
            yield answer.name
        elif method and isinstance(new, cst.Subscript):
            yield code_of(new.slice[0].slice)
        else:
            yield code_of(new)

    def _injected(self, old: cst.Param, new: cst.Param) -> cst.Param | None:
        """A parameter with `CurrentContext()` or `Depends(…)` as its default, without it; None for others."""
        if not isinstance(old.default, cst.Call) or new.annotation is None:
            return None
        full_name = self._bindings.imported(old.default.func)
        without = new.with_changes(default=None, equal=cst.MaybeSentinel.DEFAULT)
        if full_name in PROGRESS and full_name in self._state.written:
            self._state.imports |= {Name("Annotated", "typing"), Name("Depends")}
            annotation = cst.parse_expression("Annotated[Progress, Depends(Progress)]")
            return without.with_changes(annotation=new.annotation.with_changes(annotation=annotation))
        if full_name in names.CURRENT_CONTEXT:
            return without
        if full_name in names.CURRENT_TOKEN and (function := injected_token(old.default, full_name or "")) is not None:
            self._state.drop(old.default)
            self._state.imports |= {Name("Annotated", "typing"), Name("Depends"), Name("current_context")}
            self._state.imports |= {Name("Principal")} if "Principal(" in function else set()
            injected = cst.parse_expression(f"Annotated[{code_of(new.annotation.annotation)}, Depends({function})]")
            return without.with_changes(annotation=new.annotation.with_changes(annotation=injected))
        if full_name in names.DEPENDS and new.default is not None:
            self._state.imports.add(Name("Annotated", "typing"))
            self._state.imports.add(Name("Depends"))
            kind = f"Annotated[{code_of(new.annotation.annotation)}, {code_of(new.default)}]"
            return without.with_changes(annotation=new.annotation.with_changes(annotation=cst.parse_expression(kind)))
        return None
