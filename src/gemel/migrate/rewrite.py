"""The names, calls and parameters of one module, rewritten; what can't be is noted."""

from __future__ import annotations

from typing import TypeVar

import libcst as cst

from gemel.migrate.apps import AppsRewrite
from gemel.migrate.arguments import code_of
from gemel.migrate.bindings import Bindings
from gemel.migrate.client_calls import ClientCalls
from gemel.migrate.context_calls import ContextCalls
from gemel.migrate.counterparts import Counterparts
from gemel.migrate.extension_classes import ExtensionClasses
from gemel.migrate.handler_functions import HandlerFunctions
from gemel.migrate.imported_names import ImportedNames
from gemel.migrate.protocol_objects import ProtocolObjects
from gemel.migrate.registered_items import RegisteredItems
from gemel.migrate.rewrite_state import RewriteState
from gemel.migrate.running import Running
from gemel.migrate.server_objects import ServerObjects
from gemel.migrate.tokens import AccessTokens

_StatementT = TypeVar("_StatementT", cst.Expr, cst.Assign, cst.Return)


class RewritePass(cst.CSTTransformer):
    """The second pass: everything that keeps its shape.

    It goes through the module and asks its parts what becomes of each node; each part knows one subject. The first part that
    returns something decides.

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
        self._running = Running(self.state)
        self._servers = ServerObjects(self.state, self._apps, self._running)

    def visit_Module(self, node: cst.Module) -> None:
        self._apps.scan(node)
        self.state.scan(node)
        self._names.scan(node)
        self._clients.scan(node)
        self._items.scan()
        self._servers.scan()

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        self._running.finish()
        return updated_node

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self._servers.enter_class(node)
        self.state.replaced_members.update(self._extensions.models(node))

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:
        self._servers.leave_class()
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
        """A server that has apps gets them behind it."""
        added = self._apps.added(original_node)
        if added:
            return cst.FlattenSentinel([updated_node, *added])
        return self._names.lines(original_node, updated_node)

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        if original_node in self.state.replaced_members:
            return updated_node
        full_name = self._bindings.imported(original_node)
        if full_name is not None:
            return self._names.imported_attribute(original_node, updated_node, full_name)
        owner = self._bindings.kind(original_node.value)
        for part in (
            self._contexts,
            self._tokens,
            self._clients,
            self._protocol,
            self._running,
            self._servers,
            self._items,
        ):
            changed = part.attribute(original_node, updated_node, owner)
            if changed is not None:
                return changed
        return updated_node

    def visit_Attribute(self, node: cst.Attribute) -> None:
        self._contexts.enter_attribute(node)

    def visit_Call(self, node: cst.Call) -> None:
        self._clients.enter_call(node)
        self._servers.enter_call(node)
        self._contexts.enter_call(node)
        if self._apps.is_added(node):
            self.state.replaced_members.add(node.func)
        sending = self._extensions.sends(node)
        if sending is not None:
            self.state.replaced_members.add(sending)
        self._items.enter_call(node)
        self._running.enter_call(node)
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
            return self._imported_call(original_node, updated_node, full_name)
        for part in (self._contexts, self._items, self._running, self._servers, self._clients, self._protocol):
            changed = part.call(original_node, updated_node)
            if changed is not None:
                return changed
        return updated_node

    def _imported_call(self, original_node: cst.Call, updated_node: cst.Call, full_name: str) -> cst.BaseExpression:
        """A call of a function or class of the other library."""
        for part in (self._servers, self._contexts, self._tokens, self._clients, self._protocol):
            changed = part.imported_call(original_node, updated_node, full_name)
            if changed is not None:
                return changed
        return updated_node

    def leave_ExceptHandler(
        self, original_node: cst.ExceptHandler, updated_node: cst.ExceptHandler
    ) -> cst.ExceptHandler:
        return self._protocol.except_handler(original_node, updated_node)

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
        return self._servers.included(original_node, updated_node)

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
        return _plain(original_node, updated_node)

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign:
        unpacked = self._contexts.unpacked(original_node, updated_node)
        if unpacked is not None:
            return unpacked
        return _plain(original_node, updated_node)

    def leave_Return(self, original_node: cst.Return, updated_node: cst.Return) -> cst.Return:
        asked = self._functions.question(original_node.value, updated_node.value)
        if asked is not None:
            return updated_node.with_changes(value=asked)
        return _plain(original_node, updated_node)

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
        registered = self.state.registered.pop()
        self.state.asynchronous.pop()
        asked = self._functions.leave()
        callback = self._clients.callback(original_node, updated_node)
        if callback is not None:
            return callback
        return self._functions.function(original_node, updated_node, asked, registered=registered)

    def visit_Annotation(self, node: cst.Annotation) -> None:
        self._names.enter_annotation(node)

    def leave_Annotation(self, original_node: cst.Annotation, updated_node: cst.Annotation) -> cst.Annotation:
        authorizing = self._tokens.annotation(original_node, updated_node)
        if authorizing is not None:
            return authorizing
        return self._contexts.annotation(original_node, updated_node)


def _plain(original_node: _StatementT, updated_node: _StatementT) -> _StatementT:
    """A call that is awaited now needs no parentheses where it is the whole value of a statement."""
    if isinstance(original_node.value, cst.Call) and isinstance(updated_node.value, cst.Await):
        return updated_node.with_changes(value=updated_node.value.with_changes(lpar=[], rpar=[]))
    return updated_node


def _catches_declined(node: cst.Try) -> bool:
    return any(handler.type is not None and code_of(handler.type).endswith("Declined") for handler in node.handlers)
