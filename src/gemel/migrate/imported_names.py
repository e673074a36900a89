"""Imports from the other libraries, and the names that they bind, as those of Gemel."""

from __future__ import annotations

import re
from collections.abc import Sequence

import libcst as cst
import libcst.matchers as m

from gemel.migrate import names
from gemel.migrate.arguments import code_of
from gemel.migrate.names import NAMES, Name
from gemel.migrate.rewrite_state import RewriteState
from gemel.migrate.written import WRITTEN


class ImportedNames:
    """The part of the second pass that is about imports and the names that they bind.

    Args:
        state: What the parts of the pass share.
    """

    def __init__(self, state: RewriteState) -> None:
        self._state = state
        self._bindings = state.bindings
        #: Imported names that have another name in Gemel.
        self._renamed: dict[str, str] = {}
        #: Words in annotations that are strings, and names in all annotations.
        self._quoted: set[str] = set()
        self._annotated: set[cst.CSTNode] = set()

    def scan(self, module: cst.Module) -> None:
        """Find the words in annotations that are strings, before anything is rewritten."""
        for annotation in m.findall(module, m.Annotation(annotation=m.SimpleString())):
            self._quoted.update(re.findall(r"\w+", code_of(annotation.annotation)))  # type: ignore[attr-defined]  # found by its kind

    def enter_import(self, node: cst.ImportFrom) -> None:
        """Note which library and which extension are imported."""
        imported = node.names if not isinstance(node.names, cst.ImportStar) else ()
        state = self._state
        state.has_tasks = state.has_tasks or any(code_of(alias.name) == "TasksExtension" for alias in imported)
        state.fastmcp = state.fastmcp or (node.module is not None and code_of(node.module).startswith("fastmcp"))

    def enter_annotation(self, node: cst.Annotation) -> None:
        """Note the names in an annotation."""
        self._annotated.update(m.findall(node, m.Name()))

    def import_from(
        self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom
    ) -> cst.BaseSmallStatement | cst.FlattenSentinel[cst.BaseSmallStatement] | cst.RemovalSentinel:
        """Return an import from one of the other libraries as imports from Gemel; any other as it is."""
        module = code_of(original_node.module) if original_node.module is not None else ""
        if original_node.relative or module.split(".")[0] not in names.PACKAGES:
            return updated_node
        if isinstance(original_node.names, cst.ImportStar):
            self._state.note(original_node, f"`from {module} import *`: name what is used")
            return updated_node
        ours: dict[str, list[cst.ImportAlias]] = {}
        left: list[cst.ImportAlias] = []
        for alias in original_node.names:
            name = code_of(alias.name)
            new = NAMES.get(f"{module}.{name}")
            if self._writes(f"{module}.{name}", alias):
                self._state.written.append(f"{module}.{name}")
                continue
            if new is None:
                left.append(alias.with_changes(comma=cst.MaybeSentinel.DEFAULT))
                continue
            renamed = self._alias(original_node, alias, name, new)
            if renamed.asname is None and not new.module.startswith("gemel"):
                self._state.imports.add(new)  # the module may import it already
            else:
                ours.setdefault(new.module, []).append(renamed)
        if not ours and len(left) == len(original_node.names):
            return updated_node
        if not ours and not left:
            return cst.RemoveFromParent()
        statements: list[cst.BaseSmallStatement] = [_import_from(home, aliases) for home, aliases in ours.items()]
        if left:
            statements.append(updated_node.with_changes(names=left, lpar=None, rpar=None))
        return cst.FlattenSentinel(statements)

    def lines(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
        """Return imports from several modules, which were one import, on lines of their own; any other line as it is."""
        if len(original_node.body) != 1 or len(updated_node.body) < 2:
            return updated_node
        lines = [
            updated_node.with_changes(body=[statement.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)])
            for statement in updated_node.body
        ]
        lines[1:] = [statement.with_changes(leading_lines=()) for statement in lines[1:]]
        return cst.FlattenSentinel(lines)

    def _writes(self, full_name: str, alias: cst.ImportAlias) -> bool:
        """Whether an imported function or class is written out in the module."""
        if full_name not in WRITTEN or alias.asname is not None:
            return False
        needed = {full_name, *WRITTEN[full_name].needs}
        return not self._state.defined & {name.rpartition(".")[2] for name in needed}

    def _alias(self, node: cst.CSTNode, alias: cst.ImportAlias, old: str, new: Name) -> cst.ImportAlias:
        plain = cst.ImportAlias(cst.Name(new.name))
        if alias.asname is not None:
            return plain.with_changes(asname=None if code_of(alias.asname.name) == new.name else alias.asname)
        if old == new.name:
            return plain
        if self._bindings.is_taken(new.name, new) or old in self._quoted:
            return plain.with_changes(asname=cst.AsName(cst.Name(old)))
        self._renamed[old] = new.name
        return plain

    def name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        """Return an imported name as that of Gemel; any other as it is."""
        full_name = self._bindings.imported(original_node)
        if full_name is None:
            return updated_node
        if full_name in names.MEMBERS:
            return self._member_of_class(original_node, full_name)
        new = NAMES.get(full_name)
        if new is None:
            self._state.dropped.add(original_node.value)
            if full_name in names.INPUT_REQUESTS and original_node in self._annotated:
                self._state.imports.add(Name("InputRequest", "gemel.schema.input_required"))
                return cst.Name("InputRequest", lpar=original_node.lpar, rpar=original_node.rpar)
            if full_name in names.PROMPT_MESSAGES and not self._bindings.is_taken("Message", Name("Message")):
                self._state.imports.add(Name("Message"))
                return cst.Name("Message", lpar=original_node.lpar, rpar=original_node.rpar)
            return updated_node
        if original_node.value in self._renamed and self._renamed[original_node.value] == new.name:
            return updated_node.with_changes(value=new.name)
        return updated_node

    def imported_attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute, full_name: str
    ) -> cst.BaseExpression:
        """Return `types.TextContent` and `fastmcp.FastMCP` by the plain name."""
        if full_name in names.MEMBERS:
            return self._member_of_class(original_node, full_name)
        new = NAMES.get(full_name)
        base = original_node.value
        while isinstance(base, cst.Attribute):
            base = base.value
        if isinstance(base, cst.Name):
            self._state.dropped.add(base.value)
        if new is None:
            return updated_node
        if self._bindings.is_taken(new.name, new):
            self._state.imports.add(Name("", new.module))
            return cst.parse_expression(f"{new.module}.{new.name}")
        self._state.imports.add(new)
        return cst.Name(new.name, lpar=original_node.lpar, rpar=original_node.rpar)

    def _member_of_class(self, node: cst.Name | cst.Attribute, full_name: str) -> cst.Attribute:
        """A name that is a member of a class of Gemel."""
        self._state.drop(node)
        home, name = names.MEMBERS[full_name]
        self._state.imports.add(Name(home))
        return cst.Attribute(cst.Name(home), cst.Name(name), lpar=node.lpar, rpar=node.rpar)


def _import_from(module: str, aliases: Sequence[cst.ImportAlias]) -> cst.ImportFrom:
    parsed = cst.parse_statement(f"from {module} import x")
    assert isinstance(parsed, cst.SimpleStatementLine)
    assert isinstance(parsed.body[0], cst.ImportFrom)
    return parsed.body[0].with_changes(names=list(aliases))
