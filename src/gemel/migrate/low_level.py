"""Tools of the official SDK's low-level server: what one function lists and another one calls becomes a tool for each name.

The function that serves calls stays as it is; each tool calls it with its name. Handlers of other kinds are left to the notes.
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

    def left(self, module: cst.Module) -> list[tuple[cst.CSTNode, str]]:
        """What is to do by hand about the functions that serve calls: where, and what."""
        left: list[tuple[cst.CSTNode, str]] = []
        for handlers in self._handlers:
            for node in m.findall(handlers.calling, m.Raise(exc=m.DoNotCare())):
                left.append((node, "raise: its text stays in the log; raise ToolError if the model should read it"))
        for node in m.findall(module, m.Attribute(attr=m.Name("request_context"))):
            if isinstance(node, cst.Attribute) and self._is_server(node.value):
                left.append((node, "server.request_context: current_context() has what it held"))
        return left

    @property
    def applies(self) -> bool:
        """Whether there are tools to rewrite."""
        return bool(self._handlers)

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
        return updated_node

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
        for handlers in self._handlers:
            if handlers.made is original_node:
                return cst.FlattenSentinel([updated_node, *self._registered(handlers)])
        return updated_node

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        """The server itself, without its handlers."""
        if self._bindings.imported(original_node.func) not in names.LOW_LEVEL:
            return updated_node
        arguments = CallArguments(updated_node, _CONSTRUCTOR)
        arguments.name_all_but(1)
        for name in ("on_list_tools", "on_call_tool"):
            value = arguments.get(name)
            if any(
                value is not None and handlers.made and code_of(value) in _names_of(handlers)
                for handlers in self._handlers
            ):
                arguments.pop(name)
        return arguments.call()

    def leave_With(
        self, original_node: cst.With, updated_node: cst.With
    ) -> cst.With | cst.SimpleStatementLine | cst.RemovalSentinel:
        """`async with stdio_server() as (read, write): await server.run(read, write, …)` as `await server.run_async()`."""
        item = original_node.items[0].item
        if len(original_node.items) != 1 or not isinstance(item, cst.Call):
            return updated_node
        ran = m.extract(
            original_node.body,
            m.IndentedBlock(
                body=[
                    m.SimpleStatementLine(
                        body=[
                            m.Expr(
                                value=m.Await(
                                    m.Call(
                                        func=m.Attribute(
                                            value=m.SaveMatchedNode(m.DoNotCare(), "server"), attr=m.Name("run")
                                        )
                                    )
                                )
                            )
                        ]
                    )
                ]
            ),
        )
        if ran is None or self._bindings.imported(item.func) not in _STDIO:
            return updated_node
        server = ran["server"]
        assert isinstance(server, cst.BaseExpression)
        if not self._is_server(server):
            return updated_node
        self.dropped.update(code_of(node) for node in m.findall(original_node, m.Name()))
        statement = cst.parse_statement(f"await {code_of(server)}.run_async()")
        assert isinstance(statement, cst.SimpleStatementLine)
        return statement.with_changes(leading_lines=updated_node.leading_lines)

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
