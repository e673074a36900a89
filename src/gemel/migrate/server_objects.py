"""Servers: how they are made, with which options, their members, and what is added to them as a whole."""

from __future__ import annotations

import libcst as cst
import libcst.matchers as m

from gemel.migrate import advice, names
from gemel.migrate.apps import AppsRewrite
from gemel.migrate.arguments import CallArguments, code_of, in_lines, is_name, text_of
from gemel.migrate.names import Name
from gemel.migrate.path_security import is_default_security
from gemel.migrate.rewrite_state import RewriteState
from gemel.migrate.running import APP_METHODS, HTTP_OPTIONS, Running
from gemel.migrate.tokens import Rewritten, own_verifier_auth, state_keys, verifier_auth
from gemel.server.options import ServerOptions
from gemel.server.server import Server

#: Methods of low-level servers that add a handler, and the decorator that does it in Gemel.
_ADDED_HANDLERS = {"add_request_handler": "request", "add_notification_handler": "notification"}
#: The low-level server inside of another one.
_INNER = ("_lowlevel_server", "_mcp_server")
_HANDLER = ("method", "params_type", "handler")
_ADDS_INSIDE = m.Attribute(
    value=m.Attribute(attr=m.OneOf(*map(m.Name, _INNER))), attr=m.OneOf(*map(m.Name, _ADDED_HANDLERS))
)
_RENAMED_SERVER_OPTIONS = {"list_page_size": "page_size", "cache_hints": "cache"}
#: Members of servers that are rewritten, or noted where they are called.
_SERVER_CALLS = frozenset(
    {
        "tool",
        "resource",
        "prompt",
        *names.RUNS,
        *APP_METHODS,
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
_SUPER_INIT = m.Attribute(value=m.Call(func=m.Name("super")), attr=m.Name("__init__"))
_APPENDS_MIDDLEWARE = m.Attribute(value=m.Attribute(attr=m.Name("middleware")), attr=m.Name("append"))


class ServerObjects:
    """The part of the second pass that is about servers.

    Args:
        state: What the parts of the pass share.
        apps: The part about MCP Apps, which knows the extensions that are apps.
        running: The part about running, which takes the options of HTTP.
    """

    def __init__(self, state: RewriteState, apps: AppsRewrite, running: Running) -> None:
        self._state = state
        self._bindings = state.bindings
        self._apps = apps
        self._running = running
        #: The full name of the server that each class around a node derives from.
        self._bases: list[str | None] = []
        #: Functions that take a context and something else, as middleware does.
        self._middleware: set[str] = set()
        #: Calls that append a function to `server.middleware`.
        self._appending: set[cst.CSTNode] = set()

    # ---------------------------------------------------------------- before anything is rewritten

    def scan(self) -> None:
        """Find the functions of the module that are middleware."""
        for function in self._state.functions:
            parameters = function.params.params
            first = parameters[0].annotation if len(parameters) == 2 else None
            if first is not None and self._bindings.kind_of_annotation(first.annotation) == "context":
                self._middleware.add(function.name.value)

    def enter_class(self, node: cst.ClassDef) -> None:
        """Note whether a class is a server, and the methods that Gemel's servers don't call."""
        self._bases.append(self._bindings.server_base(node))
        for member in node.body.body if self._bases[-1] is not None else ():
            if isinstance(member, cst.FunctionDef):
                name = member.name.value
                text = advice.OVERRIDDEN.get(name.removeprefix("_").removesuffix("_mcp"))
                if text is not None:
                    self._state.note(member, f"{node.name.value}.{name}: Gemel's servers call no such method: {text}")

    def leave_class(self) -> None:
        """Forget the class that was entered last."""
        self._bases.pop()

    def enter_call(self, node: cst.Call) -> None:
        """Find the calls that add middleware, or a handler to the low-level server inside of another one."""
        if m.matches(node.func, _APPENDS_MIDDLEWARE):
            middleware = cst.ensure_type(cst.ensure_type(node.func, cst.Attribute).value, cst.Attribute)
            if self._bindings.kind(middleware.value) == "server":
                self._appending.add(node)
                self._state.replaced_members.add(middleware)
        if self._adds_inside(node):
            self._state.replaced_members.add(cst.ensure_type(node.func, cst.Attribute).value)

    # ---------------------------------------------------------------- members

    def attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute, owner: str | None
    ) -> cst.BaseExpression | None:
        """Note a member that Gemel's servers lack, and that isn't one of a class of the program."""
        name = original_node.attr.value
        is_own = name in self._bindings.own_members
        if owner is None and name in advice.ANYWHERE and not is_own:
            self._state.note(original_node, f".{name}: if this is a server, {advice.ANYWHERE[name]}")
            return updated_node
        if owner != "server":
            return None
        if name in advice.SERVER_MEMBERS:
            self._state.note(original_node, f"server.{name}: {advice.SERVER_MEMBERS[name]}")
        elif name not in _SERVER_CALLS and not hasattr(Server, name) and not is_own:
            self._state.note(
                original_node, f"server.{name}: Gemel's Server has no such member; see docs/servers.md for what it has"
            )
        return updated_node

    # ---------------------------------------------------------------- calls

    def imported_call(
        self, original_node: cst.Call, updated_node: cst.Call, full_name: str
    ) -> cst.BaseExpression | None:
        """Return a call that makes a server as that of Gemel; None for any other."""
        owner, _, short = full_name.rpartition(".")
        if full_name in names.SERVERS | names.LOW_LEVEL:
            return self._server(original_node, updated_node, full_name)
        if full_name in names.PROXIES or short == "as_proxy":
            self._state.imports.add(Name("Server"))
            return updated_node.with_changes(func=cst.parse_expression("Server.from_client"))
        if short == "from_fastapi" and owner in names.SERVERS:
            return self._from_fastapi(updated_node)
        if short == "from_openapi" and owner in names.SERVERS:
            return self._from_openapi(original_node, updated_node)
        return None

    def call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression | None:
        """Return a call of a server, or of a class that is one, as that of Gemel; None for any other."""
        if self._bases and self._bases[-1] and m.matches(original_node.func, _SUPER_INIT):
            return self._server(original_node, updated_node, self._bases[-1])
        kind = self._bindings.kind(original_node.func) or ""
        if kind.startswith("class ") and not kind.startswith("class with"):
            return self._server(original_node, updated_node, kind.rpartition(" ")[2])
        if not isinstance(original_node.func, cst.Attribute):
            return None
        if original_node in self._appending:  # `server.middleware.append(function)`
            assert isinstance(updated_node.func, cst.Attribute)
            assert isinstance(updated_node.func.value, cst.Attribute)
            return updated_node.with_changes(func=updated_node.func.value.with_changes(attr=cst.Name("add_middleware")))
        method = original_node.func.attr.value
        if self._bindings.kind(original_node.func.value) == "server":
            return self._server_call(original_node, updated_node, method)
        return self._handler(updated_node, method) if self._adds_inside(original_node) else None

    def included(self, original_node: cst.Await, updated_node: cst.Await) -> cst.BaseExpression:
        """Return `await server.import_server(…)` without its `await`; anything else that is awaited as it is."""
        call = original_node.expression
        if isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute):
            owner, method = self._bindings.kind(call.func.value), call.func.attr.value
            if owner == "server" and method == "import_server":
                return updated_node.expression
        return updated_node

    def _from_openapi(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        arguments = CallArguments(updated_node, ("openapi_spec", "client"))
        for name in set(arguments.names()) - {"openapi_spec", "client", "name"}:
            self._state.note(
                original_node, f"from_openapi({name}=…): choose with operations=, see docs/servers/composition.md"
            )
        client, document = arguments.pop("client"), arguments.pop("openapi_spec")
        if client is not None:
            arguments.put_first(client)
        if document is not None:
            arguments.put_first(document)
        return arguments.call()

    def _from_fastapi(self, call: cst.Call) -> cst.BaseExpression:
        arguments = CallArguments(call, ("app",))
        app = arguments.pop("app")
        if app is None:
            return call
        arguments.put_first(app)
        arguments.put_first(f"{code_of(app)}.openapi()")
        assert isinstance(call.func, cst.Attribute)
        return arguments.call().with_changes(func=call.func.with_changes(attr=cst.Name("from_openapi")))

    def _server(self, original_node: cst.Call, updated_node: cst.Call, full_name: str) -> cst.Call:
        low_level = full_name in names.LOW_LEVEL
        short = full_name.startswith(("fastmcp", "mcp.server.fastmcp"))
        positional = ("name", "instructions") if short else ("name", "title", "description", "instructions")
        arguments = CallArguments(updated_node, ("name",) if low_level else positional)
        if arguments.starred:
            self._state.note(original_node, "Server(**…): the options are keyword arguments; check their names")
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
            elif option in HTTP_OPTIONS:
                value = arguments.pop(option)
                assert value is not None
                moved.append((option, value))
            elif option == "subscriptions" and is_name(arguments.get(option), "False"):
                # Clients may subscribe; without changes they are told nothing.
                arguments.pop(option)
            elif option == "resource_security" and is_default_security(
                self._state, CallArguments(original_node).get(option)
            ):
                arguments.pop(option)
            elif self._is_counterpart(option, arguments.get(option), CallArguments(original_node).get(option)):
                if option == "providers":
                    arguments.rename(option, "extensions")
            elif option in _RENAMED_SERVER_OPTIONS:
                arguments.rename(option, _RENAMED_SERVER_OPTIONS[option])
            elif option in advice.HTTP_LEFT and option not in ServerOptions.__annotations__:
                arguments.pop(option)
                self._state.note(original_node, f"Server({option}=…) was left out: {advice.HTTP_LEFT[option]}")
            elif option in advice.SERVER_OPTIONS:
                self._state.note(original_node, f"Server({option}=…): {advice.SERVER_OPTIONS[option]}")
            elif option not in ("name", "lifespan", *ServerOptions.__annotations__):
                self._state.note(
                    original_node,
                    f"Server({option}=…): Gemel's Server has no such option; see docs/reference/limits.md",
                )
        self._running.take(original_node, moved)
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
            self._state.note(node, f"Server(token_verifier=…): {made}")
        elif made is not None:
            arguments.pop("token_verifier")
            original_auth = auth if isinstance(auth, cst.Call) else node
            whole = made.expression
            arguments.replace("auth", in_lines(whole, original_auth) if isinstance(whole, cst.Call) else whole)
            self._state.imports.update(made.imports)
            for value in (verifier, auth):
                if value is not None:
                    self._state.drop(value)
        keys = state_keys(self._bindings, original.get("request_state_security"))
        if keys is not None:
            self._state.drop(original.get("request_state_security") or node)
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
                self._state.kept.add(text)
        choices = [arguments.pop(name) for name in advice.DUPLICATES]
        given = next((choice for choice in choices if choice is not None), None)
        default = "replace" if full_name.startswith("fastmcp") else "keep"
        word = text_of(given)
        if word is not None:
            default = {"error": "error", "ignore": "keep"}.get(word, "replace")
        if self._bindings.duplicates and default != "error":
            arguments.set("on_duplicate", f'"{default}"')
            self._state.kept.add(f"on_duplicate: of two tools of one name, {advice.DUPLICATE_WORDS[default]}")

    def _server_call(self, original_node: cst.Call, updated_node: cst.Call, method: str) -> cst.BaseExpression:
        if method in ("mount", "import_server"):
            return self._mount(original_node, updated_node, method)
        if method == "get_context" and not updated_node.args:
            self._state.imports.add(Name("current_context"))
            return updated_node.with_changes(func=cst.Name("current_context"))
        if method in _ADDED_HANDLERS and len(updated_node.args) == len(_HANDLER):
            return self._handler(updated_node, method)
        if method == "add_middleware":
            self._state.note(
                original_node, "add_middleware: it takes a function `async def middleware(ctx, call_next)`"
            )
        if method in ("enable", "disable"):
            arguments = CallArguments(updated_node)
            others = [name for name in arguments.names() if name not in ("names", "tags")]
            if others:
                self._state.note(original_node, f"server.{method}({others[0]}=…): {advice.VISIBILITY}")
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

    def _handler(self, updated_node: cst.Call, method: str) -> cst.Call:
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

    def _mount(self, original_node: cst.Call, updated_node: cst.Call, method: str) -> cst.Call:
        assert isinstance(updated_node.func, cst.Attribute)
        first = original_node.args[0].value if original_node.args else None
        prefix_first = isinstance(first, cst.SimpleString)
        arguments = CallArguments(updated_node, ("prefix", "server") if prefix_first else ("server", "prefix"))
        server, prefix = arguments.pop("server"), arguments.pop("prefix") or arguments.pop("namespace")
        arguments.pop("as_proxy")
        for option in ("tool_names", "tool_separator", "resource_separator", "prompt_separator"):
            if option in arguments:
                self._state.note(original_node, f"{method}({option}=…): write tools={{'old': ToolChange(name='new')}}")
        if server is None:
            return updated_node
        if prefix is not None:
            arguments.put_first(prefix)
        arguments.put_first(server)
        if prefix is not None:
            self._state.note(
                original_node, f"{method}: URIs of resources get the prefix before their scheme: prefix+scheme://…"
            )
        new = "mount" if method == "mount" else "include"
        return arguments.call().with_changes(func=updated_node.func.with_changes(attr=cst.Name(new)))


def _negated(value: cst.BaseExpression) -> str:
    """The code of an option that says the opposite."""
    if isinstance(value, cst.Name) and value.value in ("True", "False"):
        return "False" if value.value == "True" else "True"
    code = code_of(value)
    return f"not {code}" if isinstance(value, cst.Name | cst.Attribute | cst.Call) else f"not ({code})"
