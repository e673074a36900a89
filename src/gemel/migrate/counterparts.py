"""Calls that are replaced as a whole: what authorizes, and providers and transforms that are added to servers."""

from __future__ import annotations

import libcst as cst
import libcst.matchers as m

from gemel.migrate import advice
from gemel.migrate.arguments import in_lines
from gemel.migrate.authorization import Verifiers, auth_counterpart
from gemel.migrate.providers import Counterpart, added_counterpart
from gemel.migrate.registrations import added_object
from gemel.migrate.rewrite_state import RewriteState


class Counterparts:
    """The part of the second pass that is about calls which are replaced as a whole.

    Args:
        state: What the parts of the pass share.
    """

    def __init__(self, state: RewriteState) -> None:
        self._state = state
        self._bindings = state.bindings
        self._found: dict[cst.CSTNode, Counterpart] = {}
        #: The calls in the arguments of those that are replaced.
        self._within: set[cst.CSTNode] = set()

    def find(self, node: cst.Call) -> None:
        """Find what replaces a call, before anything in it is rewritten."""
        found = self._counterpart(node)
        if found is None or any(self._bindings.is_taken(name.name, name) for name in found.imports):
            return
        self._found[node] = found
        self._state.replaced_members.add(node.func)
        self._within.update(m.findall(node, m.Call()))

    def _counterpart(self, node: cst.Call) -> Counterpart | None:
        full_name = self._bindings.imported(node.func)
        if full_name is None:
            added = added_object(self._bindings, node)
            if added is None:
                return None
            method = cst.ensure_type(node.func, cst.Attribute)
            return added_counterpart(method.value, method.attr.value, added.call, added.full_name)
        if node in self._within:
            return None
        authorized = auth_counterpart(node, full_name, Verifiers(self._bindings.imported, self._bindings.verifies))
        if not isinstance(authorized, str):
            return authorized
        reason = f"{authorized}; " if authorized else ""
        self._state.note(node, f"{full_name.rpartition('.')[2]}(…): {reason}{advice.name_advice(full_name)}")
        return None

    def call(self, original_node: cst.Call) -> cst.BaseExpression | None:
        """Return what replaces a call; None if nothing does."""
        found = self._found.get(original_node)
        if found is None:
            return None
        self._state.drop(original_node)
        self._state.imports.update(found.imports)
        if found.note is not None:
            self._state.note(original_node, found.note)
        return in_lines(found.expression, original_node)
