"""MCP Apps of the other libraries as `gemel.Apps`: their pages, tools and what the pages may use."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

import libcst as cst
import libcst.matchers as m

from gemel.extensions.apps import MIME_TYPE
from gemel.migrate import advice, names
from gemel.migrate.arguments import CallArguments, code_of, is_name, text_of
from gemel.migrate.imports import statements_of
from gemel.migrate.names import Name
from gemel.migrate.rewrite_state import RewriteState

_APPS = Name("Apps")
_PREFAB_APPS = Name("PrefabApps", "gemel.extensions.prefab")
_PATH = Name("Path", "pathlib")
_STR = cst.Name("str")
_REGISTERS = m.Call(func=m.Attribute(attr=m.Name("tool") | m.Name("resource")))
#: What a page may use, as both other libraries write it, to its name in the protocol.
_PERMISSIONS = {
    "camera": "camera",
    "microphone": "microphone",
    "geolocation": "geolocation",
    "clipboard_write": "clipboardWrite",
}
_PAGE_OPTIONS = ("csp", "permissions", "domain", "prefers_border")
#: What a resource holds that becomes a page, by the argument that has it.
_SOURCES = {"FileResource": "path", "TextResource": "text"}
#: Rewrites the options of a tool or a resource: the call before and after, the method, and options that stay.
Item = Callable[[cst.Call, cst.Call, str, Collection[str]], cst.Call]


class _Added(NamedTuple):
    """The apps that are added to a server of FastMCP: their variable, and their class."""

    variable: str
    kind: Name


class AppsRewrite:
    """The part of the second pass that is about MCP Apps.

    Args:
        state: What the parts of the pass share.
    """

    def __init__(self, state: RewriteState) -> None:
        self._state = state
        self._bindings = state.bindings
        #: The servers that get apps, by the targets of their assignments.
        self._added: dict[cst.CSTNode, _Added] = {}
        #: The calls and decorators that register something for an app, with its variable; those of interfaces of prefab.
        self._registering: dict[cst.CSTNode, _Added] = {}
        self._prefab: set[cst.CSTNode] = set()
        #: Whether a tool is for pages alone.
        self._hides = False

    # ---------------------------------------------------------------- servers of FastMCP, which have apps themselves

    def scan(self, module: cst.Module) -> None:
        """Find the servers of FastMCP that need apps.

        Args:
            module: The module, before anything is rewritten.
        """
        if not any(code_of(found).split()[1].startswith("fastmcp") for found in statements_of(module)):
            return
        shown = {
            code_of(uri)
            for call in m.findall(module, m.Call())
            if isinstance(call, cst.Call)
            and self._bindings.imported(call.func) in names.APP_CONFIGS
            and (uri := CallArguments(call).get("resource_uri")) is not None
        }
        found: list[cst.CSTNode] = []
        returns: dict[cst.BaseExpression, cst.BaseExpression] = {}
        for function in m.findall(module, m.FunctionDef()):
            assert isinstance(function, cst.FunctionDef)
            if function.returns is not None:
                returns.update({part.decorator: function.returns.annotation for part in function.decorators})
        for decorator, returned in returns.items():
            member = decorator.func if isinstance(decorator, cst.Call) else decorator
            if self._is_member(member, "tool") and self._bindings.is_from(returned, "prefab_ui"):
                self._prefab.add(decorator)
                found.append(decorator)
        for call in m.findall(module, _REGISTERS):
            assert isinstance(call, cst.Call)
            app = CallArguments(call).get("app")
            given = app is not None and not is_name(app, "False") and not is_name(app, "None")
            if call in self._prefab:
                continue
            if is_name(app, "True"):
                self._prefab.add(call)
                if call in returns and self._bindings.imported(returns[call]) not in names.TOOL_RESULTS:
                    self._state.note(call, "@server.tool(app=True): return a PrefabApp or a component of Prefab")
            if given or (self._is_member(call.func, "resource") and self._is_page(call, shown)):
                found.append(call)
                if self._is_member(call.func, "resource") and code_of(returns.get(call, _STR)) != "str":
                    self._state.note(call, "@apps.page(uri): return the HTML document, a str")
        self._place(found)
        made = [call for call in m.findall(module, m.Call()) if self._bindings.kind(call) == "prefab apps"]
        if made and self._registering:
            self._state.note(made[0], advice.ONE_OF_APPS)

    def _is_member(self, node: cst.BaseExpression, name: str) -> bool:
        """Whether this is a method of a server."""
        return (
            isinstance(node, cst.Attribute) and node.attr.value == name and self._bindings.kind(node.value) == "server"
        )

    def _is_page(self, call: cst.Call, shown: set[str]) -> bool:
        """Whether a resource is the page of a tool, which FastMCP tells by its URI."""
        arguments = CallArguments(call, ("uri",))
        uri, mime_type = arguments.get("uri"), arguments.get("mime_type")
        if mime_type is not None and text_of(mime_type) != MIME_TYPE:
            return False
        text = text_of(uri)
        return uri is not None and ((text or "").startswith("ui://") or code_of(uri) in shown)

    def _place(self, found: list[cst.CSTNode]) -> None:
        """Give each server its variable for the apps; note what belongs to a server that is not made here."""
        for node in found:
            member = node.func if isinstance(node, cst.Call) else node
            if not isinstance(member, cst.Attribute) or self._bindings.kind(member.value) != "server":
                continue
            target = self._bindings.assignment(member.value) if isinstance(member.value, cst.Name) else None
            if target is None:
                self._state.note(node, f"@server.{member.attr.value}(app=…): {advice.ITEM_OPTIONS['app']}")
                continue
            variable, kind_of_apps = self._added.get(target, (self._variable(member.value), _APPS))
            if node in self._prefab:
                kind_of_apps = _PREFAB_APPS
            self._added[target] = _Added(variable, kind_of_apps)
            self._registering[node] = self._added[target]

    def _variable(self, server: cst.BaseExpression) -> str:
        taken = {added.variable for added in self._added.values()}
        if "apps" in taken or self._bindings.is_taken("apps", Name("apps")):
            return f"{code_of(server)}_apps"
        return "apps"

    def added(self, original_node: cst.SimpleStatementLine) -> list[cst.SimpleStatementLine]:
        """Return the statements that follow a statement which makes a server: they add apps to it.

        Args:
            original_node: The statement.
        """
        statements = []
        for part in original_node.body:
            targets = [one.target for one in part.targets] if isinstance(part, cst.Assign) else []
            targets += [part.target] if isinstance(part, cst.AnnAssign) else []
            for target in targets:
                found = self._added.get(target)
                if found is not None:
                    self._state.imports.add(found.kind)
                    code = f"{found.variable} = {code_of(target)}.add_extension({found.kind.name}())"
                    statement = cst.parse_statement(code)
                    assert isinstance(statement, cst.SimpleStatementLine)
                    statements.append(statement)
        return statements

    def decorator(self, original_node: cst.Decorator, updated_node: cst.Decorator) -> cst.Decorator:
        """Return a decorator without arguments, `@server.tool` or `@app.tool`, as that of Gemel.

        Args:
            original_node: The decorator before anything in it was rewritten.
            updated_node: The decorator.
        """
        member = original_node.decorator
        if not isinstance(member, cst.Attribute):
            return updated_node
        found = self._registering.get(member)
        if found is not None:
            return updated_node.with_changes(decorator=cst.parse_expression(f"{found.variable}.ui"))
        if self._bindings.kind(member.value) == "prefab apps" and member.attr.value in ("tool", "ui"):
            call = cst.ensure_type(cst.parse_expression(f"{code_of(member)}()"), cst.Call)
            return updated_node.with_changes(decorator=self._of_app(member, call, member.attr.value))
        return updated_node

    # ---------------------------------------------------------------- calls

    def are_extensions(self, given: cst.BaseExpression, option: str) -> bool:
        """Return whether the elements of a list are apps, or objects of classes of the program, as extensions are.

        Args:
            given: The list before anything in it was rewritten.
            option: The option that it is the value of: `providers`, in which other objects are not extensions, or `extensions`.
        """
        if not isinstance(given, cst.List):
            return False
        kinds = [self._bindings.kind(element.value) or "" for element in given.elements]
        others = [kind for kind in kinds if not kind.endswith("apps")]
        # A server has one object of apps.
        return len(kinds) - len(others) <= 1 and all(
            option == "extensions" and kind.startswith("object ") for kind in others
        )

    def is_added(self, node: cst.Call) -> bool:
        """Return whether a call is `server.add_provider(app)`.

        Args:
            node: The call before anything in it was rewritten.
        """
        return (
            self._is_member(node.func, "add_provider")
            and len(node.args) == 1
            and self._bindings.kind(node.args[0].value) == "prefab apps"
        )

    def _function(self, call: cst.Call) -> cst.BaseExpression | None:
        """The function that a call registers, if it is not a decorator."""
        first = call.args[0] if call.args else None
        is_function = first is not None and first.keyword is None and code_of(first.value) in self._bindings.functions
        return first.value if first is not None and is_function else None

    def call(self, original_node: cst.Call, updated_node: cst.Call, item: Item) -> cst.BaseExpression | None:
        """Return a call that is about apps as that of Gemel; None for any other call.

        Args:
            original_node: The call before anything in it was rewritten.
            updated_node: The call.
            item: Rewrites the options of a tool or a resource.
        """
        found = self._registering.get(original_node)
        if found is not None:
            return self._of_server(original_node, updated_node, found, item)
        full_name = self._bindings.imported(original_node.func)
        if full_name in names.PREFAB_APPS:
            self._state.imports.add(_PREFAB_APPS)
            self._state.dropped.add(code_of(original_node.func))
            return cst.Call(cst.Name(_PREFAB_APPS.name))
        if not isinstance(original_node.func, cst.Attribute):
            return None
        if self.is_added(original_node):
            return updated_node.with_changes(func=_method(updated_node, "add_extension"))
        owner, method = self._bindings.kind(original_node.func.value), original_node.func.attr.value
        if owner == "prefab apps" and method in ("tool", "ui"):
            function = self._function(original_node)
            call = updated_node if function is None else updated_node.with_changes(args=updated_node.args[1:])
            register = item(original_node, self._of_app(original_node, call, method), "tool", ("audience",))
            return _applied(register, function)
        if owner == "apps" and method == "tool":
            return self._tool(original_node, CallArguments(updated_node), item)
        if owner == "apps" and method == "add_html_resource":
            return self._html(original_node, updated_node)
        if owner == "apps" and method == "add_resource":
            return self._resource(original_node, updated_node)
        if owner in ("apps", "prefab apps") and method in advice.APPS_MEMBERS:
            self._state.note(original_node, f"apps.{method}(): {advice.APPS_MEMBERS[method]}")
        return None

    def _of_server(self, old: cst.Call, new: cst.Call, found: _Added, item: Item) -> cst.BaseExpression:
        """`server.tool(app=…)` and `server.resource(uri, app=…)`."""
        assert isinstance(old.func, cst.Attribute)
        method = old.func.attr.value
        function = self._function(old)
        call = new if function is None else new.with_changes(args=new.args[1:])
        arguments = CallArguments(call, ("uri",) if method == "resource" else ("name",))
        app, given = arguments.get("app"), CallArguments(old).get("app")
        func = cst.parse_expression(found.variable)
        self._state.drop(old)
        if old in self._prefab:
            arguments.pop("app")
            register = item(old, arguments.call(), "tool", ()).with_changes(func=cst.Attribute(func, cst.Name("ui")))
            return _applied(register, function)
        known = isinstance(given, cst.Call) and self._bindings.imported(given.func) in names.APP_CONFIGS
        if app is not None and (not known or CallArguments(cst.ensure_type(app, cst.Call)).starred):
            self._state.note(old, f"@server.{method}(app=…): {advice.ITEM_OPTIONS['app']}")
            return new
        arguments.spread("app")
        if method == "tool":
            for name in _PAGE_OPTIONS:
                if arguments.pop(name) is not None:
                    self._state.note(old, f"AppConfig({name}=…) of a tool was left out: give it to @apps.page(…)")
            register = self._tool(old, arguments, item).with_changes(func=cst.Attribute(func, cst.Name("tool")))
            return _applied(register, function)
        if text_of(arguments.pop("mime_type")) not in (None, MIME_TYPE):
            self._state.note(old, f"@server.resource(mime_type=…) was left out: pages are {MIME_TYPE}")
        for name in ("resource_uri", "visibility"):
            if arguments.pop(name) is not None:
                self._state.note(old, f"AppConfig({name}=…) of a page was left out: it belongs to the tool")
        self._page_options(old, arguments)
        page = CallArguments(item(old, arguments.call(), "resource", _PAGE_OPTIONS))
        page.pop("mime_type")
        return page.call().with_changes(func=cst.Attribute(func, cst.Name("page")))

    def _of_app(self, old: cst.CSTNode, call: cst.Call, method: str) -> cst.Call:
        """`app.tool(…)` and `app.ui(…)` of a FastMCPApp: for whom they are."""
        arguments = CallArguments(call, ("name",))
        for_model = arguments.pop("model")
        if method == "ui":
            arguments.set("audience", '"model"')
        elif for_model is None or is_name(for_model, "False"):
            self._for_pages(old)
            arguments.set("audience", '"app"')
        elif not is_name(for_model, "True"):
            arguments.set("audience", f'"both" if {code_of(for_model)} else "app"')
        return arguments.call()

    def _tool(self, old: cst.Call, arguments: CallArguments, item: Item) -> cst.Call:
        """`apps.tool(resource_uri=…, visibility=[…])`."""
        arguments.rename("resource_uri", "ui")
        visibility = arguments.get("visibility")
        audience = _texts(visibility)
        if audience is not None and len(audience) == 1 and audience <= {"model", "app"}:
            if "app" in audience:
                self._for_pages(old)
            arguments.rename("visibility", "audience")
            arguments.replace("audience", cst.parse_expression(f'"{audience.pop()}"'))
        elif (
            arguments.pop("visibility") is not None and audience != {"model", "app"} and not is_name(visibility, "None")
        ):
            self._state.note(old, 'visibility=… was left out: write audience="model" or audience="app"')
        return item(old, arguments.call(), "tool", ("ui", "audience"))

    def _html(self, old: cst.Call, new: cst.Call) -> cst.Call:
        """`apps.add_html_resource(uri, html, …)` as `apps.add_page`; without a name it is called by its URI."""
        arguments = CallArguments(new, ("uri", "html"))
        if any(arg.keyword is not None for arg in new.args[:2]):
            for name in ("html", "uri"):
                arguments.make_positional(name)
        uri = CallArguments(new, ("uri", "html")).get("uri")
        if uri is not None and ("name" not in arguments or is_name(arguments.get("name"), "None")):
            arguments.set("name", uri)
        self._page_options(old, arguments)
        return arguments.call().with_changes(func=_method(new, "add_page"))

    def _resource(self, old: cst.Call, new: cst.Call) -> cst.BaseExpression | None:
        """`apps.add_resource(FileResource(uri=…, path=…))` as `apps.add_page(uri, Path(…))`, and that of a text."""
        inner = new.args[0].value if len(new.args) == 1 else None
        given = old.args[0].value if len(old.args) == 1 else None
        kind = (self._bindings.imported(given.func) or "").rpartition(".")[2] if isinstance(given, cst.Call) else ""
        known = {"uri", "name", "title", "description", "mime_type", _SOURCES.get(kind, "")}
        arguments = CallArguments(inner) if isinstance(inner, cst.Call) and kind in _SOURCES else None
        if arguments is None or arguments.starred or set(arguments.names()) - known:
            self._state.note(old, f"apps.add_resource(…): {advice.APPS_MEMBERS['add_resource']}")
            return None
        assert given is not None
        source, uri = arguments.pop(_SOURCES[kind]), arguments.pop("uri")
        arguments.pop("mime_type")
        self._state.drop(given)
        if kind == "FileResource" and source is not None and not m.matches(source, m.Call(func=m.Name("Path"))):
            self._state.imports.add(_PATH)
            source = cst.Call(cst.Name("Path"), [cst.Arg(source)])
        page = CallArguments(cst.Call(_method(new, "add_page")))
        for value in (source, uri):
            if value is not None:
                page.put_first(value)
        for name in arguments.names():
            value = arguments.get(name)
            if value is not None:
                page.set(name, value)
        return page.call()

    # ---------------------------------------------------------------- options

    def _page_options(self, node: cst.CSTNode, arguments: CallArguments) -> None:
        """The options of a page; permissions are a list of their names."""
        for name in _PAGE_OPTIONS:
            if is_name(arguments.get(name), "None"):
                arguments.pop(name)
        permissions = arguments.get("permissions")
        if permissions is None:
            return
        given = CallArguments(permissions) if isinstance(permissions, cst.Call) else None
        if given is None or given.starred or not given.names() or set(given.names()) - set(_PERMISSIONS):
            arguments.pop("permissions")
            self._state.note(node, "permissions=… was left out: write permissions=['camera', …] of the page")
            return
        self._state.drop(permissions)
        listed = ", ".join(f'"{_PERMISSIONS[name]}"' for name in given.names())
        arguments.replace("permissions", cst.parse_expression(f"[{listed}]"))

    def _for_pages(self, node: cst.CSTNode) -> None:
        """Say once that tools are hidden from clients that don't show pages."""
        if not self._hides:
            self._hides = True
            self._state.note(node, advice.FOR_PAGES)


def _method(call: cst.Call, name: str) -> cst.BaseExpression:
    return cst.ensure_type(call.func, cst.Attribute).with_changes(attr=cst.Name(name))


def _applied(register: cst.Call, function: cst.BaseExpression | None) -> cst.Call:
    """A decorator, called with the function if there is one."""
    return register if function is None else cst.Call(register, [cst.Arg(function)])


def _texts(node: cst.BaseExpression | None) -> set[str] | None:
    """The texts in a list or tuple; None for anything else."""
    if not isinstance(node, cst.List | cst.Tuple):
        return None
    texts = {text_of(element.value) for element in node.elements}
    return None if None in texts else {text for text in texts if text is not None}
