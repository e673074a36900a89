"""The names, calls and parameters of one module, rewritten; what can't be is noted."""

from __future__ import annotations

import libcst as cst
import libcst.matchers as m

from gemel.migrate import advice, names
from gemel.migrate.apps import AppsRewrite
from gemel.migrate.arguments import CallArguments, code_of, in_lines, is_name, text_of
from gemel.migrate.bindings import Bindings
from gemel.migrate.client_calls import ClientCalls
from gemel.migrate.context_calls import ContextCalls
from gemel.migrate.counterparts import Counterparts
from gemel.migrate.extension_classes import ExtensionClasses
from gemel.migrate.handler_functions import HandlerFunctions
from gemel.migrate.imported_names import ImportedNames
from gemel.migrate.names import Name
from gemel.migrate.path_security import is_default_security
from gemel.migrate.protocol_objects import ProtocolObjects
from gemel.migrate.registered_items import RegisteredItems
from gemel.migrate.rewrite_state import RewriteState
from gemel.migrate.tokens import (
    AccessTokens,
    Rewritten,
    own_verifier_auth,
    state_keys,
    verifier_auth,
)
from gemel.server.options import ServerOptions
from gemel.server.server import Server

_TRANSPORTS = {"streamable-http": "http", "http": "http", "stdio": "stdio", "sse": "http"}
#: Methods of low-level servers that add a handler, and the decorator that does it in Gemel.
_ADDED_HANDLERS = {"add_request_handler": "request", "add_notification_handler": "notification"}
#: The low-level server inside of another one.
_INNER = ("_lowlevel_server", "_mcp_server")
_HANDLER = ("method", "params_type", "handler")
_ADDS_INSIDE = m.Attribute(
    value=m.Attribute(attr=m.OneOf(*map(m.Name, _INNER))), attr=m.OneOf(*map(m.Name, _ADDED_HANDLERS))
)
_APPS = ("http_app", "streamable_http_app", "sse_app")
#: Options of servers of the official SDK, and of FastMCP 2, that belong to HTTP.
_SECURITY = ("transport_security", "host_origin_protection")
_HTTP_OPTIONS = (*advice.HTTP_OPTIONS, "message_path", "mount_path", *_SECURITY)
_RENAMED_SERVER_OPTIONS = {"list_page_size": "page_size", "cache_hints": "cache"}
#: Members of servers, contexts and clients that are rewritten, or noted where they are called.
_SERVER_CALLS = frozenset(
    {
        "tool",
        "resource",
        "prompt",
        *names.RUNS,
        *_APPS,
        *_ADDED_HANDLERS,
        "add_tool",
        "mount",
        "import_server",
        "get_context",
        "as_proxy",
        "from_openapi",
        "from_fastapi",
    }
)
#: Options of an HTTP app and of running over HTTP that have another name.
_RENAMED_HTTP_OPTIONS = {"streamable_http_path": "path", "retry_interval": "retry"}
_SUPER_INIT = m.Attribute(value=m.Call(func=m.Name("super")), attr=m.Name("__init__"))
_APPENDS_MIDDLEWARE = m.Attribute(value=m.Attribute(attr=m.Name("middleware")), attr=m.Name("append"))


class RewritePass(cst.CSTTransformer):
    """The second pass: everything that keeps its shape.

    Args:
        bindings: What the expressions of the module refer to.
    """

    def __init__(self, bindings: Bindings) -> None:
        super().__init__()
        self._bindings = bindings
        self.state = RewriteState(bindings)
        self._apps = AppsRewrite(self.state)
        self._extensions = ExtensionClasses(self.state)
        self._names = ImportedNames(self.state)
        self._counterparts = Counterparts(self.state)
        self._contexts = ContextCalls(self.state)
        self._tokens = AccessTokens(self.state)
        self._clients = ClientCalls(self.state)
        self._functions = HandlerFunctions(self.state)
        self._items = RegisteredItems(self.state)
        self._protocol = ProtocolObjects(self.state)
        #: What was said of HTTP when a server was made; it goes to where the server is run.
        self._http_options: list[tuple[str, cst.BaseExpression]] = []
        self._http_node: cst.CSTNode | None = None
        self._runs = False
        #: The full name of the server that each class around a node derives from.
        self._bases: list[str | None] = []
        #: Functions that take a context and something else, as middleware does.
        self._middleware: set[str] = set()
        #: `server.middleware` where a function is appended to it.
        self._appended: set[cst.CSTNode] = set()

    # ---------------------------------------------------------------- imports and names

    def visit_Module(self, node: cst.Module) -> None:
        self._apps.scan(node)
        self.state.scan(node)
        self._names.scan(node)
        self._clients.scan(node)
        self._items.scan()
        for function in self.state.functions:
            parameters = function.params.params
            first = parameters[0].annotation if len(parameters) == 2 else None
            if first is not None and self._bindings.kind_of_annotation(first.annotation) == "context":
                self._middleware.add(function.name.value)

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        if self._http_node is not None and not self._runs:
            options = ", ".join(f"{option}={code_of(value)}" for option, value in self._http_options)
            self.state.note(
                self._http_node, f"Server({options}) was left out: give it to run('http', …), where that is"
            )
        return updated_node

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self._bases.append(self._bindings.server_base(node))
        for member in node.body.body if self._bases[-1] is not None else ():
            if isinstance(member, cst.FunctionDef):
                name = member.name.value
                text = advice.OVERRIDDEN.get(name.removeprefix("_").removesuffix("_mcp"))
                if text is not None:
                    self.state.note(member, f"{node.name.value}.{name}: Gemel's servers call no such method: {text}")
        self.state.replaced_members.update(self._extensions.models(node))

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:
        self._bases.pop()
        updated_node = self._extensions.rewrite(original_node, updated_node)
        verifier = self._tokens.verifier(original_node, updated_node)
        return verifier if verifier is not None else self._items.returned_class(original_node, updated_node)

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        self._names.enter_import(node)
        return False

    def visit_Import(self, node: cst.Import) -> bool:
        return False

    def leave_ImportFrom(
        self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom
    ) -> cst.BaseSmallStatement | cst.FlattenSentinel[cst.BaseSmallStatement] | cst.RemovalSentinel:
        return self._names.import_from(original_node, updated_node)

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        return self._names.name(original_node, updated_node)

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement] | cst.RemovalSentinel:
        """Imports from several modules stand on lines of their own; a server that has apps gets them behind it."""
        added = self._apps.added(original_node)
        if added:
            return cst.FlattenSentinel([updated_node, *added])
        if len(original_node.body) != 1 or len(updated_node.body) < 2:
            return updated_node
        lines = [
            updated_node.with_changes(body=[statement.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)])
            for statement in updated_node.body
        ]
        lines[1:] = [statement.with_changes(leading_lines=()) for statement in lines[1:]]
        return cst.FlattenSentinel(lines)

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        if original_node in self.state.replaced_members:
            return updated_node
        full_name = self._bindings.imported(original_node)
        if full_name is not None:
            return self._names.imported_attribute(original_node, updated_node, full_name)
        owner, name = self._bindings.kind(original_node.value), original_node.attr.value
        for part in (self._contexts, self._tokens, self._clients, self._protocol, self._items):
            changed = part.attribute(original_node, updated_node, owner)
            if changed is not None:
                return changed
        if owner == "app" and name == "lifespan":
            self.state.note(original_node, advice.APP_LIFESPAN)
        if owner == "server" and original_node not in self._appended:
            self._server_member(original_node)
        elif owner is None and name in advice.ANYWHERE and not self._is_own_member(name):
            self.state.note(original_node, f".{name}: if this is a server, {advice.ANYWHERE[name]}")
        return updated_node

    def _server_member(self, node: cst.Attribute) -> None:
        """A note for a member of a server that Gemel's servers lack, and that isn't one of a class of the program."""
        name = node.attr.value
        if name in advice.SERVER_MEMBERS:
            self.state.note(node, f"server.{name}: {advice.SERVER_MEMBERS[name]}")
        elif name not in _SERVER_CALLS and not hasattr(Server, name) and not self._is_own_member(name):
            self.state.note(
                node, f"server.{name}: Gemel's Server has no such member; see docs/servers.md for what it has"
            )

    def _is_own_member(self, name: str) -> bool:
        return name in self._bindings.own_members

    def visit_Attribute(self, node: cst.Attribute) -> None:
        self._contexts.enter_attribute(node)

    # ---------------------------------------------------------------- calls

    def visit_Call(self, node: cst.Call) -> None:
        self._clients.enter_call(node)
        if m.matches(node.func, _APPENDS_MIDDLEWARE):
            middleware = cst.ensure_type(cst.ensure_type(node.func, cst.Attribute).value, cst.Attribute)
            if self._bindings.kind(middleware.value) == "server":
                self._appended.add(middleware)
        if self._adds_inside(node):
            self.state.replaced_members.add(cst.ensure_type(node.func, cst.Attribute).value)
        self._contexts.enter_call(node)
        if self._apps.is_added(node):
            self.state.replaced_members.add(node.func)
        sending = self._extensions.sends(node)
        if sending is not None:
            self.state.replaced_members.add(sending)
        self._items.enter_call(node)
        self._counterparts.find(node)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        counterpart = self._counterparts.call(original_node)
        if counterpart is not None:
            return counterpart
        of_apps = self._apps.call(original_node, updated_node, self._items.options)
        if of_apps is not None:
            return of_apps
        full_name = self._bindings.imported(original_node.func)
        if full_name is not None:
            return self._global_call(original_node, updated_node, full_name)
        if self._bases and self._bases[-1] and m.matches(original_node.func, _SUPER_INIT):
            return self._server(original_node, updated_node, self._bases[-1])
        for part in (self._contexts, self._items):
            changed = part.call(original_node, updated_node)
            if changed is not None:
                return changed
        kind = self._bindings.kind(original_node.func) or ""
        if kind.startswith("class ") and not kind.startswith("class with"):
            return self._server(original_node, updated_node, kind.rpartition(" ")[2])
        if not isinstance(original_node.func, cst.Attribute):
            return updated_node
        owner, method = self._bindings.kind(original_node.func.value), original_node.func.attr.value
        if original_node.func.value in self._appended:  # `server.middleware.append(function)`
            assert isinstance(updated_node.func, cst.Attribute)
            assert isinstance(updated_node.func.value, cst.Attribute)
            return updated_node.with_changes(func=updated_node.func.value.with_changes(attr=cst.Name("add_middleware")))
        if owner == "server":
            return self._server_call(original_node, updated_node, method)
        if self._adds_inside(original_node):
            return self._handler(original_node, updated_node, method)
        for other in (self._clients, self._protocol):
            changed = other.call(original_node, updated_node)
            if changed is not None:
                return changed
        return updated_node

    def _global_call(self, original_node: cst.Call, updated_node: cst.Call, full_name: str) -> cst.BaseExpression:
        short = full_name.rpartition(".")[2]
        if full_name in names.SERVERS | names.LOW_LEVEL:
            return self._server(original_node, updated_node, full_name)
        if full_name in names.PROXIES or short == "as_proxy":
            func = cst.parse_expression("Server.from_client")
            self.state.imports.add(Name("Server"))
            return updated_node.with_changes(func=func)
        if short == "from_fastapi" and full_name.rpartition(".")[0] in names.SERVERS:
            return self._from_fastapi(updated_node)
        if short == "from_openapi" and full_name.rpartition(".")[0] in names.SERVERS:
            arguments = CallArguments(updated_node, ("openapi_spec", "client"))
            for name in set(arguments.names()) - {"openapi_spec", "client", "name"}:
                self.state.note(
                    original_node, f"from_openapi({name}=…): choose with operations=, see docs/servers/composition.md"
                )
            client, document = arguments.pop("client"), arguments.pop("openapi_spec")
            if client is not None:
                arguments.put_first(client)
            if document is not None:
                arguments.put_first(document)
            return arguments.call()
        for part in (self._contexts, self._tokens, self._clients, self._protocol):
            changed = part.imported_call(original_node, updated_node, full_name)
            if changed is not None:
                return changed
        return updated_node

    def _from_fastapi(self, call: cst.Call) -> cst.BaseExpression:
        arguments = CallArguments(call, ("app",))
        app = arguments.pop("app")
        if app is None:
            return call
        arguments.put_first(app)
        arguments.put_first(f"{code_of(app)}.openapi()")
        assert isinstance(call.func, cst.Attribute)
        return arguments.call().with_changes(func=call.func.with_changes(attr=cst.Name("from_openapi")))

    def leave_ExceptHandler(
        self, original_node: cst.ExceptHandler, updated_node: cst.ExceptHandler
    ) -> cst.ExceptHandler:
        return self._protocol.except_handler(original_node, updated_node)

    # ---------------------------------------------------------------- servers

    def _server(self, original_node: cst.Call, updated_node: cst.Call, full_name: str) -> cst.Call:
        low_level = full_name in names.LOW_LEVEL
        short = full_name.startswith(("fastmcp", "mcp.server.fastmcp"))
        positional = ("name", "instructions") if short else ("name", "title", "description", "instructions")
        arguments = CallArguments(updated_node, ("name",) if low_level else positional)
        if arguments.starred:
            self.state.note(original_node, "Server(**…): the options are keyword arguments; check their names")
        arguments.name_all_but(1)
        is_super = m.matches(original_node.func, _SUPER_INIT)
        if "name" not in arguments and not arguments.starred and not is_super:
            arguments.put_first('"FastMCP"')
        if not low_level:
            self._keep_behaviour(arguments, full_name)
        self._authorize(original_node, arguments)
        moved: list[tuple[str, cst.BaseExpression]] = []
        for option in arguments.names():
            if option in advice.DROPPED_SERVER_OPTIONS:
                arguments.pop(option)
            elif option in _HTTP_OPTIONS:
                value = arguments.pop(option)
                assert value is not None
                moved.append((option, value))
            elif option == "subscriptions" and is_name(arguments.get(option), "False"):
                # Clients may subscribe; without changes they are told nothing.
                arguments.pop(option)
            elif option == "resource_security" and is_default_security(
                self.state, CallArguments(original_node).get(option)
            ):
                arguments.pop(option)
            elif self._is_counterpart(option, arguments.get(option), CallArguments(original_node).get(option)):
                if option == "providers":
                    arguments.rename(option, "extensions")
            elif option in _RENAMED_SERVER_OPTIONS:
                arguments.rename(option, _RENAMED_SERVER_OPTIONS[option])
            elif option in advice.HTTP_LEFT and option not in ServerOptions.__annotations__:
                arguments.pop(option)
                self.state.note(original_node, f"Server({option}=…) was left out: {advice.HTTP_LEFT[option]}")
            elif option in advice.SERVER_OPTIONS:
                self.state.note(original_node, f"Server({option}=…): {advice.SERVER_OPTIONS[option]}")
            elif option not in ("name", "lifespan", *ServerOptions.__annotations__):
                self.state.note(
                    original_node, f"Server({option}=…): Gemel's Server has no such option; see docs/servers.md"
                )
        self._http_options.extend(moved)
        self._http_node = original_node if moved else self._http_node
        return arguments.call()

    def _authorize(self, node: cst.Call, arguments: CallArguments) -> None:
        """Token verifiers of the program, and the keys of request state."""
        original = CallArguments(node)
        verifier, auth = original.get("token_verifier"), original.get("auth")
        made: Rewritten | str | None
        if verifier is not None:
            made = verifier_auth(self._bindings, arguments.get("token_verifier") or verifier, verifier, auth)
        else:
            made = own_verifier_auth(self._bindings, arguments.get("auth") or auth, auth) if auth is not None else None
        if isinstance(made, str):
            self.state.note(node, f"Server(token_verifier=…): {made}")
        elif made is not None:
            arguments.pop("token_verifier")
            original_auth = auth if isinstance(auth, cst.Call) else node
            whole = made.expression
            arguments.replace("auth", in_lines(whole, original_auth) if isinstance(whole, cst.Call) else whole)
            self.state.imports.update(made.imports)
            for value in (verifier, auth):
                if value is not None:
                    self.state.drop(value)
        keys = state_keys(self._bindings, original.get("request_state_security"))
        if keys is not None:
            self.state.drop(original.get("request_state_security") or node)
            arguments.pop("request_state_security")
            arguments.set("state_keys", keys)

    def _are_functions(self, middleware: cst.BaseExpression | None) -> bool:
        """Whether these are functions of the module that take a context and the next function."""
        return isinstance(middleware, cst.List) and all(
            isinstance(element.value, cst.Name) and element.value.value in self._middleware
            for element in middleware.elements
        )

    def _is_counterpart(
        self, option: str, value: cst.BaseExpression | None, original: cst.BaseExpression | None
    ) -> bool:
        """Whether the value of an option was rewritten to one of Gemel, or is one as it stands."""
        if option == "middleware":
            return self._are_functions(value)
        if option in ("extensions", "providers") and original is not None:
            return self._apps.are_extensions(original, option)
        if option == "auth":
            made_here = isinstance(value, cst.Call) and m.matches(value.func, m.Name("TokenAuth"))
            return made_here or self._bindings.kind(original) in ("auth", "auth proxy")
        return False

    def _keep_behaviour(self, arguments: CallArguments, full_name: str) -> None:
        """The options with which a server does what those of the other library do by themselves."""
        for option, (argument, default, text) in advice.KEPT_OPTIONS.items():
            if option == "error_details" and "MCPServer" in full_name:
                continue  # version 2 of the official SDK hides the texts, too
            opposite = arguments.pop(argument)
            value = default if opposite is None or is_name(opposite, "None") else _negated(opposite)
            if value != "False":
                arguments.set(option, value)
                self.state.kept.add(text)
        choices = [arguments.pop(name) for name in advice.DUPLICATES]
        given = next((choice for choice in choices if choice is not None), None)
        default = "replace" if full_name.startswith("fastmcp") else "keep"
        word = text_of(given)
        if word is not None:
            default = {"error": "error", "ignore": "keep"}.get(word, "replace")
        if self._bindings.duplicates and default != "error":
            arguments.set("on_duplicate", f'"{default}"')
            self.state.kept.add(f"on_duplicate: of two tools of one name, {advice.DUPLICATE_WORDS[default]}")

    def _server_call(self, original_node: cst.Call, updated_node: cst.Call, method: str) -> cst.BaseExpression:
        assert isinstance(updated_node.func, cst.Attribute)
        if method in names.RUNS:
            return self._run(original_node, updated_node, method)
        if method in _APPS:
            return self._app(original_node, updated_node, method)
        if method in ("mount", "import_server"):
            return self._mount(original_node, updated_node, method)
        if method == "get_context" and not updated_node.args:
            self.state.imports.add(Name("current_context"))
            return updated_node.with_changes(func=cst.Name("current_context"))
        if method in _ADDED_HANDLERS and len(updated_node.args) == len(_HANDLER):
            return self._handler(original_node, updated_node, method)
        if method == "add_middleware":
            self.state.note(original_node, "add_middleware: it takes a function `async def middleware(ctx, call_next)`")
        if method in ("enable", "disable"):
            arguments = CallArguments(updated_node)
            others = [name for name in arguments.names() if name not in ("names", "tags")]
            if others:
                self.state.note(original_node, f"server.{method}({others[0]}=…): {advice.VISIBILITY}")
                return updated_node
            named = arguments.pop("names")
            if isinstance(named, cst.Set | cst.List | cst.Tuple) and named.elements:
                for element in reversed(named.elements):
                    arguments.put_first(element.value)
            elif named is not None:
                arguments.put_first(named, star="*")
            return arguments.call()
        return updated_node

    def _adds_inside(self, call: cst.Call) -> bool:
        """Whether this is `server._lowlevel_server.add_request_handler(…)`."""
        if not m.matches(call.func, _ADDS_INSIDE) or len(call.args) != len(_HANDLER):
            return False
        inner = cst.ensure_type(cst.ensure_type(call.func, cst.Attribute).value, cst.Attribute)
        return self._bindings.kind(inner.value) == "server"

    def _handler(self, original_node: cst.Call, updated_node: cst.Call, method: str) -> cst.Call:
        """`add_request_handler("method", Params, handler)` as `request("method", params=Params)(handler)`."""
        arguments = CallArguments(updated_node, _HANDLER)
        handler = arguments.pop("handler")
        if handler is None:
            return updated_node
        arguments.make_positional("method")
        arguments.rename("params_type", "params")
        func = cst.ensure_type(updated_node.func, cst.Attribute).with_changes(attr=cst.Name(_ADDED_HANDLERS[method]))
        if isinstance(func.value, cst.Attribute) and func.value.attr.value in _INNER:
            func = func.with_changes(value=func.value.value)
        return cst.Call(arguments.call().with_changes(func=func), args=[cst.Arg(handler)])

    def _run(self, original_node: cst.Call, updated_node: cst.Call, method: str) -> cst.Call:
        assert isinstance(updated_node.func, cst.Attribute)
        arguments = CallArguments(updated_node, ("transport",))
        expression = arguments.get("transport")
        self._runs = True
        transport = names.RUNS[method] or text_of(expression) or ("stdio" if expression is None else None)
        if len(updated_node.args) > 1 and updated_node.args[1].keyword is None:
            self.state.note(
                original_node, "server.run(read, write, …): await server.run_async() serves stdio by itself"
            )
            return updated_node
        self._http(original_node, arguments, method)
        if transport is None:
            self.state.note(original_node, 'run(transport=…): the transports are called "stdio" and "http" ("socket")')
        elif transport in _TRANSPORTS:
            arguments.pop("transport")
            if _TRANSPORTS[transport] == "stdio":
                arguments.pop("routes")
            else:
                for option, value in self._http_options:
                    if option in advice.HTTP_OPTIONS and advice.HTTP_OPTIONS[option] not in arguments:
                        arguments.set(option, value)
                _sessions(arguments)
                arguments.rename("streamable_http_path", "path")
                if transport == "sse":
                    arguments.rename("path", "sse_path")
                    if "sse_path" not in arguments:
                        arguments.set("sse_path", '"/sse"')
                elif "sse_path" in arguments:
                    arguments.pop("sse_path")
                arguments.put_first('"http"')
        new = "run" if method == "run" else "run_async"
        return arguments.call().with_changes(func=updated_node.func.with_changes(attr=cst.Name(new)))

    def _app(self, original_node: cst.Call, updated_node: cst.Call, method: str) -> cst.Call:
        assert isinstance(updated_node.func, cst.Attribute)
        arguments = CallArguments(updated_node, ("path",))
        transport = text_of(arguments.pop("transport")) or ("sse" if method == "sse_app" else "http")
        self._runs = True
        self._http(original_node, arguments, "http_app")
        arguments.rename("host", "bind")
        if transport == "sse":
            if "sse_path" not in arguments:
                arguments.rename("path", "sse_path")
            arguments.pop("message_path")
            if "sse_path" not in arguments:
                arguments.set("sse_path", '"/sse"')
        for option, value in self._http_options:
            if option == "stateless_http" and is_name(value, "True"):
                arguments.set("sessions", "False")
        return arguments.call().with_changes(func=updated_node.func.with_changes(attr=cst.Name("http_app")))

    def _http(self, node: cst.Call, arguments: CallArguments, method: str) -> None:
        """The options of an app and of running over HTTP; what has no counterpart is left out, and noted with the remedy."""
        for option in ("show_banner", "json_response", "log_level", "debug"):
            arguments.pop(option)
        for old, new in _RENAMED_HTTP_OPTIONS.items():
            arguments.rename(old, new)
        for option in _SECURITY:
            of_server = dict(self._http_options).get(option)
            given = arguments.pop(option) or of_server
            if given is None or is_name(given, "None"):
                continue
            inner = CallArguments(given) if isinstance(given, cst.Call) else None
            if inner is None or inner.starred:
                self.state.note(node, f"{method}({option}=…) was left out: {advice.HTTP_LEFT[option]}")
                continue
            self.state.drop(given)
            if is_name(inner.get("enable_dns_rebinding_protection"), "False"):
                arguments.set("allowed_hosts", '["*"]')
                self.state.note(node, f"{method}({option}=…): {advice.ANY_HOST}")
                continue
            for name in ("allowed_hosts", "allowed_origins"):
                value = inner.get(name)
                if value is not None:
                    arguments.set(name, value)
        for option, text in advice.HTTP_LEFT.items():
            if option not in _SECURITY and arguments.pop(option) is not None:
                self.state.note(node, f"{method}({option}=…) was left out: {text}")
        _sessions(arguments)

    def _mount(self, original_node: cst.Call, updated_node: cst.Call, method: str) -> cst.Call:
        assert isinstance(updated_node.func, cst.Attribute)
        first = original_node.args[0].value if original_node.args else None
        prefix_first = isinstance(first, cst.SimpleString)
        arguments = CallArguments(updated_node, ("prefix", "server") if prefix_first else ("server", "prefix"))
        server, prefix = arguments.pop("server"), arguments.pop("prefix") or arguments.pop("namespace")
        arguments.pop("as_proxy")
        for option in ("tool_names", "tool_separator", "resource_separator", "prompt_separator"):
            if option in arguments:
                self.state.note(original_node, f"{method}({option}=…): write tools={{'old': ToolChange(name='new')}}")
        if server is None:
            return updated_node
        if prefix is not None:
            arguments.put_first(prefix)
        arguments.put_first(server)
        if prefix is not None:
            self.state.note(
                original_node, f"{method}: URIs of resources get the prefix before their scheme: prefix+scheme://…"
            )
        new = "mount" if method == "mount" else "include"
        return arguments.call().with_changes(func=updated_node.func.with_changes(attr=cst.Name(new)))

    def visit_Await(self, node: cst.Await) -> None:
        self._contexts.enter_await(node)

    def leave_Await(self, original_node: cst.Await, updated_node: cst.Await) -> cst.BaseExpression:
        call = original_node.expression
        if isinstance(call, cst.Call) and isinstance(updated_node.expression, cst.Call):
            sent = self._extensions.sent(call, updated_node.expression)
            if sent is not None:
                return sent
        notice = self._contexts.notice(original_node, updated_node)
        if notice is not None:
            return notice
        if isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute):
            owner, method = self._bindings.kind(call.func.value), call.func.attr.value
            if owner == "server" and method == "import_server":
                return updated_node.expression
        return updated_node

    def visit_Subscript(self, node: cst.Subscript) -> None:
        self._clients.enter_subscript(node)

    def visit_Comparison(self, node: cst.Comparison) -> None:
        self._clients.enter_comparison(node)

    def leave_Subscript(self, original_node: cst.Subscript, updated_node: cst.Subscript) -> cst.BaseExpression:
        return self._clients.subscript(original_node, updated_node)

    def visit_For(self, node: cst.For) -> None:
        self.state.loops += 1

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> cst.For:
        self.state.loops -= 1
        iterated = self._clients.iterated(original_node.iter, updated_node.iter)
        return updated_node if iterated is None else updated_node.with_changes(iter=iterated)

    def leave_CompFor(self, original_node: cst.CompFor, updated_node: cst.CompFor) -> cst.CompFor:
        iterated = self._clients.iterated(original_node.iter, updated_node.iter)
        return updated_node if iterated is None else updated_node.with_changes(iter=iterated)

    def leave_Expr(self, original_node: cst.Expr, updated_node: cst.Expr) -> cst.Expr | cst.RemovalSentinel:
        if self._clients.is_initialization(original_node):
            return cst.RemoveFromParent()
        if isinstance(original_node.value, cst.Call) and isinstance(updated_node.value, cst.Await):
            return updated_node.with_changes(value=_plain(updated_node.value))
        return updated_node

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign:
        unpacked = self._contexts.unpacked(original_node, updated_node)
        if unpacked is not None:
            return unpacked
        if isinstance(original_node.value, cst.Call) and isinstance(updated_node.value, cst.Await):
            return updated_node.with_changes(value=_plain(updated_node.value))
        return updated_node

    def leave_Return(self, original_node: cst.Return, updated_node: cst.Return) -> cst.Return:
        asked = self._functions.question(original_node.value, updated_node.value)
        if asked is not None:
            return updated_node.with_changes(value=asked)
        if isinstance(original_node.value, cst.Call) and isinstance(updated_node.value, cst.Await):
            return updated_node.with_changes(value=_plain(updated_node.value))
        return updated_node

    # ---------------------------------------------------------------- functions

    def visit_Try(self, node: cst.Try) -> None:
        self.state.declining += _catches_declined(node)

    def leave_Try(self, original_node: cst.Try, updated_node: cst.Try) -> cst.Try:
        self.state.declining -= _catches_declined(original_node)
        return self._items.attempt(original_node, updated_node)

    def leave_With(self, original_node: cst.With, updated_node: cst.With) -> cst.With:
        return self._items.suppression(original_node, updated_node)

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self._functions.enter(node)
        self.state.asynchronous.append(node.asynchronous is not None)
        self._items.enter_function(node)

    def leave_Decorator(self, original_node: cst.Decorator, updated_node: cst.Decorator) -> cst.Decorator:
        return self._apps.decorator(original_node, updated_node)

    def leave_FunctionDef(
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef | cst.FlattenSentinel[cst.BaseStatement]:
        self.state.registered.pop()
        self.state.asynchronous.pop()
        asked = self._functions.leave()
        callback = self._clients.callback(original_node, updated_node)
        return callback if callback is not None else self._functions.function(original_node, updated_node, asked)

    def visit_Annotation(self, node: cst.Annotation) -> None:
        self._names.enter_annotation(node)

    def leave_Annotation(self, original_node: cst.Annotation, updated_node: cst.Annotation) -> cst.Annotation:
        authorizing = self._tokens.annotation(original_node, updated_node)
        if authorizing is not None:
            return authorizing
        return self._contexts.annotation(original_node, updated_node)


def _negated(value: cst.BaseExpression) -> str:
    """The code of an option that says the opposite."""
    if isinstance(value, cst.Name) and value.value in ("True", "False"):
        return "False" if value.value == "True" else "True"
    code = code_of(value)
    return f"not {code}" if isinstance(value, cst.Name | cst.Attribute | cst.Call) else f"not ({code})"


def _sessions(arguments: CallArguments) -> None:
    stateless = arguments.pop("stateless_http")
    if is_name(stateless, "True"):
        arguments.set("sessions", "False")
    elif stateless is not None and not is_name(stateless, "False"):
        arguments.set("sessions", f"not {code_of(stateless)}")


def _plain(node: cst.Await) -> cst.Await:
    return node.with_changes(lpar=[], rpar=[])


def _catches_declined(node: cst.Try) -> bool:
    return any(handler.type is not None and code_of(handler.type).endswith("Declined") for handler in node.handlers)
