"""The public names of `gemel.auth`: found without importing anything before they are used, and known to type checkers."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from importlib import import_module

import pytest

import gemel.auth
from tests.source import PACKAGE


def test_each_name_is_where_the_table_says_and_has_a_docstring() -> None:
    for name in gemel.auth.__all__:
        value = getattr(gemel.auth, name)
        assert value is getattr(import_module(gemel.auth._HOME[name]), name), name
        assert inspect.getdoc(value), name


def test_type_checkers_find_the_names_of_the_table() -> None:
    tree = ast.parse((PACKAGE / "auth" / "__init__.py").read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    imported = {each.names[0].name: each.module for each in block.body if isinstance(each, ast.ImportFrom)}
    assert imported == gemel.auth._HOME
    assert list(gemel.auth._HOME) == sorted(gemel.auth._HOME)


def test_importing_it_loads_neither_joserfc_nor_anything_else() -> None:
    code = (
        "import sys, gemel.auth; print(*[name for name in sys.modules if name.split('.')[0] in ('joserfc', 'gemel')])"
    )
    printed = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["gemel", "gemel.auth"]


def test_a_server_with_tokens_of_its_own_does_not_load_joserfc() -> None:
    code = "import sys; from gemel.auth import StaticTokens; StaticTokens({'a': 'b'}); print('joserfc' in sys.modules)"
    printed = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed == "False\n"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Jwt'"):
        _ = getattr(gemel.auth, "Jwt")  # noqa: B009
