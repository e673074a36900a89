"""What the expressions of a module refer to: names of the foreign packages, and the servers, contexts and clients made of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import libcst as cst
from libcst.metadata import (
    Assignment,
    BuiltinAssignment,
    ImportAssignment,
    MetadataWrapper,
    QualifiedNameProvider,
    QualifiedNameSource,
    Scope,
    ScopeProvider,
)

from gemel.migrate import names
from gemel.migrate.names import Name

#: What a method of an object of one kind gives, after `await` where it is awaited.
_GIVES = {
    ("client", "call_tool"): "tool result",
    ("client", "list_tools"): "tool list",
    ("client", "list_resources"): "resource list",
    ("client", "list_resource_templates"): "template list",
    ("client", "list_prompts"): "prompt list",
    ("client", "read_resource"): "contents list",
    ("client", "get_prompt"): "prompt result",
    ("session", "call_tool"): "tool result",
    ("session", "list_tools"): "tool page",
    ("session", "list_resources"): "resource page",
    ("session", "list_resource_templates"): "template page",
    ("session", "list_prompts"): "prompt page",
    ("session", "read_resource"): "resource result",
    ("session", "get_prompt"): "prompt result",
    ("context", "read_resource"): "own contents",
    ("server", "as_proxy"): "server",
}
#: What the members of a list are.
_MEMBERS = {
    "tool list": "tool",
    "resource list": "resource",
    "template list": "template",
    "prompt list": "prompt",
    "contents list": "contents",
    "content list": "content",
}
#: What an attribute of an object of one kind is.
_ATTRIBUTES = {
    ("tool result", "content"): "content list",
    ("resource result", "contents"): "contents list",
    ("tool page", "tools"): "tool list",
    ("resource page", "resources"): "resource list",
    ("template page", "resource_templates"): "template list",
    ("template page", "resourceTemplates"): "template list",
    ("prompt page", "prompts"): "prompt list",
}


class Bindings:
    """The kinds of expressions of one module: "server", "context", "client", "session", "tool result" and so on.

    A client is FastMCP's, a session that of the official SDK, whose methods give pages and which doesn't raise.

    Args:
        wrapper: The module with its metadata.
        lines: The lines of the nodes before an earlier pass; its own lines by default.
    """

    def __init__(self, wrapper: MetadataWrapper, lines: Mapping[cst.CSTNode, int] | None = None) -> None:
        self._scopes: Mapping[cst.CSTNode, object] = wrapper.resolve(ScopeProvider)
        self._names = wrapper.resolve(QualifiedNameProvider)
        self._lines = lines if lines is not None else {}
        self._kinds: dict[cst.CSTNode, str] = {}
        self._attributes: dict[str, set[str | None]] = {}
        #: Classes of the module that derive from a server, each with the full name of its base.
        self._subclasses: dict[str, str] = {}
        collector = _Collector()
        wrapper.module.visit(collector)
        for _ in range(3):  # a name may depend on one that is bound further down
            self._attributes.clear()
            for node in collector.nodes:
                self._bind_all(node)

    def line(self, node: cst.CSTNode) -> int:
        """Return the line where a node began originally; of a new node, that of the first of its parts which has one."""
        if node in self._lines:
            return self._lines[node]
        return next((line for child in node.children if (line := self.line(child))), 0)

    def imported(self, node: cst.CSTNode) -> str | None:
        """Return the full name of what was imported from one of the foreign packages; None for anything else."""
        lazy: Any = self._names.get(node)
        full_names: Any = lazy() if callable(lazy) else lazy or set()
        if len(full_names) != 1:
            return None
        (full_name,) = full_names
        if full_name.source is not QualifiedNameSource.IMPORT:
            return None
        return full_name.name if full_name.name.split(".")[0] in names.PACKAGES else None

    def is_taken(self, name: str, new: Name) -> bool:
        """Whether a name is bound anywhere in the module, other than to an import that becomes the same name of Gemel."""
        for scope in {scope for scope in self._scopes.values() if isinstance(scope, Scope)}:
            for assignment in scope.assignments:
                if assignment.name != name or isinstance(assignment, BuiltinAssignment):
                    continue
                full_names = (
                    assignment.get_qualified_names_for(name) if isinstance(assignment, ImportAssignment) else ()
                )
                if not any(names.NAMES.get(qualified.name) == new for qualified in full_names):
                    return True
        return False

    def kind(self, node: cst.CSTNode | None) -> str | None:
        """Return what an expression is; None for what isn't known for sure."""
        if isinstance(node, cst.Name):
            return self._kind_of_name(node)
        if isinstance(node, cst.Await):
            return self.kind(node.expression)
        if isinstance(node, cst.Call):
            return self._kind_of_call(node)
        if isinstance(node, cst.Subscript):
            return _MEMBERS.get(self.kind(node.value) or "")
        if isinstance(node, cst.Attribute):
            owner = self.kind(node.value)
            if owner is not None:
                return _ATTRIBUTES.get((owner, node.attr.value))
            text = dotted(node)
            kinds = self._attributes.get(text, set()) if text is not None else set()
            return next(iter(kinds)) if len(kinds) == 1 else None
        return None

    def server_base(self, node: cst.ClassDef) -> str | None:
        """Return the full name of the server class that a class derives from."""
        for base in node.bases:
            full_name = self.imported(base.value)
            if full_name in names.SERVERS:
                return full_name
        return None

    def _kind_of_name(self, node: cst.Name) -> str | None:
        scope = self._scopes.get(node)
        if scope is None:
            return None
        assignments = scope[node.value]  # type: ignore[index]  # scopes are typed loosely
        kinds = {
            self._kinds.get(assignment.node) if isinstance(assignment, Assignment) else None
            for assignment in assignments
        }
        return next(iter(kinds)) if len(kinds) == 1 else None

    def _kind_of_call(self, node: cst.Call) -> str | None:
        full_name = self.imported(node.func)
        if full_name is not None:
            if full_name in names.SERVERS or full_name in names.PROXIES:
                return "server"
            if full_name in names.RAISING_CLIENTS:
                return "client"
            if full_name in names.SESSIONS:
                return "session"
            if full_name in names.LOW_LEVEL:
                return "low-level server"
            if full_name in names.PROCESS_PARAMETERS:
                return "process"
            if full_name.endswith(".get_context"):
                return "context"
            owner, _, member = full_name.rpartition(".")
            if owner in names.SERVERS and member in ("as_proxy", "from_openapi", "from_fastapi"):
                return "server"
        if isinstance(node.func, cst.Name) and node.func.value in self._subclasses:
            return "server"
        if isinstance(node.func, cst.Name) and node.func.value == "list" and len(node.args) == 1:
            return self.kind(node.args[0].value)
        if isinstance(node.func, cst.Attribute):
            return _GIVES.get((self.kind(node.func.value) or "", node.func.attr.value))
        return None

    def kind_of_annotation(self, node: cst.BaseExpression) -> str | None:
        """Return what a variable with this annotation is."""
        if isinstance(node, cst.BinaryOperation):  # `Context | None`
            return self.kind_of_annotation(node.left)
        if isinstance(node, cst.Subscript):
            return self.kind_of_annotation(node.value)
        if isinstance(node, cst.Name) and node.value in self._subclasses:
            return "server"
        full_name = self.imported(node)
        if full_name in names.CONTEXTS:
            return "context"
        if full_name in names.SERVERS:
            return "server"
        if full_name in names.RAISING_CLIENTS:
            return "client"
        return "session" if full_name in names.SESSIONS else None

    def _bind(self, target: cst.CSTNode, kind: str | None) -> None:
        """Note what a target of an assignment is."""
        if isinstance(target, cst.Name | cst.Param):
            if kind is not None:
                self._kinds[target] = kind
        elif isinstance(target, cst.Attribute):
            text = dotted(target)
            if text is not None:
                self._attributes.setdefault(text, set()).add(kind)

    def _bind_all(self, node: cst.CSTNode) -> None:
        """Note what the targets of a node are."""
        if isinstance(node, cst.ClassDef):
            self._bind_methods(node)
        elif isinstance(node, cst.Assign):
            for target in node.targets:
                self._bind(target.target, self.kind(node.value))
        elif isinstance(node, cst.AnnAssign):
            self._bind(node.target, self.kind_of_annotation(node.annotation.annotation) or self.kind(node.value))
        elif isinstance(node, cst.Param) and node.annotation is not None:
            self._bind(node, self.kind_of_annotation(node.annotation.annotation))
        elif isinstance(node, cst.WithItem) and node.asname is not None:
            self._bind(node.asname.name, self.kind(node.item))
        elif isinstance(node, cst.For | cst.CompFor):
            self._bind(node.target, _MEMBERS.get(self.kind(node.iter) or ""))

    def _bind_methods(self, node: cst.ClassDef) -> None:
        """In a class that derives from a server, the first parameter of its methods is one."""
        base = self.server_base(node)
        if base is None:
            return
        self._subclasses[node.name.value] = base
        for method in node.body.body:
            if isinstance(method, cst.FunctionDef) and method.params.params:
                first = method.params.params[0]
                if first.annotation is None and not method.decorators:
                    self._bind(first, "server")


class _Collector(cst.CSTVisitor):
    """Collects what binds names: classes, assignments, parameters, `with` and loops, in the order of the source."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[cst.CSTNode] = []

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self.nodes.append(node)

    def visit_Assign(self, node: cst.Assign) -> None:
        self.nodes.append(node)

    def visit_AnnAssign(self, node: cst.AnnAssign) -> None:
        self.nodes.append(node)

    def visit_Param(self, node: cst.Param) -> None:
        self.nodes.append(node)

    def visit_WithItem(self, node: cst.WithItem) -> None:
        self.nodes.append(node)

    def visit_For(self, node: cst.For) -> None:
        self.nodes.append(node)

    def visit_CompFor(self, node: cst.CompFor) -> None:
        self.nodes.append(node)


def dotted(node: cst.CSTNode) -> str | None:
    """Return `a.b.c` of names and attributes; None for other expressions."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        owner = dotted(node.value)
        return None if owner is None else f"{owner}.{node.attr.value}"
    return None
