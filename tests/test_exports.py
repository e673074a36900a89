"""The public face: each public name is there, documented and known to type checkers; each file says what it knows."""

import ast
import inspect
import subprocess
import sys
from importlib import import_module

import pytest

import gemel
from tests.source import PACKAGE, name_of


def documentation(value: object, name: str) -> str:
    """The docstring that the author of `value` wrote: neither one inherited nor one that a decorator made up."""
    own = vars(value).get("__doc__") if isinstance(value, type) else inspect.getdoc(value)
    return "" if own is None or own.startswith(f"{name}(") else own


def names_for_type_checkers(tree: ast.Module) -> dict[str, str]:
    """Which name `gemel/__init__.py` imports from where under TYPE_CHECKING."""
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    return {
        alias.asname or alias.name: node.module or ""
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def has_a_docstring_of_its_own(value: object) -> bool:
    """Whether documentation is expected: type aliases and constants have none at run time."""
    return inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value)


def test_public_names_resolve_and_are_documented() -> None:
    for name in gemel.__all__:
        value = getattr(gemel, name)
        assert value is getattr(gemel, name), name
        if has_a_docstring_of_its_own(value):
            assert documentation(value, name).strip(), f"gemel.{name} has no docstring"


def test_type_checkers_and_the_interpreter_find_each_name_in_the_same_place() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    assert names_for_type_checkers(tree) == {name: module_of(name) for name in gemel.__all__}


def module_of(name: str) -> str:
    """Where the table in `gemel/__init__.py` says that a public name lives."""
    home: str = gemel._HOME[name]
    assert getattr(import_module(home), name) is getattr(gemel, name)
    return home


def test_the_table_is_in_alphabetical_order() -> None:
    assert list(gemel.__all__) == sorted(gemel.__all__)


def test_completion_knows_the_public_names() -> None:
    assert set(gemel.__all__) < set(dir(gemel))


def test_a_name_that_is_not_there_is_an_ordinary_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'gemel' has no attribute 'Sever'"):
        _ = getattr(gemel, "Sever")  # noqa: B009 (written out, a type checker would refuse it, and rightly)


def test_a_star_import_brings_the_public_names() -> None:
    code = "from gemel import *; import gemel; assert set(gemel.__all__) <= set(globals())"
    subprocess.run([sys.executable, "-I", "-c", code], check=True)


def test_each_file_opens_with_what_it_knows() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    assert files
    opened = {path: ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) for path in files}
    assert [name_of(path) for path, text in opened.items() if not (text or "").strip()] == []
