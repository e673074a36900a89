"""The imports of a module: those that have no use any more go, and those of Gemel come in one line."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import libcst as cst
import libcst.matchers as m

from gemel.migrate import names
from gemel.migrate.arguments import code_of
from gemel.migrate.names import Name

ImportT = TypeVar("ImportT", cst.ImportFrom, cst.Import)


def local_name(alias: cst.ImportAlias) -> str:
    """Return the name that an import binds."""
    if alias.asname is not None:
        return code_of(alias.asname.name)
    return code_of(alias.name).split(".")[0]


def statements_of(module: cst.Module) -> Iterator[cst.ImportFrom | cst.Import]:
    """Yield the imports of the foreign packages."""
    for node in m.findall(module, m.ImportFrom() | m.Import()):
        if isinstance(node, cst.ImportFrom) and not node.relative and node.module is not None:
            if code_of(node.module).split(".")[0] in names.PACKAGES:
                yield node
        elif isinstance(node, cst.Import) and any(
            code_of(alias.name).split(".")[0] in names.PACKAGES for alias in node.names
        ):
            yield node


def remove_imports(module: cst.Module, dropped: set[str]) -> cst.Module:
    """Remove the imports that the rewriting left without a use.

    Args:
        module: The rewritten module.
        dropped: The local names whose uses may have been rewritten.
    """
    uses = _Uses()
    module.visit(uses)
    remover = _Remover(dropped - uses.names)
    return module.visit(remover)


class _Uses(cst.CSTVisitor):
    """The names that a module uses outside of imports, also in strings that are annotations or lists of names."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def visit_Import(self, node: cst.Import) -> bool:
        return False

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        return False

    def visit_Name(self, node: cst.Name) -> None:
        self.names.add(node.value)

    def visit_Attribute_attr(self, node: cst.Attribute) -> None:
        self._before = set(self.names)

    def leave_Attribute_attr(self, node: cst.Attribute) -> None:
        self.names = self._before

    def visit_Arg_keyword(self, node: cst.Arg) -> None:
        self._before_keyword = set(self.names)

    def leave_Arg_keyword(self, node: cst.Arg) -> None:
        self.names = self._before_keyword

    def visit_SimpleString(self, node: cst.SimpleString) -> None:
        if re.fullmatch(r"""["'][\w.\[\], |]+["']""", node.value):
            self.names.update(re.findall(r"\w+", node.value) if " " not in node.value else ())


class _Remover(cst.CSTTransformer):
    def __init__(self, unused: set[str]) -> None:
        super().__init__()
        self._unused = unused

    def leave_ImportFrom(
        self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom
    ) -> cst.ImportFrom | cst.RemovalSentinel:
        if isinstance(updated_node.names, cst.ImportStar):
            return updated_node
        return _without(updated_node, self._unused)

    def leave_Import(self, original_node: cst.Import, updated_node: cst.Import) -> cst.Import | cst.RemovalSentinel:
        return _without(updated_node, self._unused)


def _without(node: ImportT, unused: set[str]) -> ImportT | cst.RemovalSentinel:
    assert not isinstance(node.names, cst.ImportStar)
    kept = [alias for alias in node.names if local_name(alias) not in unused]
    if not kept:
        return cst.RemoveFromParent()
    if len(kept) == len(node.names):
        return node
    kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
    return node.with_changes(names=kept)


def add_imports(module: cst.Module, required: Iterable[Name]) -> cst.Module:
    """Add imports, and write those of one module of Gemel at the top level as one statement.

    Args:
        module: The rewritten module.
        required: The names to import; an empty name imports the module.
    """
    homes: dict[str, dict[str, str]] = {}
    statements = list(module.body)
    for name in sorted(required):
        module_name, imported_name = (name.module, name.name) if name.module else (name.name, "")
        homes.setdefault(module_name, {})[imported_name] = ""
    body: list[cst.BaseStatement | cst.SimpleStatementLine] = []
    place: dict[str, int] = {}
    for statement in statements:
        home = _home(statement)
        if home is None or not (home.startswith("gemel") or home in homes):
            body.append(statement)
            continue
        assert isinstance(statement, cst.SimpleStatementLine)
        imported = statement.body[0]
        assert isinstance(imported, cst.ImportFrom)
        assert not isinstance(imported.names, cst.ImportStar)
        if home in place:
            homes[home] |= {code_of(alias).strip(" ,"): "" for alias in imported.names}
            continue
        place[home] = len(body)
        homes.setdefault(home, {})
        body.append(statement)
    for home, more in homes.items():
        if home in place:
            body[place[home]] = _extended(body[place[home]], more)
    others: set[str | None] = set()
    for home in sorted(set(homes) - set(place), reverse=True):
        at = _first_place(body)
        if not home.startswith("gemel") and home not in sys.stdlib_module_names:
            outside = [statement for statement in body if _home(statement) in others]
            first = next(
                (index for index, statement in enumerate(body) if (_home(statement) or "").startswith("gemel")), at
            )
            first = body.index(outside[0]) if outside else first
            body.insert(first, _statement(home, homes[home]).with_changes(leading_lines=_blank(body[first])))
            if outside:
                body[first + 1] = body[first + 1].with_changes(leading_lines=())
            others.add(home)
            continue
        if home.startswith("gemel."):
            at = next((index + 1 for index, statement in enumerate(body) if _home(statement) == "gemel"), at)
        if home in sys.stdlib_module_names:
            while at < len(body) and _is_standard(body[at]):
                at += 1
            if at < len(body) and (_home(body[at]) or "").startswith("gemel"):
                body[at] = body[at].with_changes(leading_lines=[cst.EmptyLine(indent=False)])
        body.insert(at, _statement(home, homes[home]))
    return module.with_changes(body=body)


def _blank(statement: cst.CSTNode) -> Sequence[cst.EmptyLine]:
    """The lines in front of a statement, if nothing but blank."""
    lines = statement.leading_lines if isinstance(statement, cst.SimpleStatementLine) else ()
    return lines if all(line.comment is None for line in lines) else ()


def add_code(module: cst.Module, codes: Iterable[str]) -> cst.Module:
    """Insert functions and classes behind the imports at the top of a module.

    Args:
        module: The rewritten module.
        codes: The code of each.
    """
    added: list[cst.BaseStatement | cst.SimpleStatementLine] = []
    for code in codes:
        statement = cst.parse_statement(code)
        assert isinstance(statement, cst.FunctionDef | cst.ClassDef)
        added.append(statement.with_changes(leading_lines=[cst.EmptyLine(indent=False)] * 2))
    at = _first_place(list(module.body))
    while at < len(module.body) and m.matches(module.body[at], _IMPORTING):
        at += 1
    body = list(module.body)
    if added and at < len(body) and isinstance(body[at], cst.SimpleStatementLine):
        blank = [cst.EmptyLine(indent=False)]
        lines = list(cst.ensure_type(body[at], cst.SimpleStatementLine).leading_lines)
        body[at] = body[at].with_changes(leading_lines=blank * (2 - len(lines)) + lines)
    return module.with_changes(body=[*body[:at], *added, *body[at:]])


_IMPORTING = m.SimpleStatementLine(body=[m.Import() | m.ImportFrom()])


def _home(statement: cst.CSTNode) -> str | None:
    """The module of a statement that is one `from … import …`."""
    if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1:
        imported = statement.body[0]
        if isinstance(imported, cst.ImportFrom) and imported.module is not None and not imported.relative:
            return None if isinstance(imported.names, cst.ImportStar) else code_of(imported.module)
    return None


def _is_standard(statement: cst.CSTNode) -> bool:
    """Whether a statement imports from the standard library."""
    home = _home(statement)
    if home is None and isinstance(statement, cst.SimpleStatementLine) and isinstance(statement.body[0], cst.Import):
        home = code_of(statement.body[0].names[0].name)
    return home is not None and home.partition(".")[0] in sys.stdlib_module_names


def _extended(statement: cst.CSTNode, more: Iterable[str]) -> cst.SimpleStatementLine:
    assert isinstance(statement, cst.SimpleStatementLine)
    imported = statement.body[0]
    assert isinstance(imported, cst.ImportFrom)
    assert not isinstance(imported.names, cst.ImportStar)
    present = [code_of(alias).strip(" ,\n") for alias in imported.names]
    added = sorted(name for name in more if name and name not in present)
    if not added and len(set(present)) == len(present):
        return statement
    every = sorted({*present, *added})
    aliases = [_alias(text) for text in every]
    return statement.with_changes(body=[imported.with_changes(names=aliases, lpar=None, rpar=None)])


def _alias(text: str) -> cst.ImportAlias:
    parsed = cst.parse_statement(f"from x import {text}")
    assert isinstance(parsed, cst.SimpleStatementLine)
    assert isinstance(parsed.body[0], cst.ImportFrom)
    assert not isinstance(parsed.body[0].names, cst.ImportStar)
    return parsed.body[0].names[0]


def _statement(home: str, imported: Iterable[str]) -> cst.SimpleStatementLine:
    listed = ", ".join(sorted(name for name in imported if name))
    parsed = cst.parse_statement(f"from {home} import {listed}" if listed else f"import {home}")
    assert isinstance(parsed, cst.SimpleStatementLine)
    return parsed


def _first_place(body: list[cst.BaseStatement | cst.SimpleStatementLine]) -> int:
    """The place behind the docstring and the imports from `__future__`."""
    for index, statement in enumerate(body):
        is_text = m.matches(
            statement, m.SimpleStatementLine(body=[m.Expr(value=m.SimpleString() | m.ConcatenatedString())])
        )
        if not is_text and _home(statement) != "__future__":
            return index
    return len(body)
