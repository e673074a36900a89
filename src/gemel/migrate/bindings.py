"""What the expressions of a module refer to: names of the foreign packages, and the servers, contexts and clients made of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import libcst as cst
import libcst.matchers as m
from libcst.metadata import (
    Assignment,
    BaseAssignment,
    BuiltinAssignment,
    ImportAssignment,
    MetadataWrapper,
    QualifiedNameProvider,
    QualifiedNameSource,
    Scope,
    ScopeProvider,
)

from gemel.migrate import names
from gemel.migrate.authorization import is_auth, is_login, is_verifier_class
from gemel.migrate.names import Name
from gemel.migrate.project import Sources

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
    ("server", "list_tools"): "tool list",
    ("server", "list_resources"): "resource list",
    ("server", "list_resource_templates"): "template list",
    ("server", "list_prompts"): "prompt list",
    ("server", "as_proxy"): "server",
    ("server", "http_app"): "app",
}
#: What the members of a list are.
_MEMBERS = {
    "tool list": "tool",
    "resource list": "resource",
    "template list": "template",
    "prompt list": "prompt",
    "contents list": "contents",
    "content list": "content",
    "tool data": "tool data",
}
#: What an attribute of an object of one kind is.
_ATTRIBUTES = {
    ("tool result", "content"): "content list",
    ("tool result", "data"): "tool data",
    ("resource result", "contents"): "contents list",
    ("tool page", "tools"): "tool list",
    ("resource page", "resources"): "resource list",
    ("template page", "resource_templates"): "template list",
    ("template page", "resourceTemplates"): "template list",
    ("prompt page", "prompts"): "prompt list",
}


_SERVERS = ("server", "low-level server")
#: What is followed from a call into the function: a value of another kind may stand for itself there.
_PASSED = (*_SERVERS, "client", "session", "context", "access token")
#: Reads of one kind at most: a name that is first None, and later a server, is a server.
_NOTHING = "none"


class Bindings:
    """The kinds of expressions of one module: "server", "context", "client", "session", "tool result" and so on.

    A client is FastMCP's, a session that of the official SDK, whose methods give pages and which doesn't raise. Further kinds are
    "class NAME" and "class with __init__ NAME" for a class that derives from the server NAME, "type ID" and "object ID" for a class
    of the program and its instances, and "gives KIND" for a function that returns something of a kind.

    Args:
        wrapper: The module with its metadata.
        lines: The lines of the nodes before an earlier pass; its own lines by default.
        program: The modules around this one; a module alone by default.
        path: The file of the module.
        low_level: The kind of low-level servers: "server" after they were rewritten.
    """

    def __init__(
        self,
        wrapper: MetadataWrapper,
        lines: Mapping[cst.CSTNode, int] | None = None,
        program: Program | None = None,
        path: Path | None = None,
        *,
        low_level: str = "low-level server",
    ) -> None:
        self._scopes: Mapping[cst.CSTNode, object] = wrapper.resolve(ScopeProvider)
        self._names = wrapper.resolve(QualifiedNameProvider)
        self._lines = lines if lines is not None else {}
        self._program, self._path = program, path or Path("module.py")
        self._low_level = low_level
        self._kinds: dict[cst.CSTNode, str] = {}
        self._attributes: dict[tuple[str, str], set[str]] = {}
        self._bases: dict[str, list[str]] = {}
        #: The classes whose instances verify tokens with a method of their own.
        self.verifiers: set[str] = set()
        self._fixtures: dict[str, str] = {}
        scope = self._scopes.get(wrapper.module)
        self._globals = scope if isinstance(scope, Scope) else None
        self._collector = _Collector()
        wrapper.module.visit(self._collector)
        #: The functions by their names, methods with the name of their class: `Class.method`.
        self.functions = self._collector.functions
        self.bind()

    def bind(self) -> None:
        """Work out the kinds, again if those of other modules have changed."""
        for _ in range(3):  # a name may depend on one that is bound further down
            self._bound: dict[tuple[str, str], set[str]] = {}
            for node in self._collector.nodes:
                self._bind_all(node)
            self._attributes = self._bound

    def line(self, node: cst.CSTNode) -> int:
        """Return the line where a node began originally; of a new node, that of the first of its parts which has one."""
        if node in self._lines:
            return self._lines[node]
        return next((line for child in node.children if (line := self.line(child))), 0)

    def imported(self, node: cst.CSTNode) -> str | None:
        """Return the full name of what was imported from one of the foreign packages; None for anything else."""
        full_name = self._import(node)
        return full_name if full_name is not None and full_name.split(".")[0] in names.PACKAGES else None

    def _import(self, node: cst.CSTNode) -> str | None:
        lazy: Any = self._names.get(node)
        full_names: Any = lazy() if callable(lazy) else lazy or set()
        if len(full_names) != 1:
            return None
        (full_name,) = full_names
        return full_name.name if full_name.source is QualifiedNameSource.IMPORT else None

    def is_from(self, node: cst.BaseExpression, package: str) -> bool:
        """Whether a name, or one in a union or in brackets, was imported from a package."""
        return any(
            (self._import(found) or "").partition(".")[0] == package
            for found in m.findall(node, m.Name() | m.Attribute())
        )

    def assignment(self, node: cst.Name) -> cst.CSTNode | None:
        """Return the target of the assignment that alone binds a name; None for what is bound otherwise."""
        scope: Any = self._scopes.get(node)
        found = list(scope[node.value]) if scope is not None else []
        return found[0].node if len(found) == 1 and isinstance(found[0], Assignment) else None

    def is_taken(self, name: str, new: Name) -> bool:
        """Whether a name is bound anywhere in the module, other than to an import that becomes the same name of Gemel."""
        for scope in {scope for scope in self._scopes.values() if isinstance(scope, Scope)}:
            for assignment in scope.assignments:
                if assignment.name != name or isinstance(assignment, BuiltinAssignment):
                    continue
                full_names = (
                    assignment.get_qualified_names_for(name) if isinstance(assignment, ImportAssignment) else ()
                )
                same = f"{new.module}.{new.name}"
                if not any(
                    qualified.name == same or names.NAMES.get(qualified.name) == new for qualified in full_names
                ):
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
        if isinstance(node, cst.NamedExpr):
            return self.kind(node.value)
        if isinstance(node, cst.Attribute):
            full_name = self._import(node)
            if full_name is not None and (found := self._outside(full_name)) is not None:
                return found
            owner = self.kind(node.value)
            if owner is not None and owner.startswith(("object ", "type ")):
                return self.attribute(owner.partition(" ")[2], node.attr.value)
            if owner is not None:
                return _ATTRIBUTES.get((owner, node.attr.value))
            text = dotted(node.value)
            return _only(self._attributes.get((text, node.attr.value), set())) if text is not None else None
        return None

    def member(self, name: str) -> str | None:
        """Return what a name of the module is, such as `server`, or `Holder.server` for an attribute of a class."""
        first, _, rest = name.partition(".")
        if not first or self._globals is None:
            return None
        kind = self._kind_of_assignments(self._globals[first], first)
        if not rest:
            return kind
        return self.attribute(kind.partition(" ")[2], rest) if kind and kind.startswith(("type ", "object ")) else None

    def members(self) -> dict[str, str]:
        """Return the names of the module that have a kind."""
        if self._globals is None:
            return {}
        found = {assignment.name: self.member(assignment.name) for assignment in self._globals.assignments}
        return {name: kind for name, kind in found.items() if kind is not None and kind != _NOTHING}

    def attribute(self, identity: str, name: str) -> str | None:
        """Return what an attribute of a class of the program is, or of its instances."""
        path, _, class_name = identity.rpartition(":")
        if str(self._path) != path:
            other = self._program.module(Path(path)) if self._program is not None else None
            return other.attribute(identity, name) if other is not None else None
        found = _only(self._attributes.get((identity, name), set()))
        for base in () if found is not None else self._bases.get(class_name, ()):
            if base != identity:
                found = found or self.attribute(base, name)
        return found

    def annotation(self, node: cst.Name) -> str | None:
        """Return the code of the annotation of the parameter that a name is; None for another name."""
        scope: Any = self._scopes.get(node)
        found = [part.node for part in (scope[node.value] if scope is not None else ()) if isinstance(part, Assignment)]
        parameter = found[0] if len(found) == 1 else None
        if not isinstance(parameter, cst.Param) or parameter.annotation is None:
            return None
        return cst.Module([]).code_for_node(parameter.annotation.annotation)

    def verifies(self, node: cst.BaseExpression) -> bool:
        """Whether an expression is an instance of a class of the program that verifies tokens with a method of its own."""
        path, _, name = (self.kind(node) or "").removeprefix("object ").rpartition(":")
        module = (
            self if path == str(self._path) else self._program.module(Path(path)) if self._program and path else None
        )
        return module is not None and name in module.verifiers

    def server_base(self, node: cst.ClassDef) -> str | None:
        """Return the full name of the server class that a class derives from."""
        for base in node.bases:
            full_name = self.imported(base.value)
            if full_name in names.SERVERS:
                return full_name
            kind = self.kind(base.value) or ""
            if kind.startswith("class "):
                return kind.rpartition(" ")[2]
        return None

    @property
    def own_members(self) -> frozenset[str]:
        """The names of methods and attributes of classes of the program."""
        return self._program.own_members if self._program is not None else self.defined_members

    @property
    def defined_members(self) -> frozenset[str]:
        """The names of methods and attributes of classes of this module."""
        named = {name.rpartition(".")[2] for name in self.functions if "." in name}
        return frozenset(named | {name for _, name in self._attributes})

    @property
    def duplicates(self) -> bool:
        """Whether two functions are registered with one name at one server, here or in a file that belongs to this one."""
        return self._path in self._program.with_duplicates if self._program is not None else self.registers_twice

    @property
    def registers_twice(self) -> bool:
        """Whether this module registers two functions with one name at one server."""
        return any(count > 1 for count in Counter(self._registrations()).values())

    def _registrations(self) -> Iterable[tuple[str, str, str]]:
        """Server, kind and name of what a module registers."""
        for qualified, function in ((name, node) for node, (name, _) in self._collector.functions_by_node.items()):
            for decorator in function.decorators:
                call = decorator.decorator if isinstance(decorator.decorator, cst.Call) else None
                member = call.func if call is not None else decorator.decorator
                if not isinstance(member, cst.Attribute) or member.attr.value not in ("tool", "prompt"):
                    continue
                if self.kind(member.value) == "server":
                    name = _name_given(call) or qualified
                    yield self._owner(member.value), member.attr.value, name
        for call in self._collector.calls:
            inner = call.func if isinstance(call.func, cst.Call) else None  # `server.tool()(function)`
            register = call.func if inner is None else inner.func
            given_name = _name_given(call, registering=True) if inner is None else _name_given(inner)
            if isinstance(register, cst.Attribute) and register.attr.value in ("tool", "add_tool"):
                given = call.args[0].value if call.args else None
                if isinstance(given, cst.Name) and self.kind(register.value) == "server":
                    yield self._owner(register.value), "tool", given_name or given.value

    def _owner(self, node: cst.BaseExpression) -> str:
        """A server by its expression, and where that is a name of a function, by the function."""
        scope = self._scopes.get(node)
        return f"{dotted(node)} {id(scope) if scope is not self._globals and isinstance(node, cst.Name) else ''}"

    @property
    def makes_servers(self) -> bool:
        """Whether any call makes a server."""
        return any(self.kind(call) in _SERVERS for call in self._collector.calls)

    @property
    def runners(self) -> list[str]:
        """The functions of the module, not methods, that run a server."""
        return [
            name
            for name, function in self.functions.items()
            if "." not in name and any(map(self._runs, m.findall(function, m.Call(func=m.Attribute()))))
        ]

    def _runs(self, node: cst.CSTNode) -> bool:
        assert isinstance(node, cst.Call)
        assert isinstance(node.func, cst.Attribute)
        return node.func.attr.value in names.RUNS and self.kind(node.func.value) in _SERVERS

    def counts(self) -> tuple[int, int]:
        """Return how much is known, which only grows."""
        return len(self._kinds), sum(map(len, self._attributes.values()))

    def pass_arguments(self) -> None:
        """Tell the functions of the program what they are called with."""
        for call in self._collector.calls:
            kinds = [self.kind(arg.value) for arg in call.args]
            if self._program is None or not any(
                kind in _PASSED or (kind or "").startswith("object ") for kind in kinds
            ):
                continue
            target = self._function_of(call.func)
            if target is not None:
                self._program.give(*target, list(zip(call.args, kinds, strict=True)))

    def _function_of(self, node: cst.BaseExpression) -> tuple[Path, str] | None:
        """The function that a call calls, if the program defines it."""
        kind = self.kind(node) or ""
        if kind.startswith("type "):
            path, _, name = kind.partition(" ")[2].rpartition(":")
            return Path(path), f"{name}.__init__"
        full_name = self._import(node)
        if full_name is not None:
            return self._program.sources.find(self._path, full_name) if self._program is not None else None
        if isinstance(node, cst.Attribute):
            owner = self.kind(node.value) or ""
            path, _, name = owner.partition(" ")[2].rpartition(":")
            return (Path(path), f"{name}.{node.attr.value}") if owner.startswith("object ") else None
        return (self._path, node.value) if isinstance(node, cst.Name) and node.value in self.functions else None

    def _outside(self, full_name: str) -> str | None:
        """What a name is that another module of the program defines."""
        if self._program is None or full_name.split(".")[0] in names.PACKAGES:
            return None
        return self._program.kind(self._path, full_name)

    def _kind_of_name(self, node: cst.Name) -> str | None:
        scope = self._scopes.get(node)
        if scope is None:
            return None
        return self._kind_of_assignments(scope[node.value], node.value)  # type: ignore[index]  # scopes are typed loosely

    def _kind_of_assignments(self, assignments: Iterable[BaseAssignment], name: str) -> str | None:
        kinds: set[str | None] = set()
        for assignment in assignments:
            if isinstance(assignment, ImportAssignment):
                kinds |= {self._outside(found.name) for found in assignment.get_qualified_names_for(name)}
            else:
                kinds.add(self._kinds.get(assignment.node) if isinstance(assignment, Assignment) else None)
        return _only(kinds)

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
                return self._low_level
            if full_name in names.PROCESS_PARAMETERS:
                return "process"
            if full_name in names.TEMPLATE_PARSERS:
                return "uri template"
            if full_name.endswith(".get_context"):
                return "context"
            if full_name in names.MEDIA:
                return "media"
            if full_name in names.APPS:
                return "apps"
            if full_name in names.PREFAB_APPS:
                return "prefab apps"
            if full_name in names.CALLER or full_name in names.ACCESS_TOKENS:
                return "access token"
            if is_auth(full_name):
                return "auth proxy" if is_login(full_name) else "auth"
            owner, _, member = full_name.rpartition(".")
            if owner in names.SERVERS and member in ("as_proxy", "from_openapi", "from_fastapi"):
                return "server"
        called = self.kind(node.func) or ""
        if called.startswith("gives "):
            return called.removeprefix("gives ")
        if called.startswith("class "):
            return "server"
        if called.startswith("type "):
            return "object " + called.removeprefix("type ")
        if isinstance(node.func, cst.Name) and node.func.value == "list" and len(node.args) == 1:
            return self.kind(node.args[0].value)
        if isinstance(node.func, cst.Name) and node.func.value == "next" and node.args:
            generator = node.args[0].value  # `next(tool for tool in tools if …)`
            return self.kind(generator.elt) if isinstance(generator, cst.GeneratorExp) else None
        if isinstance(node.func, cst.Attribute):
            return _GIVES.get((self.kind(node.func.value) or "", node.func.attr.value))
        return None

    def kind_of_annotation(self, node: cst.BaseExpression | None) -> str | None:
        """Return what a variable with this annotation is."""
        if isinstance(node, cst.BinaryOperation):  # `Context | None`
            return self.kind_of_annotation(node.left) or self.kind_of_annotation(node.right)
        if isinstance(node, cst.Subscript):
            if (dotted(node.value) or "").rpartition(".")[2] in ("Optional", "Annotated"):
                inner = node.slice[0].slice
                return self.kind_of_annotation(inner.value) if isinstance(inner, cst.Index) else None
            return self.kind_of_annotation(node.value)
        if isinstance(node, cst.SimpleString):
            return self._kind_of_text(str(node.evaluated_value))
        if not isinstance(node, cst.Name | cst.Attribute):
            return None
        return self._instance(self.imported(node), self.kind(node))

    def _kind_of_text(self, text: str) -> str | None:
        """What a variable is whose annotation is a quoted name."""
        first, _, rest = text.removesuffix("| None").strip().partition(".")
        if self._globals is None or not first.isidentifier():
            return None
        for assignment in self._globals[first]:
            if isinstance(assignment, ImportAssignment):
                for found in assignment.get_qualified_names_for(first):
                    full_name = f"{found.name}.{rest}" if rest else found.name
                    return self._instance(full_name, self._outside(full_name))
        return self._instance(None, self.member(text))

    def _instance(self, full_name: str | None, kind: str | None) -> str | None:
        """What an instance of a class is: one of another library by its full name, or one of the program by its kind."""
        if full_name in names.CONTEXTS:
            return "context"
        if full_name in names.ACCESS_TOKENS:
            return "access token"
        if is_auth(full_name):
            return "auth proxy" if is_login(full_name) else "auth"
        if full_name in names.SERVERS:
            return "server"
        if full_name in names.LOW_LEVEL:
            return self._low_level
        if full_name in names.RAISING_CLIENTS:
            return "client"
        if full_name in names.SESSIONS:
            return "session"
        if kind is not None and kind.startswith("class "):
            return "server"
        return "object " + kind.removeprefix("type ") if kind is not None and kind.startswith("type ") else None

    def _bind(self, target: cst.CSTNode, kind: str | None) -> None:
        """Note what a target of an assignment is."""
        if isinstance(target, cst.Name | cst.Param | cst.FunctionDef | cst.ClassDef):
            if kind is not None:
                self._kinds[target] = kind
        elif isinstance(target, cst.List | cst.Tuple) and kind == "own contents":
            for element in target.elements:
                self._bind(element.value, "own content")
        elif isinstance(target, cst.Attribute):
            owner = self.kind(target.value) or ""
            text = owner.partition(" ")[2] if owner.startswith(("object ", "type ")) else dotted(target.value)
            if text is not None:
                self._bound.setdefault((text, target.attr.value), set()).add(kind or "?")

    def _bind_all(self, node: cst.CSTNode) -> None:
        """Note what the targets of a node are."""
        if isinstance(node, cst.ClassDef):
            self._bind_class(node)
        elif isinstance(node, cst.FunctionDef):
            self._bind_function(node)
        elif isinstance(node, cst.Assign):
            kind = _NOTHING if m.matches(node.value, m.Name("None")) else self.kind(node.value)
            for target in node.targets:
                self._bind(target.target, kind)
        elif isinstance(node, cst.AnnAssign):
            self._bind(node.target, self.kind_of_annotation(node.annotation.annotation) or self.kind(node.value))
        elif isinstance(node, cst.NamedExpr):
            self._bind(node.target, self.kind(node.value))
        elif isinstance(node, cst.WithItem) and node.asname is not None:
            self._bind(node.asname.name, self.kind(node.item))
        elif isinstance(node, cst.For | cst.CompFor):
            self._bind(node.target, _MEMBERS.get(self.kind(node.iter) or ""))

    def _bind_class(self, node: cst.ClassDef) -> None:
        """The first parameter of methods is an instance."""
        base, name = self.server_base(node), node.name.value
        own = {function.name.value for function in node.body.body if isinstance(function, cst.FunctionDef)}
        identity = f"{self._path}:{name}"
        if base is not None:
            self._bind(node, f"class with __init__ {base}" if "__init__" in own else f"class {base}")
        else:
            self._bind(node, f"type {identity}")
            if is_verifier_class(node, self.imported):
                self.verifiers.add(name)
            kinds = [self.kind(argument.value) or "" for argument in node.bases]
            self._bases[name] = [kind.partition(" ")[2] for kind in kinds if kind.startswith("type ")]
        for member in node.body.body:
            if isinstance(member, cst.FunctionDef) and member.params.params:
                first = member.params.params[0]
                decorators = {(dotted(decorator.decorator) or "") for decorator in member.decorators}
                if first.annotation is None and not decorators & {"staticmethod", "classmethod"}:
                    self._bind(first, "server" if base is not None else f"object {identity}")
            elif isinstance(member, cst.SimpleStatementLine):
                for part in member.body:
                    targets = [target.target for target in part.targets] if isinstance(part, cst.Assign) else []
                    for target in targets:
                        if isinstance(target, cst.Name):
                            kind = self._kinds.get(target)
                            self._bound.setdefault((identity, target.value), set()).add(kind or "?")

    def _bind_function(self, node: cst.FunctionDef) -> None:
        """What a function returns, and what its parameters are."""
        qualified, returned = self._collector.functions_by_node[node]
        kind = self.kind_of_annotation(node.returns.annotation) if node.returns is not None else None
        if kind is None:
            kind = _only({self.kind(value) for value in returned})
        decorators = " ".join(dotted(part) or "" for found in node.decorators for part in _called(found.decorator))
        if "fixture" in decorators:
            kind = kind or _only({self.kind(value) for value in self._collector.yielded.get(node, ())})
        owner, _, name = qualified.rpartition(".")
        given = self._program.given.get((self._path, qualified), {}) if self._program is not None else {}
        parameters = node.params
        for parameter in (*parameters.posonly_params, *parameters.params, *parameters.kwonly_params):
            if parameter.annotation is not None:
                self._bind(parameter, self.kind_of_annotation(parameter.annotation.annotation))
            else:
                called_with = _only(set(given.get(parameter.name.value, ())))
                self._bind(parameter, called_with or self._fixtures.get(parameter.name.value))
        if kind is None or kind == _NOTHING or kind.startswith("gives "):
            if owner:
                self._bound.setdefault((f"{self._path}:{owner}", name), set()).add("?")
            return
        is_property = "property" in decorators
        if "fixture" in decorators:
            self._fixtures[name] = kind
        if owner:
            made = kind if is_property else f"gives {kind}"
            self._bound.setdefault((f"{self._path}:{owner}", name), set()).add(made)
        else:
            self._bind(node, f"gives {kind}")


class Program:
    """The modules that are migrated together, and what passes between them: imports, and arguments of calls.

    Args:
        texts: The source of each file. Files that can't be parsed are left out.
        foreign: Says whether a source imports one of the foreign packages; others are read if they get something from one.
    """

    def __init__(self, texts: Mapping[Path, str], foreign: Callable[[str], object]) -> None:
        self.sources = Sources(texts)
        self.wrappers: dict[Path, MetadataWrapper] = {}
        self.errors: dict[Path, cst.ParserSyntaxError] = {}
        #: For each function of a file: the kinds of what its parameters are called with.
        self.given: dict[tuple[Path, str], dict[str, set[str]]] = {}
        self._modules: dict[Path, Bindings] = {}
        self._asked: set[tuple[Path, str]] = set()
        for path, text in texts.items():
            if foreign(text):
                self.module(path)
        known: Any = None
        for _ in range(6):  # a server may be passed on several times
            for bindings in list(self._modules.values()):
                bindings.bind()
                bindings.pass_arguments()
            self._read_importers()
            seen = [module.counts() for module in self._modules.values()], sum(map(len, self.given.values()))
            if seen == known:
                break
            known = seen

    def module(self, path: Path) -> Bindings | None:
        """Return a module by its file; None if it can't be parsed."""
        if path not in self._modules and path in self.sources.texts and path not in self.errors:
            try:
                module = cst.parse_module(self.sources.texts[path])
            except cst.ParserSyntaxError as exc:
                self.errors[path] = exc
                return None
            self.wrappers[path] = MetadataWrapper(module, unsafe_skip_copy=True)
            self._modules[path] = Bindings(self.wrappers[path], program=self, path=path)
        return self._modules.get(path)

    @cached_property
    def own_members(self) -> frozenset[str]:
        """The names of methods and attributes of all classes."""
        return frozenset[str]().union(*(module.defined_members for module in self._modules.values()))

    @cached_property
    def with_duplicates(self) -> set[Path]:
        """The files that register two functions with one name at one server, and those that belong to them."""
        twice = {path for path, module in self._modules.items() if module.registers_twice}
        return self.sources.connected(twice, self._modules)

    def kind(self, path: Path, full_name: str) -> str | None:
        """Return what a name is that a file imports from another one of the program."""
        found = self.sources.find(path, full_name)
        if found is None or not found[1] or found in self._asked:
            return None
        self._asked.add(found)  # modules may import each other
        try:
            module = self._modules.get(found[0])
            return module.member(found[1]) if module is not None else None
        finally:
            self._asked.discard(found)

    def give(self, path: Path, name: str, arguments: Sequence[tuple[cst.Arg, str | None]]) -> None:
        """Note what a function is called with, by its name or that of its class."""
        module = self.module(path)
        if module is None:
            return
        function = module.functions.get(name) or module.functions.get(f"{name}.__init__")
        if function is None:
            return
        qualified = name if name in module.functions else f"{name}.__init__"
        parameters = [*function.params.posonly_params, *function.params.params]
        positional = iter(parameters[1:] if "." in qualified else parameters)
        kinds = self.given.setdefault((path, qualified), {})
        for arg, kind in arguments:
            parameter = None if arg.star or arg.keyword is not None else next(positional, None)
            word = arg.keyword.value if arg.keyword is not None else parameter.name.value if parameter else None
            if word is not None and kind is not None and (kind in _PASSED or kind.startswith("object ")):
                kinds.setdefault(word, set()).add(kind)

    def _read_importers(self) -> None:
        """Read the files that import something which has a kind."""
        for path in [path for path in self.sources.texts if path not in self._modules and path not in self.errors]:
            for imported in self.sources.imported_by(path):
                module = self._modules.get(imported)
                words = set(re.findall(r"\w+", self.sources.texts[path])) if module is not None else set()
                if module is not None and words & set(module.members()):
                    self.module(path)
                    break


def _only(kinds: set[Any]) -> str | None:
    """The one kind of several reads; None if there are different ones."""
    left = kinds - {_NOTHING}
    found = next(iter(left)) if len(left) == 1 else None
    return None if found == "?" else found


def _name_given(call: cst.Call | None, *, registering: bool = False) -> str | None:
    """The name in `tool("name")`, `tool(name="name")` or `tool(function, name="name")`."""
    for index, arg in enumerate(call.args if call is not None else ()):
        is_name = arg.keyword.value == "name" if arg.keyword is not None else index == 0 and not registering
        if is_name and isinstance(arg.value, cst.SimpleString):
            return str(arg.value.evaluated_value)
    return None


def _called(node: cst.BaseExpression) -> Iterable[cst.BaseExpression]:
    return [node.func] if isinstance(node, cst.Call) else [node]


class _Collector(cst.CSTVisitor):
    """Collects what binds names: classes, functions, assignments, `with` and loops, in the order of the source."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[cst.CSTNode] = []
        self.calls: list[cst.Call] = []
        self.functions: dict[str, cst.FunctionDef] = {}
        #: Each function with its name, which has that of its class in front, and what it returns.
        self.functions_by_node: dict[cst.FunctionDef, tuple[str, list[cst.BaseExpression]]] = {}
        #: What generator functions yield.
        self.yielded: dict[cst.FunctionDef, list[cst.BaseExpression]] = {}
        self._around: list[cst.ClassDef | cst.FunctionDef | cst.Lambda] = []

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self.nodes.append(node)
        self._around.append(node)

    def leave_ClassDef(self, original_node: cst.ClassDef) -> None:
        self._around.pop()

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        outer = self._around[-1] if self._around else None
        name = f"{outer.name.value}.{node.name.value}" if isinstance(outer, cst.ClassDef) else node.name.value
        self.functions.setdefault(name, node)
        self.functions_by_node[node] = (name, [])
        self.nodes.append(node)
        self._around.append(node)

    def leave_FunctionDef(self, original_node: cst.FunctionDef) -> None:
        self._around.pop()

    def visit_Lambda(self, node: cst.Lambda) -> None:
        self._around.append(node)

    def leave_Lambda(self, original_node: cst.Lambda) -> None:
        self._around.pop()

    def visit_Return(self, node: cst.Return) -> None:
        inner = self._around[-1] if self._around else None
        if isinstance(inner, cst.FunctionDef) and node.value is not None:
            self.functions_by_node[inner][1].append(node.value)

    def visit_Yield(self, node: cst.Yield) -> None:
        inner = self._around[-1] if self._around else None
        if isinstance(inner, cst.FunctionDef) and isinstance(node.value, cst.BaseExpression):
            self.yielded.setdefault(inner, []).append(node.value)

    def visit_Call(self, node: cst.Call) -> None:
        self.calls.append(node)

    def visit_Assign(self, node: cst.Assign) -> None:
        self.nodes.append(node)

    def visit_AnnAssign(self, node: cst.AnnAssign) -> None:
        self.nodes.append(node)

    def visit_NamedExpr(self, node: cst.NamedExpr) -> None:
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
