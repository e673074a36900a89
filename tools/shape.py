"""Rules of the code's structure, and its size: `python -m tools.shape`, with `-v` the places that each rule finds.

`tests/test_shape.py` holds the code to the rules; the size is only reported. It reads syntax trees; for docstrings it also
imports the public modules, because these decide what is public.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.source import PACKAGE, ROOT, Module, bare_strings, inner_imports, read_package
from tools.public_api import is_ours, public_names

ERAS = "gemel.protocol.eras"
Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Rule(NamedTuple):
    """What breaks the rule, in how many places it is allowed, and how to find the places."""

    title: str
    allowed: int
    find: Callable[[Sequence[Module]], Iterable[str]]


# --- Decisions by era --------------------------------------------------------------------------------------------------

#: Strings that name an era.
ERA_STRINGS = frozenset({"2025", "2026", "handshake", "stateless"})
#: A name of a value, class or set that is one era, several, or the revisions of one.
ERA_NAME = re.compile(r"(?:^|_)eras?$|^(?:HANDSHAKE|STATELESS)(?:_|$)|^(?:Handshake|Stateless)(?:Era)?$")


def era_decisions(modules: Sequence[Module]) -> Iterator[str]:
    """Comparisons with an era, and branches on a boolean property of `Era`, outside of the package of the eras."""
    flags = _era_flags(modules)
    for module in modules:
        if module.name == ERAS or module.name.startswith(f"{ERAS}."):
            continue
        for node in ast.walk(module.tree):
            if _compares_an_era(node):
                place = node.pattern if isinstance(node, ast.match_case) else node
                yield f"{module.at(getattr(place, 'lineno', 1))}: {ast.unparse(place)}"
        for test in _tested(module.tree):
            if (name := _member(test)) in flags:
                yield f"{module.at(test.lineno)}: branches on {name}"


def _compares_an_era(node: ast.AST) -> bool:
    match node:
        case ast.Compare():
            operands = [node.left, *node.comparators]
            return any(map(_is_era, operands)) and not any(map(_is_no_era, operands))
        case ast.Call(func=ast.Name(id="isinstance"), args=[_, classes]):
            return any(_is_era(one) for one in ast.walk(classes))
        case ast.match_case(pattern=pattern):
            return any(isinstance(one, ast.MatchValue) and _is_era(one.value) for one in ast.walk(pattern))
    return False


def _is_era(node: ast.AST) -> bool:
    match node:
        case ast.Constant(value=str(value)):
            return value in ERA_STRINGS
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return ERA_NAME.search(name) is not None
        case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
            return any(map(_is_era, elements))
        case ast.Call(func=ast.Name(id="type"), args=[value]):
            return _is_era(value)
    return False


def _is_no_era(node: ast.AST) -> bool:
    """None, or a word that stands beside eras in an option, such as "auto"."""
    return isinstance(node, ast.Constant) and node.value not in ERA_STRINGS


def _era_flags(modules: Sequence[Module]) -> frozenset[str]:
    """The boolean attributes and properties of the class `Era`, and its methods without arguments that return a bool."""
    flags: set[str] = set()
    for module in modules:
        if not module.name.startswith(ERAS):
            continue
        for cls in (node for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef) and node.name == "Era"):
            for node in cls.body:
                kind: ast.expr | None
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    name, kind = node.target.id, node.annotation
                elif isinstance(node, FUNCTIONS) and len(node.args.args) <= 1 and not node.args.kwonlyargs:
                    name, kind = node.name, node.returns
                else:
                    continue
                if kind is not None and ast.unparse(kind) in ("bool", "ClassVar[bool]"):
                    flags.add(name)
    return frozenset(flags)


def _tested(tree: ast.AST) -> Iterator[ast.expr]:
    """Every expression whose truth decides what runs or what a value is, without `not`, `and` and `or` around it."""
    for node in ast.walk(tree):
        match node:
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) | ast.Assert(test=test):
                yield from _operands(test)
            case ast.comprehension(ifs=tests):
                for test in tests:
                    yield from _operands(test)
            case ast.match_case(guard=ast.expr() as guard):
                yield from _operands(guard)
            case ast.Return(value=ast.BoolOp() | ast.UnaryOp() as value) | ast.Assign(value=ast.BoolOp() as value):
                yield from _operands(value)


def _operands(test: ast.expr) -> Iterator[ast.expr]:
    match test:
        case ast.BoolOp(values=values):
            for value in values:
                yield from _operands(value)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield from _operands(operand)
        case _:
            yield test


def _member(node: ast.expr) -> str:
    """The name of an attribute that is read, or of a method that is called without arguments."""
    if isinstance(node, ast.Call) and not node.args and not node.keywords:
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else ""


# --- Import cycles -----------------------------------------------------------------------------------------------------


def import_cycles(modules: Sequence[Module]) -> Iterator[str]:
    """Groups of modules that import each other, wherever the imports stand: in functions or for type checkers alone too."""
    graph = {name: {found.target for found in imports} for name, imports in inner_imports(modules).items()}
    for group in strong_components(graph):
        yield f"{len(group)} modules import each other: {', '.join(sorted(group))}"


def strong_components(graph: Mapping[str, Iterable[str]]) -> list[set[str]]:
    """The sets of nodes, two or more, in which each is reached from each."""
    reached = {node: _reachable(graph, node) for node in graph}
    groups: list[set[str]] = []
    for node in graph:
        if node in reached[node] and not any(node in group for group in groups):
            groups.append({node, *(other for other in reached[node] if node in reached[other])})
    return groups


def _reachable(graph: Mapping[str, Iterable[str]], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            waiting.extend(graph.get(node, ()))
    return seen


# --- Attributes --------------------------------------------------------------------------------------------------------


class ClassFacts(NamedTuple):
    """What one class statement says about the attributes of its instances."""

    module: Module
    node: ast.ClassDef
    known: frozenset[str]
    read: Mapping[str, int]
    bases: tuple[str, ...]


def foreign_reads(modules: Sequence[Module]) -> Iterator[str]:
    """Classes that read attributes of `self` which neither they nor their bases set or declare."""
    classes = {f"{facts.module.name}.{facts.node.name}": facts for facts in _classes(modules)}
    aliases = {module.name: _imported_names(module) for module in modules}

    def known(facts: ClassFacts) -> set[str] | None:
        """All attributes, or None where anything may be one."""
        names = set(facts.known)
        if "__getattr__" in names:
            return None
        for base in facts.bases:
            head, _, rest = base.partition(".")
            full = aliases[facts.module.name].get(head, f"{facts.module.name}.{head}") + (f".{rest}" if rest else "")
            inherited = known(classes[full]) if full in classes else _attributes_of_foreign(full)
            if inherited is None:
                return None
            names |= inherited
        return names

    for facts in classes.values():
        if (names := known(facts)) is not None and (unset := facts.read.keys() - names):
            yield f"{facts.module.at(facts.node.lineno)}: {facts.node.name} reads {', '.join(sorted(unset))}"


#: What a NamedTuple has for its users.
NAMED_TUPLE = frozenset({"_asdict", "_fields", "_make", "_replace"})


def private_reaches(modules: Sequence[Module]) -> Iterator[str]:
    """Private members of a class of the package that are used in another module, except through `self`, `cls` and `super()`."""
    own: dict[str, set[str]] = defaultdict(set)
    for facts in _classes(modules):
        own[facts.module.name] |= {name for name in facts.known if name.startswith("_") and not name.startswith("__")}
    private = set[str]().union(*own.values()) - NAMED_TUPLE
    for module in modules:
        foreign = private - own[module.name]
        imported = _imported_names(module)
        for node in ast.walk(module.tree):
            match node:
                case ast.Attribute(value=ast.Name(id="self" | "cls") | ast.Call(func=ast.Name(id="super"))):
                    pass
                case ast.Attribute(value=ast.Name(id=holder)) if imported.get(holder) in sys.modules:
                    pass  # a function of a module, such as `os._exit`
                case ast.Attribute(attr=name) if name in foreign:
                    yield f"{module.at(node.lineno)}: {ast.unparse(node)}"


def _classes(modules: Sequence[Module]) -> Iterator[ClassFacts]:
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                bases = tuple(
                    ast.unparse(base.value if isinstance(base, ast.Subscript) else base) for base in node.bases
                )
                known, read = _attributes(node)
                yield ClassFacts(module, node, frozenset(known), read, bases)


def _attributes(cls: ast.ClassDef) -> tuple[set[str], dict[str, int]]:
    """The names that a class sets or declares, and those that its methods read, with a line."""
    fields = bool(cls.decorator_list) or any(
        ast.unparse(base.value if isinstance(base, ast.Subscript) else base) not in ("ABC", "Generic")
        for base in cls.bases
    )
    known = {name for statement in _flattened(cls.body) for name in _bound_names(statement, fields)}
    read: dict[str, int] = {}
    for method in (node for node in _flattened(cls.body) if isinstance(node, FUNCTIONS)):
        for node in _without_classes(method):
            match node:
                case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Load()):
                    read.setdefault(name, node.lineno)
                case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                    known.add(name)
                case ast.Call(args=[ast.Name(id="self"), ast.Constant(value=str(name)), _]):  # setattr and its like
                    known.add(name)
    return known, read


def _flattened(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a class body, also those below an `if` or a `try`."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If | ast.Try):
            for field in ("body", "orelse", "finalbody"):
                yield from _flattened(getattr(statement, field, ()))


def _bound_names(statement: ast.stmt, fields: bool) -> Iterator[str]:
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Assign(targets=targets):
            for target in targets:
                yield from (node.id for node in ast.walk(target) if isinstance(node, ast.Name))
                if isinstance(target, ast.Name) and target.id == "__slots__":
                    yield from (str(one.value) for one in ast.walk(statement.value) if isinstance(one, ast.Constant))
        case ast.AnnAssign(target=ast.Name(id=name)) if fields or statement.value is not None:
            yield name


def _without_classes(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all below it, except what belongs to a class inside."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.ClassDef):
            yield from _without_classes(child)


@cache
def _attributes_of_foreign(name: str) -> set[str] | None:
    """The attributes of a class from elsewhere, None if it is not found."""
    module, _, attribute = name.rpartition(".")
    try:
        value = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError):
        value = getattr(builtins, attribute, None)
    if not isinstance(value, type):
        return set() if attribute in ("Generic", "Protocol") else None
    constructors = (vars(base).get("__init__") for base in value.__mro__)
    set_there = (one.__code__.co_names for one in constructors if inspect.isfunction(one))
    return {*dir(value), *(name for names in set_there for name in names)}


def _imported_names(module: Module) -> dict[str, str]:
    names: dict[str, str] = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
    return names


# --- Names and words ---------------------------------------------------------------------------------------------------


def duplicate_classes(modules: Sequence[Module]) -> Iterator[str]:
    """Names that more than one class has."""
    places: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(module.at(node.lineno))
    for name, found in sorted(places.items()):
        if len(found) > 1:
            yield f"{name}: {', '.join(found)}"


#: How an id of a requirement begins; the number has two digits.
ID_FAMILIES = (
    "APP AUTHC AUTHS AUTHX BASE CACHE CANC COMP CONT DISC ELIC ERR EXT HDR HSSE ICON JSON LHTTP LIFE LOG META "
    "MHTTP MRTR NAME PAGE PING PRM PROG REQM RES ROOT SAMP SEC STATE STDIO SUB TEX TOOL TSK VER"
)
REQUIREMENT_ID = re.compile(rf"(?<![\w-])(?:{'|'.join(ID_FAMILIES.split())})-\d\d(?![\w-])")


def requirement_ids(modules: Sequence[Module]) -> Iterator[str]:
    """Ids of requirements in the source and in the documents; a reader cannot look them up."""
    texts = {module.path: module.text for module in modules}
    if any(path.is_relative_to(ROOT) for path in texts):
        documents = (*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"))
        texts |= {path: path.read_text(encoding="utf-8") for path in documents}
    for path, text in texts.items():
        for number, line in enumerate(text.splitlines(), 1):
            yield from (f"{_relative(path)}:{number}: {found}" for found in REQUIREMENT_ID.findall(line))


# --- Docstrings --------------------------------------------------------------------------------------------------------


def incomplete_docstrings(modules: Sequence[Module]) -> Iterator[str]:
    """Public callables whose docstring is missing or leaves out a parameter or that errors are raised."""
    nodes = _nodes_by_name(modules)
    for path, function, owner in public_callables():
        node = nodes.get((function.__module__, function.__qualname__))
        text = inspect.getdoc(function) or inspect.getdoc(getattr(owner, function.__name__, None)) or ""  # or inherited
        if owner is not None and function.__name__ == "__init__":
            text += "\n" + (owner.__doc__ or "")
        if lacking := list(lacking_sections(text, _parameters(function), raises=node is not None and _raises(node))):
            yield f"{path}: {', '.join(lacking)}"


def public_callables() -> Iterator[tuple[str, Any, type | None]]:
    """Every public function, method and constructor of ours: its path, the function, and its class if it has one."""
    seen: set[tuple[str, str]] = set()
    for path, value, owner in public_names():
        function = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        if isinstance(function, type):
            owner, function = function, vars(function).get("__init__")
            path += ".__init__"
        function = inspect.unwrap(function) if callable(function) else None
        if inspect.isfunction(function) and is_ours(function):
            name = (function.__module__, function.__qualname__)
            generated = function.__code__.co_filename.startswith("<")
            if name not in seen and not generated:
                seen.add(name)
                yield path, function, owner


def _parameters(function: Any) -> list[str]:
    code = function.__code__
    named = list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    rest = len(named)
    for flag in (inspect.CO_VARARGS, inspect.CO_VARKEYWORDS):
        if code.co_flags & flag:
            named.append("*" + code.co_varnames[rest])
            rest += 1
    return [name for name in named if name not in ("self", "cls") and not name.startswith(("_", "*_"))]


#: The name of a parameter in a docstring.
_NAME = r"\*{0,2}`{0,2}\w+`{0,2}"


def lacking_sections(text: str, parameters: Sequence[str], *, raises: bool) -> Iterator[str]:
    """What a docstring lacks."""
    if not text.strip():
        yield "no docstring"
        return
    section = re.search(r"^ *Args:\n((?:[ \t]+.*\n?|\n)*)", text, re.MULTILINE)
    if parameters and section is None:
        yield "no Args:"
    elif section is not None:
        # A parameter that takes any further arguments may be described by their names instead of its own.
        entries = re.findall(rf"^ +((?:{_NAME}, )*{_NAME})(?: \([^)]*\))?:", section[1], re.MULTILINE)
        described = {name.strip("*`") for entry in entries for name in entry.split(", ")}
        if missing := [name for name in parameters if not name.startswith("*") and name not in described]:
            yield f"Args: without {', '.join(missing)}"
    if raises and not re.search(r"^ *Raises:\n", text, re.MULTILINE):
        yield "no Raises:"


def _nodes_by_name(modules: Sequence[Module]) -> dict[tuple[str, str], Function]:
    nodes: dict[tuple[str, str], Function] = {}

    def visit(module: Module, node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                visit(module, child, f"{prefix}{child.name}.")
            elif isinstance(child, FUNCTIONS):
                nodes[module.name, prefix + child.name] = child
            else:
                visit(module, child, prefix)

    for module in modules:
        visit(module, module.tree, "")
    return nodes


def _raises(function: Function) -> bool:
    """Whether its own body raises a new error."""
    inner = (ast.ClassDef, ast.Lambda, *FUNCTIONS)

    def below(node: ast.AST) -> Iterator[ast.AST]:
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, inner):
                yield child
                yield from below(child)

    return any(isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) for node in below(function))


# --- Size --------------------------------------------------------------------------------------------------------------


def code_lines(module: Module) -> int:
    """The lines of a module without blank ones, comments and docstrings."""
    documentation = {
        line for node in bare_strings(module.tree) for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    silent = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type not in silent:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - documentation)


# --- The table ---------------------------------------------------------------------------------------------------------

RULES = {
    "eras": Rule("era comparisons outside of protocol/eras", 5, era_decisions),
    "cycles": Rule("import cycles, imports for type checkers included", 0, import_cycles),
    "attributes": Rule("classes that read attributes which they do not set", 0, foreign_reads),
    "private": Rule("uses of private members of another module's classes", 0, private_reaches),
    "names": Rule("duplicate class names", 5, duplicate_classes),
    "ids": Rule("ids of requirements in src and docs", 0, requirement_ids),
    "docstrings": Rule("public callables with an incomplete docstring", 0, incomplete_docstrings),
}


def _relative(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def main(words: list[str]) -> None:
    """Print what the rules find, and the files and lines of each folder."""
    modules = read_package(PACKAGE)
    for name, rule in RULES.items():
        places = list(rule.find(modules))
        print(f"{name:<11}{len(places):>4} ({rule.allowed} allowed)  {rule.title}")
        if "-v" in words:
            print("".join(f"    {place}\n" for place in places), end="")
    sizes: dict[Path, list[int]] = defaultdict(list)
    for module in modules:
        sizes[module.path.parent].append(code_lines(module))
    print("\n files    lines of code")
    for folder, lines in sorted(sizes.items(), key=lambda item: -len(item[1])):
        print(f"{len(lines):>6,} {sum(lines):>8,}  {_relative(folder)}")
    print(f"{len(modules):>6,} {sum(map(sum, sizes.values())):>8,}  in total")


if __name__ == "__main__":
    main(sys.argv[1:])
