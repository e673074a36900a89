"""What stands around a server over HTTP, before its calls are rewritten: objects of settings, lifespans of apps, further routes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import libcst as cst
import libcst.matchers as m

from gemel.migrate.arguments import CallArguments, code_of, text_of
from gemel.migrate.bindings import Bindings, dotted
from gemel.migrate.names import Name

#: Classes whose objects only carry options, and the keywords that take them. Such an object is written where it is used.
_SETTINGS = {
    "AuthSettings": "auth",
    "IntrospectionTokenVerifier": "token_verifier",
    "JWTVerifier": "token_verifier",
    "RequestStateSecurity": "request_state_security",
    "StaticTokenVerifier": "token_verifier",
    "TransportSecuritySettings": "transport_security",
}
#: Methods that serve over HTTP, of both libraries.
_SERVES = frozenset(
    {
        "run",
        "run_async",
        "run_http_async",
        "run_streamable_http_async",
        "run_sse_async",
        "http_app",
        "streamable_http_app",
        "sse_app",
    }
)
#: What a program of interest contains.
_WORDS = re.compile(
    rf"\b(?:{'|'.join([*_SETTINGS, 'session_manager', 'custom_route', 'get_well_known_routes', 'lifespan'])})\b"
)
_ROUTE = Name("Route", "starlette.routing")
_URLSPLIT = Name("urlsplit", "urllib.parse")


def speaks_of_serving(source: str) -> bool:
    """Whether a module has something for `ServingPass`."""
    return _WORDS.search(source) is not None


class ServingPass(cst.CSTTransformer):
    """Writes settings where they are used, takes the lifespans of session managers away, and gives routes to the app.

    Args:
        bindings: What the expressions of the module refer to.
        module: The module.
    """

    def __init__(self, bindings: Bindings, module: cst.Module) -> None:
        super().__init__()
        self._bindings = bindings
        #: Local names of imports whose uses are gone.
        self.dropped: set[str] = set()
        self.imports: set[Name] = set()
        self._settings = dict(self._find_settings(module))
        self._idle = set(self._find_idle_lifespans(module))
        self._routes: dict[str, list[str]] = {}
        self._decorators: set[cst.Decorator] = set()
        self._find_routes(module)

    # ---------------------------------------------------------------- settings

    def _find_settings(self, module: cst.Module) -> Iterator[tuple[str, cst.Call]]:
        """The variables that hold an object of settings and are only passed on."""
        assigned: dict[str, cst.Call] = {}
        passed: Counter[str] = Counter()
        for node in m.findall(module, m.Assign(targets=[m.AssignTarget(m.Name())], value=m.Call())):
            assert isinstance(node, cst.Assign)
            call = cst.ensure_type(node.value, cst.Call)
            if self._keyword(call) is not None:
                assigned[code_of(node.targets[0].target)] = call
        uses = _NameCounts()
        module.visit(uses)
        for arg in m.findall(module, m.Arg(keyword=m.Name(), value=m.Name())):
            assert isinstance(arg, cst.Arg)
            name = code_of(arg.value)
            if name in assigned and arg.keyword is not None and arg.keyword.value == self._keyword(assigned[name]):
                passed[name] += 1
        for name, call in assigned.items():
            if passed[name] and uses.names[name] == passed[name] + 1:
                yield name, call

    def _keyword(self, call: cst.Call) -> str | None:
        return _SETTINGS.get((self._bindings.imported(call.func) or "").rpartition(".")[2])

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        """Write the object in place of the variable."""
        name = original_node.value
        if not isinstance(name, cst.Name) or original_node.keyword is None:
            return updated_node
        call = self._settings.get(name.value)
        if call is None or original_node.keyword.value != self._keyword(call):
            return updated_node
        return updated_node.with_changes(value=call.deep_clone())

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.RemovalSentinel:
        """Remove the variables that were written where they are used, and what is entered of session managers."""
        only = original_node.body[0] if len(original_node.body) == 1 else None
        if isinstance(only, cst.Assign) and self._settings.get(code_of(only.targets[0].target)) is only.value:
            return cst.RemoveFromParent()
        return cst.RemoveFromParent() if self._enters_manager(original_node) else updated_node

    # ---------------------------------------------------------------- session managers

    def _runs_manager(self, node: cst.CSTNode | None) -> bool:
        """Whether an expression is `server.session_manager.run()`, or `app.lifespan(…)` of a server's app."""
        if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
            return False
        owner = node.func.value
        if node.func.attr.value == "lifespan":
            return self._bindings.kind(owner) == "app"
        if not m.matches(node.func, m.Attribute(m.Attribute(attr=m.Name("session_manager")), m.Name("run"))):
            return False
        return self._bindings.kind(cst.ensure_type(owner, cst.Attribute).value) == "server"

    def _enters_manager(self, node: cst.SimpleStatementLine) -> bool:
        """Whether a statement is `await stack.enter_async_context(server.session_manager.run())`."""
        entered = m.Await(m.Call(m.Attribute(attr=m.Name("enter_async_context")), args=[m.Arg()]))
        if not m.matches(node, m.SimpleStatementLine(body=[m.Expr(entered)])):
            return False
        call = cst.ensure_type(
            cst.ensure_type(cst.ensure_type(node.body[0], cst.Expr).value, cst.Await).expression, cst.Call
        )
        return self._runs_manager(call.args[0].value)

    def _is_idle(self, body: Sequence[cst.BaseStatement | cst.BaseSmallStatement]) -> bool:
        """Whether statements only yield, apart from session managers."""
        left = [
            node
            for node in body
            if not (isinstance(node, cst.SimpleStatementLine) and self._enters_manager(node))
            and not m.matches(node, m.SimpleStatementLine(body=[m.Expr(m.SimpleString())]))
        ]
        if len(left) != 1:
            return False
        if m.matches(left[0], m.SimpleStatementLine(body=[m.Expr(m.Yield(value=None))])):
            return True
        if not isinstance(left[0], cst.With):
            return False
        managers = all(
            self._runs_manager(item.item) or code_of(item.item).rpartition(".")[2] == "AsyncExitStack()"
            for item in left[0].items
        )
        return managers and self._is_idle(left[0].body.body)

    def _find_idle_lifespans(self, module: cst.Module) -> Iterator[str]:
        """The lifespans of outer apps that only run session managers, and are used for nothing else."""
        uses = _NameCounts()
        module.visit(uses)
        for node in m.findall(module, m.FunctionDef()):
            assert isinstance(node, cst.FunctionDef)
            decorated = any((dotted(part.decorator) or "").endswith("asynccontextmanager") for part in node.decorators)
            name = node.name.value
            given = len(m.findall(module, m.Arg(keyword=m.Name("lifespan"), value=m.Name(name))))
            manages = any(self._runs_manager(call) for call in m.findall(node, m.Call()))
            if decorated and manages and given and uses.names[name] == given + 1 and self._is_idle(node.body.body):
                yield name

    def leave_With(
        self, original_node: cst.With, updated_node: cst.With
    ) -> cst.With | cst.FlattenSentinel[cst.BaseStatement]:
        """`async with server.session_manager.run():` without it."""
        kept = [
            new
            for old, new in zip(original_node.items, updated_node.items, strict=True)
            if not self._runs_manager(old.item)
        ]
        if len(kept) == len(updated_node.items):
            return updated_node
        if kept:
            kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
            return updated_node.with_changes(items=kept)
        body = list(updated_node.body.body)
        return cst.FlattenSentinel(body)  # type: ignore[arg-type]  # a block of statements

    # ---------------------------------------------------------------- routes

    def _find_routes(self, module: cst.Module) -> None:
        """The functions with `server.custom_route(…)` whose server is served in the same module."""
        served: dict[str, list[int]] = {}
        functions = [node for node in module.body if isinstance(node, cst.FunctionDef)]
        for call in m.findall(module, m.Call(m.Attribute())):
            func = cst.ensure_type(cst.ensure_type(call, cst.Call).func, cst.Attribute)
            if func.attr.value in _SERVES and self._bindings.kind(func.value) == "server":
                served.setdefault(dotted(func.value) or "", []).append(self._bindings.line(call))
        for function in functions:
            for decorator in function.decorators:
                found = self._route(function, decorator)
                if found is None:
                    continue
                server, route = found
                later = [line > self._bindings.line(function) for line in served.get(server, ())]
                if later and all(later) and not self._bindings.is_taken("Route", _ROUTE):
                    self._routes.setdefault(server, []).append(route)
                    self._decorators.add(decorator)

    def _route(self, function: cst.FunctionDef, decorator: cst.Decorator) -> tuple[str, str] | None:
        """The server of a decorator, and the item of `routes=` for it."""
        call = decorator.decorator
        if not isinstance(call, cst.Call) or not m.matches(call.func, m.Attribute(attr=m.Name("custom_route"))):
            return None
        server = cst.ensure_type(call.func, cst.Attribute).value
        arguments = CallArguments(call, ("path", "methods", "name", "include_in_schema"))
        path, methods = arguments.pop("path"), arguments.pop("methods")
        if self._bindings.kind(server) != "server" or path is None or arguments.starred:
            return None
        if "{" in (text_of(path) or "/") or len(function.decorators) != 1:
            return None
        code = code_of(path)
        limited = "" if methods is None else f", methods={code_of(methods)}"
        return dotted(server) or "", f"{code}: Route({code}, {function.name.value}{limited})"

    def leave_Decorator(
        self, original_node: cst.Decorator, updated_node: cst.Decorator
    ) -> cst.Decorator | cst.RemovalSentinel:
        return cst.RemoveFromParent() if original_node in self._decorators else updated_node

    def leave_FunctionDef(
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef | cst.RemovalSentinel:
        if original_node.name.value not in self._idle:
            return updated_node
        self.dropped.update(code_of(name) for name in m.findall(original_node, m.Name()))
        return cst.RemoveFromParent()

    # ---------------------------------------------------------------- calls

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        updated_node = self._without_lifespan(original_node, updated_node)
        func = original_node.func
        if not isinstance(func, cst.Attribute):
            return updated_node
        kind = self._bindings.kind(func.value)
        if kind == "auth proxy" and func.attr.value == "get_well_known_routes":
            self.imports |= {_ROUTE, _URLSPLIT}
            auth = code_of(func.value)
            routes = f"{auth}.routes(urlsplit({auth}.url).path).items()"
            return cst.parse_expression(f"[Route(path, app) for path, app in {routes}]")
        routes_of = self._routes.get(dotted(func.value) or "") if kind == "server" else None
        if routes_of and func.attr.value in _SERVES:
            self.imports.add(_ROUTE)
            arguments = CallArguments(updated_node, ("transport",))
            arguments.set("routes", "{" + ", ".join(routes_of) + "}")
            return arguments.call()
        return updated_node

    def _without_lifespan(self, old: cst.Call, new: cst.Call) -> cst.Call:
        """A call without the lifespan of an app that needs none: that of a server's app, or one that only runs a manager."""
        value = CallArguments(old).get("lifespan")
        of_app = (
            isinstance(value, cst.Attribute)
            and value.attr.value == "lifespan"
            and self._bindings.kind(value.value) == "app"
        )
        only_manages = isinstance(value, cst.Lambda) and self._runs_manager(value.body)
        if not (of_app or only_manages or (isinstance(value, cst.Name) and value.value in self._idle)):
            return new
        arguments = CallArguments(new)
        arguments.pop("lifespan")
        return arguments.call()


class _NameCounts(cst.CSTVisitor):
    """How often a module has each name, apart from keywords and members."""

    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()

    def visit_Name(self, node: cst.Name) -> None:
        self.names[node.value] += 1

    def visit_Attribute_attr(self, node: cst.Attribute) -> None:
        self.names[node.attr.value] -= 1

    def visit_Arg_keyword(self, node: cst.Arg) -> None:
        if node.keyword is not None:
            self.names[node.keyword.value] -= 1
