"""How servers run: `run`, their HTTP apps, and the options of HTTP."""

from __future__ import annotations

import libcst as cst

from gemel.migrate import advice, names
from gemel.migrate.arguments import CallArguments, code_of, is_name, text_of
from gemel.migrate.rewrite_state import RewriteState

_TRANSPORTS = {"streamable-http": "http", "http": "http", "stdio": "stdio", "sse": "http"}
#: Methods of servers that make an HTTP app.
APP_METHODS = ("http_app", "streamable_http_app", "sse_app")
_SECURITY = ("transport_security", "host_origin_protection")
#: Options of servers of the official SDK, and of FastMCP 2, that belong to HTTP.
HTTP_OPTIONS = (*advice.HTTP_OPTIONS, "message_path", "mount_path", *_SECURITY)
#: Options of a server that say where it is over HTTP, and whether it has sessions.
_PLACES = ("host", "port", "stateless_http")
#: Options of an HTTP app and of running over HTTP that have another name.
_RENAMED_HTTP_OPTIONS = {"streamable_http_path": "path", "retry_interval": "retry"}


class Running:
    """The part of the second pass that is about running servers.

    Args:
        state: What the parts of the pass share.
    """

    def __init__(self, state: RewriteState) -> None:
        self._state = state
        self._bindings = state.bindings
        #: What was said of HTTP when a server was made; it goes to where the server is run.
        self._http_options: list[tuple[str, cst.BaseExpression]] = []
        self._http_node: cst.CSTNode | None = None
        self._runs = False
        self._called: set[cst.CSTNode] = set()

    def enter_call(self, node: cst.Call) -> None:
        """Note what is called, to tell it from a method that is passed on."""
        self._called.add(node.func)

    def take(self, node: cst.CSTNode, options: list[tuple[str, cst.BaseExpression]]) -> None:
        """Keep the options of HTTP of a server, until it is run.

        Args:
            node: The call that makes the server.
            options: The names and values.
        """
        self._http_options.extend(options)
        self._http_node = node if options else self._http_node

    def finish(self) -> None:
        """Note the options of HTTP if the module doesn't run its servers."""
        if self._http_node is not None and not self._runs:
            options = ", ".join(f"{option}={code_of(value)}" for option, value in self._http_options)
            self._state.note(
                self._http_node, f"Server({options}) was left out: give it to run('http', …), where that is"
            )

    def attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute, owner: str | None
    ) -> cst.BaseExpression | None:
        """Return a method that runs a server and is passed on, as to `anyio.run`; note the lifespan of an HTTP app."""
        method = original_node.attr.value
        if owner == "app" and method == "lifespan":
            self._state.note(original_node, advice.APP_LIFESPAN)
        if owner != "server" or names.RUNS.get(method) is None or original_node in self._called:
            return None
        call = self._run(cst.Call(original_node), cst.Call(updated_node), method)
        return cst.Lambda(cst.Parameters(), call) if call.args else call.func

    def call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression | None:
        """Return a call that runs a server or makes its HTTP app as that of Gemel; None for any other."""
        func = original_node.func
        if not isinstance(func, cst.Attribute) or self._bindings.kind(func.value) != "server":
            return None
        if func.attr.value in names.RUNS:
            return self._run(original_node, updated_node, func.attr.value)
        return self._app(original_node, updated_node, func.attr.value) if func.attr.value in APP_METHODS else None

    def _run(self, original_node: cst.Call, updated_node: cst.Call, method: str) -> cst.Call:
        assert isinstance(updated_node.func, cst.Attribute)
        arguments = CallArguments(updated_node, ("transport",))
        expression = arguments.get("transport")
        self._runs = True
        transport = names.RUNS[method] or text_of(expression) or ("stdio" if expression is None else None)
        if len(updated_node.args) > 1 and updated_node.args[1].keyword is None:
            self._state.note(
                original_node, "server.run(read, write, …): await server.run_async() serves stdio by itself"
            )
            return updated_node
        self._http(original_node, arguments, method)
        if transport is None:
            self._state.note(original_node, 'run(transport=…): the transports are called "stdio" and "http" ("socket")')
        elif transport in _TRANSPORTS:
            arguments.pop("transport")
            if _TRANSPORTS[transport] == "stdio":
                arguments.pop("routes")
            else:
                self._paths(arguments, transport)
                for option, value in self._http_options:
                    if option in _PLACES and advice.HTTP_OPTIONS[option] not in arguments:
                        arguments.set(option, value)
                _sessions(arguments)
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
        self._paths(arguments, transport)
        for option, value in self._http_options:
            if option == "stateless_http" and is_name(value, "True"):
                arguments.set("sessions", "False")
        return arguments.call().with_changes(func=updated_node.func.with_changes(attr=cst.Name("http_app")))

    def _paths(self, arguments: CallArguments, transport: str) -> None:
        """The path of Streamable HTTP, or that of HTTP+SSE; what was said of it when the server was made."""
        options = dict(self._http_options)
        if transport != "sse":
            arguments.pop("sse_path")
            if "path" not in arguments and "streamable_http_path" in options:
                arguments.set("path", options["streamable_http_path"])
            return
        if "path" in arguments:
            arguments.pop("sse_path")
            arguments.rename("path", "sse_path")
        elif "sse_path" not in arguments:
            arguments.set("sse_path", options.get("sse_path", '"/sse"'))
        arguments.pop("message_path")

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
                self._state.note(node, f"{method}({option}=…) was left out: {advice.HTTP_LEFT[option]}")
                continue
            self._state.drop(given)
            if is_name(inner.get("enable_dns_rebinding_protection"), "False"):
                arguments.set("allowed_hosts", '["*"]')
                self._state.note(node, f"{method}({option}=…): {advice.ANY_HOST}")
                continue
            for name in ("allowed_hosts", "allowed_origins"):
                value = inner.get(name)
                if value is not None:
                    arguments.set(name, value)
        for option, text in advice.HTTP_LEFT.items():
            if option not in _SECURITY and arguments.pop(option) is not None:
                self._state.note(node, f"{method}({option}=…) was left out: {text}")
        _sessions(arguments)


def _sessions(arguments: CallArguments) -> None:
    stateless = arguments.pop("stateless_http")
    if is_name(stateless, "True"):
        arguments.set("sessions", "False")
    elif stateless is not None and not is_name(stateless, "False"):
        arguments.set("sessions", f"not {code_of(stateless)}")
