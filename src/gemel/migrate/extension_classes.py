"""Subclasses of the official SDK's `Extension` and `ClientExtension`, and the models of their requests, as those of Gemel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import libcst as cst
import libcst.matchers as m

from gemel.migrate.arguments import CallArguments, code_of, text_of
from gemel.migrate.names import Name
from gemel.migrate.rewrite_state import RewriteState
from gemel.protocol.eras.detect import ERAS

_SERVER_BASES = frozenset({"mcp.server.extension.Extension"})
_CLIENT_BASES = frozenset({"mcp.client.ClientExtension", "mcp.client.extension.ClientExtension"})
_MODELS = frozenset(
    f"{home}.{name}" for home in ("mcp.types", "mcp_types") for name in ("RequestParams", "Result", "Request")
)
#: The revisions of each era.
_ERAS = {name: frozenset(era.revisions) for name, era in ERAS.items()}
#: Methods of the classes of both sides that are rewritten, and what to do about those that can't be.
_REMEDIES = {
    "tools": "tools(): register them in `def attach(self, server)` with server.tool(function)",
    "resources": "resources(): register them in `def attach(self, server)` with server.resource(uri)(function)",
    "methods": "methods(): return gemel.Method objects from `def requests(self)`",
    "claims": "claims(): name them in result_types, and write `async def resolve(self, ctx, result)`",
    "notifications": "notifications(): return gemel.ClientMethod(name=…, serve=…), with `async def serve(ctx, params)`",
}


class _Rewritten(NamedTuple):
    """What a method of a class becomes: statements, and the `resultType`s that the class adds."""

    statements: list[cst.BaseStatement]
    result_types: list[str]


class ExtensionClasses:
    """The part of the second pass that is about extensions.

    Args:
        state: What the parts of the pass share.
    """

    def __init__(self, state: RewriteState) -> None:
        self._state = state
        self._bindings = state.bindings

    def rewrite(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:
        """Return a class that is an extension, or a model of its requests, as that of Gemel; any other class as it is.

        Args:
            original_node: The class before anything in it was rewritten.
            updated_node: The class.
        """
        for index, base in enumerate(original_node.bases):
            full_name = self._bindings.imported(_without_parameters(base.value))
            if full_name in _MODELS:
                return self._model(original_node, updated_node, index)
            if full_name in _SERVER_BASES | _CLIENT_BASES:
                return self._extension(original_node, updated_node, full_name in _CLIENT_BASES)
        return updated_node

    def models(self, node: cst.ClassDef) -> list[cst.BaseExpression]:
        """Return the bases of a class that are models of the protocol.

        Args:
            node: The class before anything in it was rewritten.
        """
        bases = [_without_parameters(base.value) for base in node.bases]
        return [base for base in bases if self._bindings.imported(base) in _MODELS]

    # ---------------------------------------------------------------- models

    def _model(self, old: cst.ClassDef, new: cst.ClassDef, index: int) -> cst.ClassDef:
        """A model of the protocol: a model of pydantic whose names are in camel case on the wire."""
        self._state.drop(old.bases[index])
        self._state.imports |= {Name("BaseModel", "pydantic"), Name("to_camel", "pydantic.alias_generators")}
        bases = list(new.bases)
        bases[index] = bases[index].with_changes(value=cst.Name("BaseModel"))
        call = cst.ensure_type(cst.parse_expression("f(alias_generator=to_camel, populate_by_name=True)"), cst.Call)
        body = []
        for statement in new.body.body:
            if m.matches(statement, _NAME_PARAM):
                self._state.note(
                    old,
                    "name_param was left out: write SentMethod(name=…, name_field=…) in sends() of a ClientExtension",
                )
            else:
                body.append(statement)
        return new.with_changes(
            bases=bases,
            keywords=[*new.keywords, *call.args],
            body=new.body.with_changes(body=body),
        )

    # ---------------------------------------------------------------- extensions

    def _extension(self, old: cst.ClassDef, new: cst.ClassDef, of_client: bool) -> cst.ClassDef:
        originals = {
            statement.name.value: statement for statement in old.body.body if isinstance(statement, cst.FunctionDef)
        }
        body: list[cst.BaseStatement | cst.BaseSmallStatement] = []
        result_types: list[str] = []
        at = 0
        for statement in new.body.body:
            if m.matches(statement, _IDENTIFIER):
                statement = cst.ensure_type(statement.visit(_Renamed("identifier", "id")), cst.SimpleStatementLine)
                at = len(body) + 1
            if not isinstance(statement, cst.FunctionDef):
                body.append(statement)
                continue
            function = cst.ensure_type(statement.visit(_OwnIdentifier()), cst.FunctionDef)
            changed = self._method(originals[statement.name.value], function, of_client)
            body += changed.statements
            result_types += changed.result_types
        if result_types:
            listed = ", ".join(f'"{kind}"' for kind in result_types)
            body.insert(at, cst.parse_statement(f"result_types = ({listed},)"))
        return new.with_changes(body=new.body.with_changes(body=body))

    def _method(self, old: cst.FunctionDef, new: cst.FunctionDef, of_client: bool) -> _Rewritten:
        """One method of an extension."""
        name = new.name.value
        if name == "settings" and not new.decorators:
            return _Rewritten([new.with_changes(decorators=[cst.Decorator(cst.Name("property"))])], [])
        if name == "intercept_tool_call" and not of_client:
            return self._interception(old, new)
        given = _returned(old)
        if name == "tools" and not of_client and given is not None:
            lines = [self._tool(call) for call in given]
            if None not in lines:
                return _Rewritten([self._attach(new, [line for line in lines if line is not None])], [])
        if name == "methods" and not of_client and given is not None:
            methods = [self._binding(call) for call in given]
            if None not in methods:
                self._state.drop(old)
                self._state.imports.add(Name("Method"))
                listed = ", ".join(code for code in methods if code is not None)
                return _Rewritten([_returning(new, "requests", "Method", f"[{listed}]")], [])
        if name == "claims" and of_client and given is not None and len(given) == 1:
            claim = self._claim(old, given[0])
            if claim is not None:
                return claim
        if name in _REMEDIES and (name != "notifications" or of_client):
            self._state.note(old, _REMEDIES[name])
        if of_client and any(self._bindings.imported(_annotation(one)) in _CLAIM_CONTEXTS for one in old.params.params):
            return _Rewritten([self._claimed(old, new)], [])
        return _Rewritten([new], [])

    def _attach(self, new: cst.FunctionDef, lines: Sequence[str]) -> cst.FunctionDef:
        """`def attach(self, server)` with these statements."""
        self._state.imports.add(Name("Server"))
        self._state.dropped |= {"ToolBinding", "Sequence"}
        function = cst.ensure_type(
            cst.parse_statement(
                "def attach(self, server: Server) -> None:\n" + "".join(f"    {line}\n" for line in lines)
            ),
            cst.FunctionDef,
        )
        return function.with_changes(leading_lines=new.leading_lines)

    def _tool(self, call: cst.Call) -> str | None:
        """`ToolBinding(fn=…, meta=…, kwargs={…})` as `server.tool(fn, meta=…, …)`."""
        if not self._is(call, "ToolBinding"):
            return None
        arguments = CallArguments(call, ("fn", "meta", "kwargs"))
        function, meta, kwargs = arguments.get("fn"), arguments.get("meta"), arguments.get("kwargs")
        if function is None or arguments.starred:
            return None
        options = [code_of(function)] + ([f"meta={code_of(meta)}"] if meta is not None else [])
        for element in kwargs.elements if isinstance(kwargs, cst.Dict) else ():
            key = text_of(element.key) if isinstance(element, cst.DictElement) else None
            if key is None:
                return None
            options.append(f"{key}={code_of(element.value)}")
        if kwargs is not None and not isinstance(kwargs, cst.Dict):
            options.append(f"**{code_of(kwargs)}")
        return f"server.tool({', '.join(options)})"

    def _binding(self, call: cst.Call) -> str | None:
        """`MethodBinding(…)` as `Method(…)`, which the SDK serves for all clients."""
        if not self._is(call, "MethodBinding"):
            return None
        arguments = CallArguments(call, ("method", "params_type", "handler", "protocol_versions"))
        parts = [arguments.get(name) for name in ("method", "params_type", "handler")]
        if arguments.starred or any(part is None for part in parts):
            return None
        name, params, handler = (code_of(part) for part in parts if part is not None)
        eras = self._eras(arguments.get("protocol_versions"))
        if eras is None:
            return None
        return f"Method(name={name}, params={params}, serve={handler}, open=True{eras})"

    def _eras(self, versions: cst.BaseExpression | None) -> str | None:
        """The option `eras` for a set of revisions; None for a set that is not one of eras."""
        if versions is None or code_of(versions) == "None":
            return ""
        inner = versions.args[0].value if isinstance(versions, cst.Call) and len(versions.args) == 1 else versions
        if not isinstance(inner, cst.Set | cst.List | cst.Tuple):
            return None
        texts = {text_of(element.value) for element in inner.elements}
        eras = [era for era, revisions in _ERAS.items() if revisions & texts]
        if texts - frozenset[str | None]().union(*(_ERAS[era] for era in eras)) or not eras:
            return None
        if any(_ERAS[era] - texts for era in eras):
            return None
        return f", eras=({''.join(f'{era!r}, ' for era in eras).strip()})".replace("'", '"')

    # ---------------------------------------------------------------- tool calls

    def _interception(self, old: cst.FunctionDef, new: cst.FunctionDef) -> _Rewritten:
        """`intercept_tool_call(self, params, ctx, call_next)` as `call_tool(self, ctx, params, call_next)`."""
        parameters = list(new.params.params)
        if len(parameters) != 4:
            self._state.note(old, "intercept_tool_call(): write `async def call_tool(self, ctx, params, call_next)`")
            return _Rewritten([new], [])
        self._state.drop(old.params)
        self._state.dropped |= {"HandlerResult"}
        self._state.imports |= {Name("Any", "typing"), Name("CallTool", "gemel.server.extensions")}
        itself, params, ctx, call_next = parameters
        call_next = call_next.with_changes(annotation=cst.Annotation(cst.Name("CallTool")))
        ordered = [ctx.with_changes(comma=params.comma), params.with_changes(comma=ctx.comma)]
        calls = _Calls(call_next.name.value, params.name.value)
        changed = cst.ensure_type(new.visit(calls), cst.FunctionDef)
        returns = cst.Annotation(cst.Name("Any")) if new.returns is not None else None
        changed = changed.with_changes(
            name=cst.Name("call_tool"),
            params=new.params.with_changes(params=[itself, *ordered, call_next]),
            returns=returns,
        )
        return _Rewritten([changed], calls.result_types)

    # ---------------------------------------------------------------- clients

    def _claim(self, old: cst.FunctionDef, call: cst.Call) -> _Rewritten | None:
        """`ResultClaim(result_type=…, model=…, resolve=…)` as `resolve`, which calls what the claim names."""
        arguments = CallArguments(call)
        kind, model, resolve = text_of(arguments.get("result_type")), arguments.get("model"), arguments.get("resolve")
        if not self._is(call, "ResultClaim") or kind is None or model is None or resolve is None:
            return None
        if set(arguments.names()) != {"result_type", "model", "resolve"} or arguments.starred:
            return None
        self._state.drop(old)
        self._state.imports |= {Name("Any", "typing"), Name("ClientContext"), Name("CallToolResult")}
        function = cst.parse_statement(
            "async def resolve(self, ctx: ClientContext, result: dict[str, Any]) -> CallToolResult:\n"
            f"    return await {code_of(resolve)}({code_of(model)}.model_validate(result), ctx)\n"
        )
        return _Rewritten([function.with_changes(leading_lines=old.leading_lines)], [kind])

    def _claimed(self, old: cst.FunctionDef, new: cst.FunctionDef) -> cst.FunctionDef:
        """What finishes a claimed result: its context has the client itself."""
        for parameter in old.params.params:
            if self._bindings.imported(_annotation(parameter)) not in _CLAIM_CONTEXTS:
                continue
            context = parameter.name.value
            members = m.findall(old.body, m.Attribute(m.Name(context), ~m.Name("session")))
            if members:
                self._state.note(
                    members[0], f"{context} has the name of the tool in params['name'], and the time left in total"
                )
            new = cst.ensure_type(new.visit(_OfClient(context)), cst.FunctionDef)
        return new

    def sends(self, node: cst.Call) -> cst.Attribute | None:
        """Return `client.session` of `client.session.send_request(request, Result)`, if Gemel's client can send it.

        Args:
            node: The call before anything in it was rewritten.
        """
        if not m.matches(node.func, _SENDS) or len(node.args) != 2:
            return None
        session = cst.ensure_type(cst.ensure_type(node.func, cst.Attribute).value, cst.Attribute)
        is_simple = isinstance(node.args[0].value, cst.Name | cst.Attribute)
        return session if is_simple and self._bindings.kind(session.value) == "session" else None

    def sent(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression | None:
        """Return `client.session.send_request(request, Result)` as a request of Gemel's client; None for other calls.

        Args:
            original_node: The call before anything in it was rewritten.
            updated_node: The call.
        """
        session = self.sends(original_node)
        if session is None:
            return None
        request, result = (code_of(argument.value) for argument in updated_node.args)
        return cst.parse_expression(
            f"{result}.model_validate(await {code_of(session.value)}.request({request}.method, "
            f'{request}.params.model_dump(mode="json", by_alias=True, exclude_none=True)))'
        )

    def _is(self, call: cst.Call, name: str) -> bool:
        return (self._bindings.imported(call.func) or "").rpartition(".")[2] == name


_CLAIM_CONTEXTS = frozenset({"mcp.client.ClaimContext", "mcp.client.extension.ClaimContext"})
_SENDS = m.Attribute(value=m.Attribute(attr=m.Name("session")), attr=m.Name("send_request"))
_NAME_PARAM = m.SimpleStatementLine(body=[m.Assign(targets=[m.AssignTarget(m.Name("name_param"))])])
_IDENTIFIER = m.SimpleStatementLine(
    body=[m.Assign(targets=[m.AssignTarget(m.Name("identifier"))]) | m.AnnAssign(target=m.Name("identifier"))]
)


def _without_parameters(base: cst.BaseExpression) -> cst.BaseExpression:
    return base.value if isinstance(base, cst.Subscript) else base


def _annotation(parameter: cst.Param) -> cst.BaseExpression:
    return parameter.annotation.annotation if parameter.annotation is not None else cst.Name("None")


def _returned(function: cst.FunctionDef) -> list[cst.Call] | None:
    """The calls in the list that a function returns, and does nothing else."""
    statements = [statement for statement in function.body.body if not m.matches(statement, _DOCSTRING)]
    found = m.extract(statements[0], _RETURN) if len(statements) == 1 else None
    if found is None:
        return None
    elements = [element.value for element in found["list"].elements]  # type: ignore[union-attr]  # a list or tuple
    return (
        [element for element in elements if isinstance(element, cst.Call)]
        if all(isinstance(element, cst.Call) for element in elements)
        else None
    )


_DOCSTRING = m.SimpleStatementLine(body=[m.Expr(m.SimpleString())])
_RETURN = m.SimpleStatementLine(body=[m.Return(m.SaveMatchedNode(m.List() | m.Tuple(), "list"))])


def _returning(function: cst.FunctionDef, name: str, kind: str, value: str) -> cst.FunctionDef:
    """The function by another name, which returns a list of another kind."""
    last = cst.parse_statement(f"return {value}")
    body = [statement for statement in function.body.body if m.matches(statement, _DOCSTRING)]
    returns = function.returns
    if returns is not None and isinstance(returns.annotation, cst.Subscript):
        returns = cst.Annotation(cst.parse_expression(f"{code_of(returns.annotation.value)}[{kind}]"))
    return function.with_changes(
        name=cst.Name(name), returns=returns, body=function.body.with_changes(body=[*body, last])
    )


class _Renamed(cst.CSTTransformer):
    """Names that are another one; with an owner, its attributes."""

    def __init__(self, old: str, new: str, owner: str | None = None) -> None:
        super().__init__()
        self._old, self._new, self._owner = old, new, owner

    def leave_AssignTarget(self, original_node: cst.AssignTarget, updated_node: cst.AssignTarget) -> cst.AssignTarget:
        if self._owner is None and m.matches(original_node.target, m.Name(self._old)):
            return updated_node.with_changes(target=cst.Name(self._new))
        return updated_node

    def leave_AnnAssign(self, original_node: cst.AnnAssign, updated_node: cst.AnnAssign) -> cst.AnnAssign:
        if self._owner is None and m.matches(original_node.target, m.Name(self._old)):
            return updated_node.with_changes(target=cst.Name(self._new))
        return updated_node

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.Attribute:
        if self._owner is not None and m.matches(original_node, m.Attribute(m.Name(self._owner), m.Name(self._old))):
            return updated_node.with_changes(attr=cst.Name(self._new))
        return updated_node


class _OfClient(cst.CSTTransformer):
    """`ctx.session` as `ctx.client`, whose `call_tool` is told to return what failed."""

    def __init__(self, context: str) -> None:
        super().__init__()
        self._session = m.Attribute(m.Name(context), m.Name("session"))

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.Attribute:
        return (
            updated_node.with_changes(attr=cst.Name("client"))
            if m.matches(original_node, self._session)
            else updated_node
        )

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        if not m.matches(original_node.func, m.Attribute(self._session, m.Name("call_tool"))):
            return updated_node
        arguments = CallArguments(updated_node)
        arguments.set("raise_on_error", "False")
        return arguments.call()


class _OwnIdentifier(_Renamed):
    """`self.identifier` as `self.id`."""

    def __init__(self) -> None:
        super().__init__("identifier", "id", "self")


class _Calls(cst.CSTTransformer):
    """`call_next(ctx)` as `call_next(ctx, params)`, and the kinds of the results that are written out as dicts."""

    def __init__(self, call_next: str, params: str) -> None:
        super().__init__()
        self._call_next, self._params = call_next, params
        self.result_types: list[str] = []

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        if m.matches(original_node.func, m.Name(self._call_next)) and len(original_node.args) == 1:
            return updated_node.with_changes(args=[*updated_node.args, cst.Arg(cst.Name(self._params))])
        inherited = m.Attribute(m.Call(m.Name("super")), m.Name("intercept_tool_call"))
        if m.matches(original_node.func, inherited) and len(original_node.args) == 3:
            params, ctx, call_next = (cst.Arg(argument.value) for argument in updated_node.args)
            func = cst.ensure_type(updated_node.func, cst.Attribute).with_changes(attr=cst.Name("call_tool"))
            return updated_node.with_changes(func=func, args=[ctx, params, call_next])
        return updated_node

    def visit_DictElement(self, node: cst.DictElement) -> None:
        kind = text_of(node.value)
        if text_of(node.key) == "resultType" and kind not in (None, "complete", "input_required"):
            self.result_types.append(str(kind))
