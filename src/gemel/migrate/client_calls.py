"""Clients: how they are made, what they call, and what they do with the results."""

from __future__ import annotations

import re

import libcst as cst
import libcst.matchers as m

from gemel.client.client import Client
from gemel.migrate import advice, names
from gemel.migrate.arguments import CallArguments, code_of, member_of, text_of
from gemel.migrate.keywords import rename_keywords
from gemel.migrate.names import NAMES, Name
from gemel.migrate.rewrite_state import RewriteState

#: Attributes of pages of results, which are lists in Gemel.
_PAGES = {
    ("tool page", "tools"),
    ("resource page", "resources"),
    ("template page", "resource_templates"),
    ("template page", "resourceTemplates"),
    ("prompt page", "prompts"),
}
#: The positional parameters of methods of clients.
_POSITIONAL = {
    "call_tool": ("name", "arguments", "read_timeout_seconds", "progress_callback"),
    "get_prompt": ("name", "arguments"),
    "read_resource": ("uri",),
    **dict.fromkeys(("list_tools", "list_resources", "list_resource_templates", "list_prompts"), ("cursor",)),
}
#: Members of clients that are rewritten.
_CLIENT_CALLS = frozenset({"initialize", "is_connected", "set_logging_level"})
#: Callbacks of clients of the official SDK that return what Gemel's may.
_CALLBACK_OPTIONS = {
    "elicitation_callback": "on_elicit",
    "sampling_callback": "on_sample",
    "logging_callback": "on_log",
}
#: A mode that is a revision, which is one of the stateless era there.
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
#: What callbacks say that serve pages, or answer with an error.
_NOT_OF_FORMS = (
    m.Attribute(attr=m.Name("url") | m.Name("mode") | m.Name("elicitation_id"))
    | m.Name("ElicitRequestURLParams")
    | m.Name("ErrorData")
)
_RESULT = m.SimpleString(value=m.MatchIfTrue(lambda text: text[1:-1] == "result"))


class ClientCalls:
    """The part of the second pass that is about clients.

    Args:
        state: What the parts of the pass share.
    """

    def __init__(self, state: RewriteState) -> None:
        self._state = state
        self._bindings = state.bindings
        #: What is called.
        self._called: set[cst.CSTNode] = set()
        #: Callbacks that lose their first parameter, by their names.
        self._callbacks: set[str] = set()

    # ---------------------------------------------------------------- callbacks

    def scan(self, module: cst.Module) -> None:
        """Find the callbacks, before anything is rewritten."""
        self._callbacks = self._found_callbacks(module)

    def _found_callbacks(self, module: cst.Module) -> set[str]:
        """Functions that serve requests as callbacks of clients, and nothing else, and don't need their context."""
        found: set[str] = set()
        uses = [name.value for name in m.findall(module, m.Name()) if isinstance(name, cst.Name)]
        for call in m.findall(module, m.Call()):
            assert isinstance(call, cst.Call)
            if self._bindings.imported(call.func) not in names.SESSIONS:
                continue
            arguments = CallArguments(call)
            for option, parameters in names.CALLBACKS.items():
                value = arguments.get(option)
                function = self._bindings.functions.get(value.value) if isinstance(value, cst.Name) else None
                if function is None or len(function.params.params) != parameters:
                    continue
                first = function.params.params[0].name.value
                given = sum(use == function.name.value for use in uses) - 1
                as_option = sum(
                    m.matches(arg, m.Arg(value=m.Name(function.name.value), keyword=m.Name(option)))
                    for arg in m.findall(module, m.Arg())
                )
                needed = parameters == 2 and m.findall(function.body, m.Name(first))
                if given == as_option and not needed and not m.findall(function, _NOT_OF_FORMS):
                    found.add(function.name.value)
        return found

    def callback(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef | None:
        """Return a callback without its first parameter, the context; None for any other function."""
        if original_node.name.value not in self._callbacks or len(original_node.params.params) != 2:
            return None
        return updated_node.with_changes(params=updated_node.params.with_changes(params=updated_node.params.params[1:]))

    # ---------------------------------------------------------------- clients

    def imported_call(
        self, original_node: cst.Call, updated_node: cst.Call, full_name: str
    ) -> cst.BaseExpression | None:
        """Return a call that makes a client, or the command of one, as that of Gemel; None for any other."""
        if full_name in names.RAISING_CLIENTS | names.SESSIONS:
            return self._client(original_node, updated_node, full_name)
        if full_name in names.PROCESS_PARAMETERS:
            return self._command_line(original_node, updated_node)
        return None

    def _client(self, original_node: cst.Call, updated_node: cst.Call, full_name: str) -> cst.Call:
        arguments = CallArguments(updated_node, ("target",))
        for old in ("transport", "server"):
            target = arguments.pop(old)
            if target is not None:
                arguments.put_first(target)
        server = arguments.get("target")
        if isinstance(server, cst.Attribute) and server.attr.value == "_mcp_server":
            arguments.replace("target", server.value)
        if "roots" in arguments:
            arguments.rename("roots", "on_roots")
        for old, new in _CALLBACK_OPTIONS.items():
            callback = arguments.get(old)
            if isinstance(callback, cst.Name) and callback.value in self._callbacks:
                arguments.rename(old, new)
        mode = text_of(arguments.get("mode"))
        if mode == "auto":
            arguments.pop("mode")
        elif mode is not None and (mode == "legacy" or _DATE.fullmatch(mode)):
            arguments.replace("mode", cst.SimpleString('"2025"' if mode == "legacy" else '"2026"'))
            arguments.rename("mode", "era")
        if "verify" in arguments:
            arguments.rename("verify", "tls")
        arguments.pop("name")
        arguments.pop("auto_initialize")
        auth = text_of(arguments.get("auth"))
        if auth is not None and auth != "oauth":
            arguments.set("auth", f"lambda: {f'Bearer {auth}'!r}")
        given = CallArguments(original_node).get("extensions")
        fitting = {"auth": auth is not None, "extensions": given is not None and self._are_client_extensions(given)}
        for option in arguments.names():
            if option in advice.CLIENT_OPTIONS and not fitting.get(option):
                self._state.note(original_node, f"Client({option}=…): {advice.CLIENT_OPTIONS[option]}")
        if original_node.args and isinstance(original_node.args[0].value, cst.Dict):
            self._state.note(original_node, "Client({…}): write ClientGroup.from_config({…}) for several servers")
        if full_name.endswith("ClientSession"):
            self._state.imports.add(Name("Client"))
            return arguments.call().with_changes(func=cst.Name("Client"))
        return arguments.call()

    def _are_client_extensions(self, given: cst.BaseExpression) -> bool:
        """Whether these are objects of classes of the program, or extensions that are only declared."""
        return isinstance(given, cst.List) and all(
            (self._bindings.kind(element.value) or "").startswith("object ")
            or (isinstance(element.value, cst.Call) and self._bindings.imported(element.value.func) in NAMES)
            for element in given.elements
        )

    def _command_line(self, node: cst.Call, call: cst.Call) -> cst.BaseExpression:
        arguments = CallArguments(call, ("command", "args"))
        command, args = arguments.get("command"), arguments.get("args")
        for name in set(arguments.names()) - {"command", "args"}:
            self._state.note(node, f"StdioServerParameters({name}=…): give {name}= to Client")
        if command is None:
            return call
        if args is None:
            return cst.parse_expression(f"[{code_of(command)}]")
        if isinstance(args, cst.List):
            inner = code_of(args)[1:-1].strip()
            return cst.parse_expression(f"[{code_of(command)}, {inner}]" if inner else f"[{code_of(command)}]")
        return cst.parse_expression(f"[{code_of(command)}, *{code_of(args)}]")

    # ---------------------------------------------------------------- attributes and calls

    def enter_call(self, node: cst.Call) -> None:
        """Note what is called."""
        self._called.add(node.func)

    def attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute, owner: str | None
    ) -> cst.BaseExpression | None:
        """Return an attribute of a client or a result as that of Gemel; None for any other."""
        name = original_node.attr.value
        if owner in ("client", "session"):
            if name in advice.CLIENT_MEMBERS:
                self._state.note(original_node, f"client.{name}: {advice.CLIENT_MEMBERS[name]}")
            elif name not in _CLIENT_CALLS and not hasattr(Client, name):
                self._state.note(
                    original_node, f"client.{name}: Gemel's Client has no such member; see docs/clients.md"
                )
            return updated_node
        if owner == "tool data" and original_node not in self._called:
            key = cst.SubscriptElement(cst.Index(cst.SimpleString(f'"{name}"')))
            return cst.Subscript(updated_node.value, [key], lpar=updated_node.lpar, rpar=updated_node.rpar)
        if owner is not None and (owner, name) in _PAGES:
            return updated_node.value
        return None

    def call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression | None:
        """Return a call of a client as that of Gemel's; None for any other."""
        if not isinstance(original_node.func, cst.Attribute):
            return None
        owner = self._bindings.kind(original_node.func.value)
        if owner not in ("client", "session"):
            return None
        return self._client_call(original_node, updated_node, original_node.func.attr.value, owner)

    def is_initialization(self, node: cst.Expr) -> bool:
        """Return whether this is `await session.initialize()`, which entering a client of Gemel does."""
        call = node.value.expression if isinstance(node.value, cst.Await) else None
        if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Attribute):
            return False
        return call.func.attr.value == "initialize" and self._bindings.kind(call.func.value) == "session"

    def _client_call(
        self, original_node: cst.Call, updated_node: cst.Call, method: str, owner: str
    ) -> cst.BaseExpression:
        assert isinstance(updated_node.func, cst.Attribute)
        if method == "is_connected":
            return updated_node.func.with_changes(attr=cst.Name("connected"))
        arguments = CallArguments(updated_node, _POSITIONAL.get(method, ()))
        arguments.name_all_but(2)
        rename_keywords(self._state, original_node, arguments, f"client.{method}")
        for limit in ("total", "idle"):
            seconds = arguments.get(limit)
            if isinstance(seconds, cst.Call) and code_of(seconds.func).rpartition(".")[2] == "timedelta":
                arguments.replace(limit, cst.Call(member_of(seconds, "total_seconds")))
        uri = arguments.get("uri")
        if isinstance(uri, cst.Call) and m.matches(uri.func, m.Name("AnyUrl")) and len(uri.args) == 1:
            arguments.pop("uri")
            arguments.put_first(uri.args[0].value)
        if method == "call_tool" and owner == "session" and "raise_on_error" not in arguments:
            arguments.set("raise_on_error", "False")
        func = updated_node.func
        if method == "set_logging_level":
            func = func.with_changes(attr=cst.Name("set_log_level"))
        return arguments.call().with_changes(func=func)

    # ---------------------------------------------------------------- results

    def enter_subscript(self, node: cst.Subscript) -> None:
        """Note a read of the field `result` of structured content."""
        if m.matches(node, m.Subscript(slice=[m.SubscriptElement(m.Index(_RESULT))])):
            self._wrapped(node.value)

    def enter_comparison(self, node: cst.Comparison) -> None:
        """Note a comparison of structured content with the field `result`."""
        if m.matches(node.comparisons[0].comparator, m.Dict([m.DictElement(_RESULT)])):
            self._wrapped(node.left)

    def _wrapped(self, node: cst.BaseExpression) -> None:
        """A note for the field `result` of structured content."""
        structured = m.Attribute(attr=m.Name("structured_content") | m.Name("structuredContent"))
        if (
            m.matches(node, structured)
            and self._bindings.kind(cst.ensure_type(node, cst.Attribute).value) == "tool result"
        ):
            self._state.note(node, advice.WRAPPED)

    def subscript(self, original_node: cst.Subscript, updated_node: cst.Subscript) -> cst.BaseExpression:
        """Return an element of a result as one of its list; any other subscript as it is."""
        kind = self._bindings.kind(original_node.value)
        if kind == "contents list" and not isinstance(original_node.value, cst.Attribute):
            return updated_node.with_changes(value=member_of(updated_node.value, "contents"))
        if kind == "tool result":
            return updated_node.with_changes(value=member_of(updated_node.value, "content"))
        return updated_node

    def iterated(self, original: cst.BaseExpression, updated: cst.BaseExpression) -> cst.BaseExpression | None:
        """Return the contents of a result over which a loop goes; None for any other expression."""
        if self._bindings.kind(original) != "contents list" or isinstance(original, cst.Attribute):
            return None
        return member_of(updated, "contents")
