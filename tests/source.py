"""Python source as text and syntax trees, and the graph of its imports: what the tests on the code's shape read.

Knows the project's directories and Python's grammar; it imports nothing of what it reads.
"""

import ast
import functools
import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "gemel"


@dataclass(frozen=True)
class Module:
    """One file: its dotted name, where it lies, what it says."""

    name: str
    path: Path
    text: str
    tree: ast.Module

    @property
    def package(self) -> str:
        """The dotted name that relative imports in this file start from."""
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]

    def at(self, line: int) -> str:
        """`file:line`, as editors and terminals make it a link."""
        path = self.path.relative_to(ROOT) if self.path.is_relative_to(ROOT) else self.path
        return f"{path}:{line}"


@dataclass(frozen=True)
class Import:
    """One module that another names, in which line, and whether only type checkers follow it there."""

    target: str
    line: int
    type_only: bool = False


def read_package(directory: Path = PACKAGE) -> list[Module]:
    """Every module below `directory`, which is itself the top package, in the order of their paths."""
    return list(_ours()) if directory == PACKAGE else _read_all(directory)


@functools.cache
def _ours() -> list[Module]:
    """Read once, for all tests on the code's shape."""
    return _read_all(PACKAGE)


def _read_all(directory: Path) -> list[Module]:
    collects = gc.isenabled()
    gc.disable()  # syntax trees are millions of objects, all of which stay
    try:
        return [_read(path, directory) for path in sorted(directory.rglob("*.py"))]
    finally:
        if collects:
            gc.enable()


def name_of(path: Path, package: Path = PACKAGE) -> str:
    """The dotted name of a file of the package."""
    parts = [package.name, *path.relative_to(package).with_suffix("").parts]
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


def _read(path: Path, package: Path) -> Module:
    text = path.read_text(encoding="utf-8")
    return Module(name_of(path, package), path, text, ast.parse(text, str(path)))


def imports_of(module: Module, known: frozenset[str]) -> Iterator[Import]:
    """Every module that `module` imports, wherever in the file the import stands.

    An import inside a function or under TYPE_CHECKING counts like any other, and so does `import_module("name")`.
    `known` holds the names that are modules: `from a import b` names `a.b` when that is one, and `a` otherwise.
    """
    type_only = _for_type_checkers(module.tree)
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Import | ast.ImportFrom | ast.Call):
            continue
        for target in _targets(node, module, known):
            yield Import(target, getattr(node, "lineno", 1), node in type_only)


def _targets(node: ast.AST, module: Module, known: frozenset[str]) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(names=names):
            origin = _origin(node, module)
            for alias in names:
                inner = f"{origin}.{alias.name}"
                yield inner if inner in known else origin
        case ast.Call(
            func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
            args=[ast.Constant(value=str(name)), *_],
        ):
            yield name


def _for_type_checkers(tree: ast.Module) -> set[ast.AST]:
    """What stands under `if TYPE_CHECKING:`."""
    blocks = (node.body for node in ast.walk(tree) if isinstance(node, ast.If) and _asks_type_checkers(node.test))
    return {inner for block in blocks for statement in block for inner in ast.walk(statement)}


def _asks_type_checkers(test: ast.expr) -> bool:
    match test:
        case ast.Name(id="TYPE_CHECKING") | ast.Attribute(value=ast.Name(id="typing"), attr="TYPE_CHECKING"):
            return True
    return False


def _origin(node: ast.ImportFrom, module: Module) -> str:
    if not node.level:
        return node.module or ""
    base = module.package.split(".")
    base = base[: len(base) - node.level + 1]
    return ".".join([*base, node.module] if node.module else base)


def inner_imports(modules: Sequence[Module]) -> dict[str, list[Import]]:
    """For each module, its imports of the other `modules`."""
    return _inner_imports(tuple(modules))


@functools.lru_cache(maxsize=2)
def _inner_imports(modules: tuple[Module, ...]) -> dict[str, list[Import]]:
    known = frozenset(module.name for module in modules)
    return {
        module.name: [
            found for found in imports_of(module, known) if found.target in known and found.target != module.name
        ]
        for module in modules
    }


def import_cycles(modules: Sequence[Module]) -> list[list[str]]:
    """Cycles of imports that run, each as the names along it; empty when there are none.

    An import inside a function runs, if later. One under TYPE_CHECKING never does: it may point back.
    """
    graph = {
        name: sorted({found.target for found in imports if not found.type_only})
        for name, imports in inner_imports(modules).items()
    }
    cycles: list[list[str]] = []
    done: set[str] = set()

    def visit(name: str, trail: list[str]) -> None:
        if name in trail:
            cycles.append([*trail[trail.index(name) :], name])
        elif name not in done:
            for target in graph[name]:
                visit(target, [*trail, name])
            done.add(name)

    for name in graph:
        visit(name, [])
    return cycles


def bare_strings(tree: ast.Module) -> set[ast.Constant]:
    """The strings that stand as statements: docstrings, of whatever they document."""
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }
