"""The official SDK's low-level server. What one function lists and another one calls becomes a tool for each name.

The function that serves calls stays as it is; each tool calls it with its name. Where the tools are not written out in one
list, and for prompts, resources and completion, the functions stay as they are, and serve the requests of the protocol.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence
from typing import NamedTuple

import libcst as cst
import libcst.matchers as m

from gemel.migrate import names
from gemel.migrate.arguments import CallArguments, code_of, text_of
from gemel.migrate.bindings import Bindings
from gemel.migrate.names import Name

#: The fields of a listed tool to the options of a registered one.
_FIELDS = {
    "description": "description",
    "title": "title",
    "inputSchema": "input_schema",
    "input_schema": "input_schema",
    "outputSchema": "output_schema",
    "output_schema": "output_schema",
    "annotations": "annotations",
    "icons": "icons",
    "meta": "meta",
    "_meta": "meta",
}
_STDIO = frozenset({"mcp.server.stdio.stdio_server", "mcp.stdio_server"})
_CONSTRUCTOR = ("name", "version", "instructions", "website_url", "icons", "lifespan")


#: Decorators of version 1 that list something: the method, its result, and the field of the result.
_LISTING = {
    "list_tools": ("tools/list", Name("ListToolsResult", "gemel.schema.tools"), "tools"),
    "list_prompts": ("prompts/list", Name("ListPromptsResult", "gemel.schema.prompts"), "prompts"),
    "list_resources": ("resources/list", Name("ListResourcesResult", "gemel.schema.resources"), "resources"),
    "list_resource_templates": (
        "resources/templates/list",
        Name("ListResourceTemplatesResult", "gemel.schema.resources"),
        "resource_templates",
    ),
}
#: Other decorators of version 1: the method, what the function gets, the result, and its expression.
_ANSWERING = {
    "get_prompt": ("prompts/get", "params.name, params.arguments", Name("GetPromptResult"), "{}"),
    "read_resource": (
        "resources/read",
        "params.uri",
        Name("ReadResourceResult"),
        'ReadResourceResult(contents=[ResourceContents(uri=params.uri, text={}, mime_type="text/plain")])',
    ),
    "completion": (
        "completion/complete",
        "params.ref, params.argument, params.context",
        Name("CompleteResult", "gemel.schema.completion"),
        "CompleteResult(completion={} or Completion(values=[]))",
    ),
    "set_logging_level": ("logging/setLevel", "params.level", None, "{}"),
    "subscribe_resource": ("resources/subscribe", "params.uri", None, "{}"),
    "unsubscribe_resource": ("resources/unsubscribe", "params.uri", None, "{}"),
}
#: Handlers of version 2, which are arguments of the server, and their methods.
_METHODS = {
    "on_list_tools": "tools/list",
    "on_call_tool": "tools/call",
    "on_list_prompts": "prompts/list",
    "on_get_prompt": "prompts/get",
    "on_list_resources": "resources/list",
    "on_list_resource_templates": "resources/templates/list",
    "on_read_resource": "resources/read",
    "on_completion": "completion/complete",
    "on_set_logging_level": "logging/setLevel",
    "on_subscribe_resource": "resources/subscribe",
    "on_unsubscribe_resource": "resources/unsubscribe",
    "on_ping": "ping",
}
_NOTIFICATIONS = {
    "on_progress": "notifications/progress",
    "on_roots_list_changed": "notifications/roots/list_changed",
}
#: What the functions of version 1 may return that can't be told apart in advance.
_MIXED = re.compile(r"ReadResourceContents|Iterable|bytes|CreateTaskResult")


class Handlers(NamedTuple):
    """The two functions of one server; its handlers are decorated functions, or arguments of the server."""

    server: cst.BaseExpression
    listing: cst.FunctionDef
    calling: cst.FunctionDef
    #: The statement that makes a server with its handlers as arguments.
    made: cst.SimpleStatementLine | None = None


class LowLevelPass(cst.CSTTransformer):
    """The pass before all others, for a module that has low-level servers.

    Args:
        bindings: What the expressions of the module refer to.
        module: The module.
    """

    def __init__(self, bindings: Bindings, module: cst.Module) -> None:
        super().__init__()
        self._bindings = bindings
        self._taken = {code_of(node) for node in m.findall(module, m.Name())}
        self._handlers = [
            handlers
            for handlers in (*self._decorated(module), *self._given_to_servers(module))
            if self._tools(handlers.listing) and not handlers.calling.params.star_kwarg
        ]
        #: What the new statements need.
        self.imports: set[Name] = set()
        #: Names of imports that may have lost their uses.
        self.dropped: set[str] = set()
        #: The decorators of version 1 that are left, and the handlers of version 2, with the statement that makes their server.
        self._others = {
            node: (handler[0], handler[1])
            for node in m.findall(module, m.FunctionDef())
            if isinstance(node, cst.FunctionDef)
            and (handler := self._handler(node)) is not None
            and not any(node in (known.listing, known.calling) for known in self._handlers)
        }
        self._made = {
            line: made
            for line in m.findall(module, m.SimpleStatementLine())
            if isinstance(line, cst.SimpleStatementLine) and (made := self._making(line)) is not None
        }
        self._calls = {call for _, call in self._made.values()}
        #: `server.request_context` where it tells of changes.
        self._told = {
            node
            for await_ in m.findall(module, m.Await())
            if isinstance(await_, cst.Await) and (node := self._telling(await_)) is not None
        }
        #: `server.run(read, write, …)`, and the blocks that open nothing but these streams.
        self._on_streams: set[cst.Call] = set()
        self._opening: set[cst.With] = set()
        #: Statements that make options for such a call alone.
        self._idle: set[cst.CSTNode] = set()
        #: Why the module stays as it is: the first thing that has no counterpart, with its node.
        self.refused = self._refusal(module)

    def left(self, module: cst.Module) -> list[tuple[cst.CSTNode, str]]:
        """What is to do by hand about the functions that serve calls: where, and what."""
        left: list[tuple[cst.CSTNode, str]] = []
        for node in m.findall(module, m.Attribute(attr=m.Name("request_context"))):
            if isinstance(node, cst.Attribute) and self._is_server(node.value) and node not in self._told:
                left.append((node, "server.request_context: current_context() has what it held"))
        return left

    def _handler(self, function: cst.FunctionDef) -> tuple[cst.BaseExpression, str] | None:
        """The server and the decorator of a function that serves requests of version 1."""
        for decorator in function.decorators:
            call = decorator.decorator
            if isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute) and self._is_server(call.func.value):
                return call.func.value, call.func.attr.value
        return None

    def _making(self, line: cst.SimpleStatementLine) -> tuple[cst.BaseExpression | None, cst.Call] | None:
        """The target and the call of `server = Server(…)`; no target for `return Server(…)`."""
        statement = line.body[0] if len(line.body) == 1 else None
        call: object = None
        target: object = None
        if isinstance(statement, cst.Assign) and len(statement.targets) == 1:
            target, call = statement.targets[0].target, statement.value
        elif isinstance(statement, cst.AnnAssign):
            target, call = statement.target, statement.value
        elif isinstance(statement, cst.Return):
            call = statement.value
        if isinstance(call, cst.Call) and self._bindings.imported(call.func) in names.LOW_LEVEL:
            return (target if isinstance(target, cst.BaseExpression) else None), call
        return None

    def _refusal(self, module: cst.Module) -> tuple[cst.CSTNode, str] | None:
        """What keeps a module from being rewritten."""
        for node in m.findall(module, m.ClassDef()):
            if isinstance(node, cst.ClassDef):
                for base in node.bases:
                    if self._bindings.imported(base.value) in names.LOW_LEVEL:
                        return (
                            node,
                            f"class {node.name.value}: derive from gemel.Server, and register tools with @server.tool",
                        )
        for function, (_, method) in self._others.items():
            returns = code_of(function.returns.annotation) if function.returns is not None else ""
            if method not in ("call_tool", *_LISTING, *_ANSWERING):
                return function, f"@server.{method}() has no counterpart"
            if method in _LISTING and function.params.params:
                return function, f"@server.{method}() with a parameter: return the result of all pages"
            if method != "call_tool" and _MIXED.search(returns):
                return function, f"@server.{method}() returns {returns}: return a str, or write @server.resource(uri)"
        for call in m.findall(module, m.Call()):
            assert isinstance(call, cst.Call)
            if self._bindings.imported(call.func) not in names.LOW_LEVEL:
                continue
            handlers = [name for name in CallArguments(call).names() if name.startswith("on_")]
            unknown = [name for name in handlers if name not in (*_METHODS, *_NOTIFICATIONS)]
            if unknown:
                return call, f"Server({unknown[0]}=…) has no counterpart"
            if handlers and call not in self._calls:
                return call, "assign the server to a name, so that its handlers can be registered"
        if m.findall(module, m.Attribute(attr=m.Name("input_responses"))):
            (node, *_) = m.findall(module, m.Attribute(attr=m.Name("input_responses")))
            return node, "params.input_responses: ask with ctx.elicit() or ctx.sample(), and return the result"
        return None

    # ---------------------------------------------------------------- what there is

    def _is_server(self, node: cst.BaseExpression) -> bool:
        return self._bindings.kind(node) == "low-level server"

    def _decorated(self, module: cst.Module) -> list[Handlers]:
        """Handlers of version 1: `@server.list_tools()` and `@server.call_tool()`."""
        parts: dict[str, dict[str, tuple[cst.BaseExpression, cst.FunctionDef]]] = {}
        for function in m.findall(module, m.FunctionDef()):
            assert isinstance(function, cst.FunctionDef)
            for decorator in function.decorators:
                call = decorator.decorator
                if isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute):
                    server, method = call.func.value, call.func.attr.value
                    if method in ("list_tools", "call_tool") and self._is_server(server):
                        parts.setdefault(code_of(server), {})[method] = (server, function)
        return [
            Handlers(listing[0], listing[1], calling[1])
            for methods in parts.values()
            if (listing := methods.get("list_tools")) and (calling := methods.get("call_tool"))
        ]

    def _given_to_servers(self, module: cst.Module) -> list[Handlers]:
        """Handlers of version 2: `server = Server(name, on_list_tools=…, on_call_tool=…)`."""
        functions = {
            node.name.value: node for node in m.findall(module, m.FunctionDef()) if isinstance(node, cst.FunctionDef)
        }
        made = []
        for line in m.findall(module, m.SimpleStatementLine(body=[m.Assign(targets=[m.DoNotCare()], value=m.Call())])):
            assert isinstance(line, cst.SimpleStatementLine)
            assign = line.body[0]
            assert isinstance(assign, cst.Assign)
            assert isinstance(assign.value, cst.Call)
            if self._bindings.imported(assign.value.func) in names.LOW_LEVEL:
                arguments = CallArguments(assign.value)
                listing, calling = (
                    functions.get(code_of(value)) if (value := arguments.get(name)) is not None else None
                    for name in ("on_list_tools", "on_call_tool")
                )
                if listing is not None and calling is not None:
                    target = assign.targets[0].target
                    assert isinstance(target, cst.BaseExpression)
                    made.append(Handlers(target, listing, calling, line))
        return made

    def _tools(self, function: cst.FunctionDef) -> list[cst.Call]:
        """The `Tool(…)` in the one list that a function returns; empty for any other function."""
        last = function.body.body[-1] if function.body.body else None
        statements = [line for line in function.body.body if not m.matches(line, _DOCSTRING)]
        if len(statements) != 1 or not m.matches(last, m.SimpleStatementLine(body=[m.Return(m.DoNotCare())])):  # type: ignore[arg-type]  # None matches nothing
            return []
        value: cst.BaseExpression | None = last.body[0].value  # type: ignore[union-attr]  # the pattern says what it is
        if isinstance(value, cst.Call) and (self._bindings.imported(value.func) or "").endswith(".ListToolsResult"):
            arguments = CallArguments(value, ("tools",))
            value = arguments.get("tools") if arguments.names() == ["tools"] else None
        if not isinstance(value, cst.List):
            return []
        tools = [element.value for element in value.elements]
        return [call for call in tools if isinstance(call, cst.Call)] if all(map(self._is_tool, tools)) else []

    def _is_tool(self, node: cst.BaseExpression) -> bool:
        if not isinstance(node, cst.Call) or not (self._bindings.imported(node.func) or "").endswith(".Tool"):
            return False
        arguments = CallArguments(node)
        options = set(arguments.names())
        has_schema = bool(options & {"inputSchema", "input_schema"})
        return has_schema and "name" in options and options <= {"name", *_FIELDS} and len(options) == len(node.args)

    # ---------------------------------------------------------------- what becomes of it

    def leave_FunctionDef(
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef | cst.FlattenSentinel[cst.BaseStatement] | cst.RemovalSentinel:
        for handlers in self._handlers:
            if handlers.listing is original_node:
                if handlers.made is not None:
                    return cst.RemoveFromParent()
                tools = self._registered(handlers)
                tools[0] = tools[0].with_changes(leading_lines=updated_node.leading_lines)
                return cst.FlattenSentinel(tools)
            if handlers.calling is original_node and handlers.made is None:
                kept = [decorator for decorator in updated_node.decorators if ".call_tool" not in code_of(decorator)]
                return updated_node.with_changes(decorators=kept)
        if original_node in self._others:
            server, method = self._others[original_node]
            kept = [
                new
                for old, new in zip(original_node.decorators, updated_node.decorators, strict=True)
                if f"{code_of(server)}.{method}" not in code_of(old)
            ]
            plain = updated_node.with_changes(decorators=kept)
            blank = [line for line in updated_node.leading_lines if line.comment is None] or [
                cst.EmptyLine(indent=False)
            ]
            serving = self._serving(server, method, original_node)
            return cst.FlattenSentinel([plain, *(statement.with_changes(leading_lines=blank) for statement in serving)])
        return updated_node

    def _serving(self, server: cst.BaseExpression, method: str, function: cst.FunctionDef) -> list[cst.BaseStatement]:
        """A handler of the protocol's request that calls a function of version 1."""
        returns = code_of(function.returns.annotation) if function.returns is not None else ""
        name = function.name.value
        call = f"await {name}" if function.asynchronous is not None else name
        self.imports |= {Name("Context"), Name("Any", "typing")}
        if method in _LISTING:
            request, result, field = _LISTING[method]
            body = f"    return {result.name}({field}=list({call}()))"
        elif method == "call_tool":
            request, result = "tools/call", Name("CallToolResult")
            body = self._calling(call, returns)
        else:
            request, passed, answer, shape = _ANSWERING[method]
            result = answer or Name("None", "")
            first = function.params.params[0] if function.params.params else None
            if passed == "params.uri" and first is not None and first.annotation is not None:
                kind = code_of(first.annotation.annotation)
                passed = f"{kind}(params.uri)" if kind.endswith("AnyUrl") else passed
            body = f"    return {shape.format(f'{call}({passed})')}"
            if answer is None:
                body = f"    {call}({passed})"
            if method == "read_resource":
                self.imports.add(Name("ResourceContents"))
            if method == "completion":
                self.imports.add(Name("Completion"))
        if result.module:
            self.imports.add(result)
        return self._statements(
            f'@{code_of(server)}.request("{request}")\n'
            f"async def {self._free(f'serve_{name}')}(ctx: Context, params: Any) -> {result.name}:\n{body}\n"
        )

    def _calling(self, call: str, returns: str) -> str:
        """The body of a handler for calls: an exception is a result that the model reads, as in version 1."""
        self.imports |= {Name("CallToolResult"), Name("TextContent")}
        lines = [
            "    try:",
            f"        result = {call}(params.name, ctx.decoded_params.get('arguments') or {{}})".replace("'", '"'),
            "    except Exception as exc:",
            "        return CallToolResult(content=[TextContent(text=str(exc))], is_error=True)",
        ]
        if "CallToolResult" in returns:
            lines += ["    if isinstance(result, CallToolResult):", "        return result"]
        if re.search(r"\b[Tt]uple\b", returns):
            lines += [
                "    if isinstance(result, tuple):",
                "        return CallToolResult(content=list(result[0]), structured_content=result[1])",
            ]
        if re.search(r"\b[Dd]ict\b", returns):
            self.imports.add(Name("json", ""))
            lines += [
                "    if isinstance(result, dict):",
                "        text = json.dumps(result, indent=2)",
                "        return CallToolResult(content=[TextContent(text=text)], structured_content=result)",
            ]
        return "\n".join([*lines, "    return CallToolResult(content=list(result))"])

    def _statements(self, text: str) -> list[cst.BaseStatement]:
        return list(cst.parse_module(text).body)

    def _free(self, name: str) -> str:
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def _handing_over(self, server: str, handlers: Sequence[tuple[str, cst.BaseExpression]]) -> list[cst.BaseStatement]:
        """The statements that register handlers of version 2."""
        made: list[cst.BaseStatement] = []
        for option, value in handlers:
            handler = code_of(value)
            if option == "on_call_tool":
                self.imports |= {
                    Name("Context"),
                    Name("Any", "typing"),
                    Name("CallToolParams", "gemel.schema.tools"),
                }
                made += self._statements(
                    f'@{server}.request("tools/call")\n'
                    f"async def {self._free('serve_call_tool')}(ctx: Context, params: Any) -> Any:\n"
                    '    arguments = ctx.decoded_params.get("arguments")\n'
                    f"    return await {handler}(ctx, CallToolParams(name=params.name, arguments=arguments))\n"
                )
            elif option in _NOTIFICATIONS:
                made += self._statements(f'{server}.notification("{_NOTIFICATIONS[option]}")({handler})\n')
            else:
                made += self._statements(f'{server}.request("{_METHODS[option]}")({handler})\n')
        return [
            statement.with_changes(leading_lines=[cst.EmptyLine(indent=False)])
            if isinstance(statement, cst.FunctionDef)
            else statement
            for statement in made
        ]

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement] | cst.RemovalSentinel:
        if original_node in self._idle:
            return cst.RemoveFromParent()
        made = self._made.get(original_node)
        if made is None:
            return updated_node
        registered: list[cst.BaseStatement] = []
        for handlers in self._handlers:
            if handlers.made is original_node:
                registered += self._registered(handlers)
        target, call = made
        given = CallArguments(call, _CONSTRUCTOR)
        left = [
            (name, value)
            for name in given.names()
            if name.startswith("on_")
            and (value := given.get(name)) is not None
            and not m.matches(value, m.Name("None"))
            and not self._is_registered(name, value)
        ]
        if not left:
            return cst.FlattenSentinel([updated_node, *registered])
        name = code_of(target) if target is not None else self._free("server")
        registered += self._handing_over(name, left)
        if target is not None:
            return cst.FlattenSentinel([updated_node, *registered])
        returned = updated_node.body[0]
        assert isinstance(returned, cst.Return)
        assert returned.value is not None
        first = updated_node.with_changes(body=[cst.Assign([cst.AssignTarget(cst.Name(name))], returned.value)])
        last = cst.SimpleStatementLine([cst.Return(cst.Name(name))])
        return cst.FlattenSentinel([first, *registered, last])

    def _is_registered(self, option: str, value: cst.BaseExpression) -> bool:
        """Whether a handler became tools."""
        return option in ("on_list_tools", "on_call_tool") and any(
            handlers.made is not None and code_of(value) in _names_of(handlers) for handlers in self._handlers
        )

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        """The server itself, without its handlers, and `server.run_async()`."""
        if original_node in self._on_streams:
            func = cst.ensure_type(updated_node.func, cst.Attribute).with_changes(attr=cst.Name("run_async"))
            return cst.Call(func, lpar=updated_node.lpar, rpar=updated_node.rpar)
        if self._bindings.imported(original_node.func) not in names.LOW_LEVEL:
            return updated_node
        arguments = CallArguments(updated_node, _CONSTRUCTOR)
        arguments.name_all_but(1)
        for name in arguments.names():
            if name.startswith("on_"):
                arguments.pop(name)
        if any(handlers.made is None for handlers in self._handlers):
            # Version 1 makes a result of an exception of a tool.
            arguments.set("error_details", "True")
        return arguments.call()

    def _telling(self, node: cst.Await) -> cst.Attribute | None:
        """The `server.request_context` in `await server.request_context.session.send_resource_updated(uri)` and the like."""
        told = m.extract(
            node.expression,
            m.Call(
                func=m.Attribute(
                    value=m.Attribute(
                        value=m.SaveMatchedNode(m.Attribute(attr=m.Name("request_context")), "context"),
                        attr=m.Name("session"),
                    ),
                    attr=m.OneOf(*map(m.Name, names.NOTICES)),
                )
            ),
        )
        context = told["context"] if told is not None else None
        return context if isinstance(context, cst.Attribute) and self._is_server(context.value) else None

    def leave_Await(self, original_node: cst.Await, updated_node: cst.Await) -> cst.BaseExpression:
        """`await server.request_context.session.send_resource_updated(uri)` as `server.notify(Changed("resource", uri))`."""
        context = self._telling(original_node)
        if context is None or not isinstance(updated_node.expression, cst.Call):
            return updated_node
        method = cst.ensure_type(updated_node.expression.func, cst.Attribute).attr.value
        self.imports.add(Name("Changed"))
        uri = "".join(f", str({code_of(argument.value)})" for argument in updated_node.expression.args)
        return cst.parse_expression(f'{code_of(context.value)}.notify(Changed("{names.NOTICES[method]}"{uri}))')

    def visit_Module(self, node: cst.Module) -> None:
        """Find what serves stdio, and the options that are made for it alone."""
        for block in m.findall(node, m.With()):
            self._find_streams(cst.ensure_type(block, cst.With))
        made = m.Call(func=m.Attribute(attr=m.Name("create_initialization_options")))
        names = [code_of(name) for name in m.findall(node, m.Name())]
        for line in m.findall(node, m.SimpleStatementLine(body=[m.Assign([m.AssignTarget(m.Name())], made)])):
            assign = cst.ensure_type(cst.ensure_type(line, cst.SimpleStatementLine).body[0], cst.Assign)
            name = code_of(assign.targets[0].target)
            given = sum(code_of(arg.value) == name for call in self._on_streams for arg in call.args)
            if given and names.count(name) == given + 1:
                self._idle.add(line)

    def _find_streams(self, node: cst.With) -> None:
        """Find `server.run(read, write, …)` in `async with stdio_server() as (read, write)`."""
        item = node.items[0]
        if len(node.items) != 1 or item.asname is None or not isinstance(item.item, cst.Call):
            return
        if self._bindings.imported(item.item.func) not in _STDIO:
            return
        streams = {code_of(name) for name in m.findall(item.asname, m.Name())}
        runs = {
            call: sum(code_of(name) in streams for name in m.findall(call, m.Name()))
            for call in m.findall(node.body, m.Call(func=m.Attribute(attr=m.Name("run"))))
            if isinstance(call, cst.Call) and self._is_server(cst.ensure_type(call.func, cst.Attribute).value)
        }
        runs = {call: used for call, used in runs.items() if used}
        used = sum(code_of(name) in streams for name in m.findall(node.body, m.Name()))
        if runs and used == sum(runs.values()):
            self._on_streams.update(runs)
            self._opening.add(node)
            for part in (item, *runs):
                self.dropped.update(code_of(name) for name in m.findall(part, m.Name()))

    def leave_With(
        self, original_node: cst.With, updated_node: cst.With
    ) -> cst.With | cst.FlattenSentinel[cst.BaseStatement]:
        """The block without the streams, which `await server.run_async()` opens itself."""
        if original_node not in self._opening or not isinstance(updated_node.body, cst.IndentedBlock):
            return updated_node
        first, *others = updated_node.body.body
        lines = [*updated_node.leading_lines, *getattr(first, "leading_lines", ())]
        return cst.FlattenSentinel([first.with_changes(leading_lines=lines), *others])

    def _registered(self, handlers: Handlers) -> list[cst.FunctionDef]:
        """A function for each tool."""
        self.imports.add(Name("Any", "typing"))
        self.dropped.update(code_of(node) for node in m.findall(handlers.listing, m.Name()))
        return [self._tool(handlers, call) for call in self._tools(handlers.listing)]

    def _tool(self, handlers: Handlers, call: cst.Call) -> cst.FunctionDef:
        arguments = CallArguments(call)
        for name in arguments.names():
            if name in _FIELDS:
                arguments.rename(name, _FIELDS[name])
        called = arguments.get("name")
        assert called is not None
        arguments.make_positional("name")
        register = cst.Attribute(handlers.server, cst.Name("tool"))
        on_lines = isinstance(call.whitespace_before_args, cst.ParenthesizedWhitespace)
        shape = arguments.lines() if on_lines else arguments.call()
        decorator = cst.Decorator(shape.with_changes(func=register))
        function = handlers.calling.name.value
        awaited = "await " if handlers.calling.asynchronous is not None else ""
        if handlers.made is None:
            parameters, passed = "arguments: dict[str, Any]", f"{code_of(called)}, arguments"
        else:
            self.imports |= {Name("Context"), Name("CallToolParams", "gemel.schema.tools")}
            parameters = "ctx: Context, arguments: dict[str, Any]"
            passed = f"ctx, CallToolParams(name={code_of(called)}, arguments=arguments)"
        result = self._result(handlers.calling)
        parsed = cst.parse_statement(
            f"async def {self._function_name(called)}({parameters}) -> {result}:\n    return {awaited}{function}({passed})\n"
        )
        assert isinstance(parsed, cst.FunctionDef)
        blank = [line for line in handlers.listing.leading_lines if line.comment is None]
        return parsed.with_changes(decorators=[decorator], leading_lines=blank)

    def _result(self, calling: cst.FunctionDef) -> str:
        """What the tools return: what the function that serves calls says, as a list."""
        if calling.returns is None:
            self.imports.add(Name("ContentBlock"))
            return "list[ContentBlock]"
        return re.sub(
            r"^(?:typing\.)?(?:Sequence|Iterable|List)\[", "list[", code_of(calling.returns.annotation).strip("\"'")
        )

    def _function_name(self, called: cst.BaseExpression) -> str:
        """A name for the function of a tool that the module doesn't use yet."""
        words = text_of(called) or code_of(called).removesuffix(".value").rpartition(".")[2].lower()
        name = re.sub(r"\W", "_", words) or "tool"
        if name[0].isdigit() or keyword.iskeyword(name) or name in self._taken:
            name = f"{name}_tool" if not name[0].isdigit() else f"tool_{name}"
        self._taken.add(name)
        return name


_DOCSTRING = m.SimpleStatementLine(body=[m.Expr(value=m.SimpleString() | m.ConcatenatedString())])


def _names_of(handlers: Handlers) -> Sequence[str]:
    return handlers.listing.name.value, handlers.calling.name.value
