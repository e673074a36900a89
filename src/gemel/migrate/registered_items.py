"""What is registered as a tool, resource or prompt: the options, the functions and what they return, and its removal."""

from __future__ import annotations

import re
from collections.abc import Collection

import libcst as cst
import libcst.matchers as m

from gemel.migrate import advice
from gemel.migrate.arguments import CallArguments, code_of, is_name, text_of
from gemel.migrate.names import Name
from gemel.migrate.path_security import rewrite_security
from gemel.migrate.registrations import added_object, registration
from gemel.migrate.rewrite_state import RewriteState
from gemel.server.features.options import PromptOptions, ResourceOptions, ToolOptions

_ITEMS = ("tool", "resource", "prompt")
#: What functions are registered at.
_REGISTRIES = ("server", "apps", "prefab apps")
_TASK_MODES = {"optional": "True", "required": '"required"', "forbidden": "False"}
_ITEM_OPTIONS = {
    "tool": ToolOptions.__annotations__,
    "resource": ResourceOptions.__annotations__,
    "prompt": PromptOptions.__annotations__,
}
_REMOVES = m.Call(
    func=m.Attribute(
        value=m.SaveMatchedNode(m.DoNotCare(), "server"),
        attr=m.Name("remove_tool") | m.Name("remove_prompt") | m.Name("remove_resource"),
    )
)
_SUPPRESSES = m.Call(
    func=m.Name("suppress") | m.Attribute(attr=m.Name("suppress")),
    args=[m.Arg(m.SaveMatchedNode(m.DoNotCare(), "error"))],
)
_WILDCARD = re.compile(r"\{(\w+)\*\}")
_FIELD = m.SimpleStatementLine(body=[m.AnnAssign(target=m.SaveMatchedNode(m.Name(), "name"))])


class RegisteredItems:
    """The part of the second pass that is about tools, resources and prompts.

    Args:
        state: What the parts of the pass share.
    """

    def __init__(self, state: RewriteState) -> None:
        self._state = state
        self._bindings = state.bindings
        #: The functions that are registered, and their annotated results.
        self._registered: set[str] = set()
        self._results: set[str] = set()
        #: The annotated results of decorated functions, by their decorators.
        self._returns: dict[cst.CSTNode, str] = {}
        #: Calls that add an object made of a function to a server, with the full name of what makes it.
        self._registrations: dict[cst.CSTNode, str] = {}

    # ---------------------------------------------------------------- before anything is rewritten

    def scan(self) -> None:
        """Find the functions of the module that are registered."""
        for function in self._state.functions:
            if any(self._registers(decorator) for decorator in function.decorators):
                self._registered.add(function.name.value)
                if function.returns is not None:
                    self._results.add(code_of(function.returns.annotation))

    def enter_function(self, node: cst.FunctionDef) -> None:
        """Note whether a function is registered, and what it returns."""
        if node.returns is not None:
            self._returns.update({part.decorator: code_of(node.returns.annotation) for part in node.decorators})
        self._state.registered.append(any(self._registers(decorator) for decorator in node.decorators))

    def _registers(self, decorator: cst.Decorator) -> bool:
        inner = decorator.decorator
        inner = inner.func if isinstance(inner, cst.Call) else inner
        return (
            isinstance(inner, cst.Attribute)
            and inner.attr.value in _ITEMS
            and self._bindings.kind(inner.value) in _REGISTRIES
        )

    def enter_call(self, node: cst.Call) -> None:
        """Find the calls that add an object made of a function."""
        added = added_object(self._bindings, node)
        if added is None:
            return
        method = cst.ensure_type(node.func, cst.Attribute).attr.value
        if registration(method, added.call, added.full_name, in_loop=self._state.loops > 0) is not None:
            self._registrations[node] = added.full_name
            self._state.replaced_members.add(node.func)

    # ---------------------------------------------------------------- functions and what they return

    def attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute, owner: str | None
    ) -> cst.BaseExpression | None:
        """Return `function.fn` of a registered function as the function; None for any other attribute."""
        value = original_node.value
        if original_node.attr.value != "fn" or not isinstance(value, cst.Name) or value.value not in self._registered:
            return None
        return updated_node.value

    def returned_class(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:
        """Return a plain class that a registered function returns as a dataclass, if its fields are known."""
        name = original_node.name.value
        if name not in self._results or original_node.bases or original_node.keywords or original_node.decorators:
            return updated_node
        fields = {
            code_of(found["name"])  # type: ignore[arg-type]  # one node
            for statement in original_node.body.body
            if (found := m.extract(statement, _FIELD)) is not None
        }
        given = {code_of(node) for node in m.findall(original_node.body, m.Attribute(m.Name("self"), m.Name()))}
        if self._state.fastmcp or not fields or not {f"self.{name}" for name in fields} <= given:
            self._state.note(original_node, f"{name} is returned to clients: write it as a dataclass, or return a dict")
            return updated_node
        # The official SDK takes the annotations of any class as its fields. Those that only the class has aren't sent.
        self._state.imports.add(Name("dataclass", "dataclasses"))
        decorator = cst.Decorator(cst.parse_expression("dataclass(init=False)"))
        return updated_node.with_changes(decorators=[decorator])

    # ---------------------------------------------------------------- registration

    def call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression | None:
        """Return a call that registers a function as that of Gemel; None for any other."""
        if original_node in self._registrations:
            return self._registration(original_node, updated_node, self._registrations[original_node])
        func = original_node.func
        if not isinstance(func, cst.Attribute) or self._bindings.kind(func.value) != "server":
            return None
        if func.attr.value in _ITEMS:
            return self.options(original_node, updated_node, func.attr.value)
        return self._add_tool(original_node, updated_node) if func.attr.value == "add_tool" else None

    def options(
        self, original_node: cst.Call, updated_node: cst.Call, method: str, known: Collection[str] = ()
    ) -> cst.Call:
        """Return the call that registers a tool, resource or prompt with the options of Gemel.

        Args:
            original_node: The call before anything in it was rewritten.
            updated_node: The call.
            method: The method that registers, `tool`, `resource` or `prompt`.
            known: Options that are those of Gemel already.
        """
        positional = ("uri",) if method == "resource" else ("name",)
        arguments = CallArguments(updated_node, positional)
        for option in arguments.names():
            if option == "security" and rewrite_security(self._state, original_node, arguments):
                continue
            if option == "task" and self._task(arguments):
                continue
            if option in advice.ITEM_OPTIONS:
                self._state.note(original_node, f"@server.{method}({option}=…): {advice.ITEM_OPTIONS[option]}")
            elif option not in (*_ITEM_OPTIONS[method], *known, "uri", "structured_output", "run_in_thread"):
                self._state.note(
                    original_node,
                    f"@server.{method}({option}=…): Gemel has no such option; see docs/servers/{method}s.md",
                )
        if is_name(arguments.get("structured_output"), "False"):
            arguments.pop("structured_output")
            arguments.set("output_schema", "None")
        else:
            arguments.pop("structured_output")
        in_thread = arguments.pop("run_in_thread")
        if is_name(in_thread, "False"):
            arguments.set("blocking", "False")
        is_text = self._returns.get(original_node, "str") in ("str", "bytes", "None")
        if method == "resource" and "mime_type" not in arguments and not is_text:
            arguments.set("mime_type", '"text/plain"')  # the other libraries' default for everything
        uri = arguments.get("uri") if method == "resource" else None
        if isinstance(uri, cst.SimpleString) and _WILDCARD.search(uri.value):
            arguments.replace("uri", cst.SimpleString(_WILDCARD.sub(r"{+\1}", uri.value)))
        return arguments.call()

    def _task(self, arguments: CallArguments) -> bool:
        """`task=TaskConfig(mode=…)` as Gemel's value; False if it is not known, or without the extension."""
        given = arguments.get("task")
        if isinstance(given, cst.Call) and code_of(given.func).rpartition(".")[2] == "TaskConfig":
            config = CallArguments(given)
            mode = text_of(config.get("mode")) if "mode" in config else "optional"
            if set(config.names()) - {"mode", "poll_interval"} or mode not in _TASK_MODES:
                return False
            self._state.drop(given)
            arguments.replace("task", cst.parse_expression(_TASK_MODES[mode]))
            return self._state.has_tasks or mode == "forbidden"
        return is_name(given, "False") or (is_name(given, "True") and self._state.has_tasks)

    def _add_tool(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        """`add_tool(function, …)` and `add_tool(Tool.from_function(function, …))` as `tool(function, …)`."""
        assert isinstance(updated_node.func, cst.Attribute)
        register = updated_node.func.with_changes(attr=cst.Name("tool"))
        first = updated_node.args[0].value if updated_node.args else None
        if isinstance(first, cst.Call):
            if m.matches(first.func, m.Attribute(attr=m.Name("from_function"))):
                self._state.drop(first.func)
                return self.options(original_node, first.with_changes(func=register), "tool")
            self._state.note(original_node, "add_tool: register the function itself with server.tool(function)")
            return updated_node
        arguments = CallArguments(updated_node, ("fn", "name", "title", "description"))
        arguments.name_all_but(1)
        return self.options(original_node, arguments.call().with_changes(func=register), "tool")

    def _registration(self, original_node: cst.Call, updated_node: cst.Call, full_name: str) -> cst.Call:
        """`add_prompt(Prompt.from_function(f))` as `prompt(f)`, `add_resource(TextResource(…))` as `resource(uri)(function)`."""
        original_added = cst.ensure_type(original_node.args[0].value, cst.Call)
        added = cst.ensure_type(updated_node.args[0].value, cst.Call)
        server = cst.ensure_type(updated_node.func, cst.Attribute)
        method = server.attr.value
        found = registration(method, added, full_name, in_loop=self._state.loops > 0)
        assert found is not None
        self._state.drop(original_added.func)
        if "Path(" in code_of(found.function):
            self._state.imports.add(Name("Path", "pathlib"))
        register = found.options.with_changes(func=server.with_changes(attr=cst.Name(found.kind)))
        registered = self.options(original_node, register, found.kind)
        if found.kind == "prompt":
            return registered
        return cst.Call(registered, args=[cst.Arg(found.function)])

    # ---------------------------------------------------------------- removal

    def attempt(self, original_node: cst.Try, updated_node: cst.Try) -> cst.Try:
        """Return `try` around the removal of an item with the error of Gemel; any other as it is."""
        if not self._removes(original_node.body):
            return updated_node
        handlers = [
            new.with_changes(type=cst.Name("KeyError")) if old.type is not None and self._is_missing(old.type) else new
            for old, new in zip(original_node.handlers, updated_node.handlers, strict=True)
        ]
        return updated_node.with_changes(handlers=handlers)

    def suppression(self, original_node: cst.With, updated_node: cst.With) -> cst.With:
        """Return `with suppress(ValueError)` around the removal of an item as `with suppress(KeyError)`; any other as it is."""
        if not self._removes(original_node.body):
            return updated_node
        items = []
        for old, new in zip(original_node.items, updated_node.items, strict=True):
            suppressed = m.extract(old.item, _SUPPRESSES)
            error = suppressed["error"] if suppressed is not None else None
            if isinstance(error, cst.BaseExpression) and self._is_missing(error) and isinstance(new.item, cst.Call):
                new = new.with_changes(item=new.item.with_changes(args=[cst.Arg(cst.Name("KeyError"))]))
            items.append(new)
        return updated_node.with_changes(items=items)

    def _removes(self, body: cst.BaseSuite) -> bool:
        """Whether a block does nothing but remove a tool, prompt or resource of a server."""
        removed = m.extract(body, m.IndentedBlock(body=[m.SimpleStatementLine(body=[m.Expr(_REMOVES)])]))
        return removed is not None and self._bindings.kind(removed["server"]) == "server"  # type: ignore[arg-type]  # one node

    def _is_missing(self, error: cst.BaseExpression) -> bool:
        """Whether this is what the official SDK raises where there is nothing to remove."""
        return is_name(error, "ValueError") or (self._bindings.imported(error) or "").endswith(".ToolError")
