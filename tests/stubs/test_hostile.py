"""Whatever a server says, its module is a module: it runs, does nothing of its own, is typed, and is formatted."""

from __future__ import annotations

import ast
import subprocess
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from gemel import DefinitionError
from gemel.stubs.module import ServerLists, module_text
from tests.source import ROOT
from tests.stubs.hostile import SERVERS

#: All that a module may call, import, and be made of.
CALLS = {"TypedDict", "UriTemplate", "_without_unset", "expand", "items", "call_tool", "get_prompt", "read_resource"}
MODULES = {"__future__", "typing", "msgspec", "gemel", "gemel.sync", "gemel.client.call_options"}
NEVER = (ast.Raise, ast.With, ast.Lambda, ast.While, ast.For, ast.Try, ast.Delete, ast.JoinedStr, ast.Global)
TOP = (ast.Expr, ast.Import, ast.ImportFrom, ast.ClassDef, ast.Assign, ast.AnnAssign, ast.FunctionDef)


def strange(tree: ast.Module) -> Iterator[str]:
    """What in a module is not what a module consists of."""
    for statement in tree.body:
        text_alone = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not isinstance(statement, TOP) or (isinstance(statement, ast.Expr) and not text_alone):
            yield ast.unparse(statement)
    for node in ast.walk(tree):
        if isinstance(node, NEVER) or not allowed(node):
            yield ast.unparse(node)


def allowed(node: ast.AST) -> bool:
    """Whether a call or an import is one of those that a module has."""
    if isinstance(node, ast.Call):
        return (node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)) in CALLS
    if isinstance(node, ast.Import):
        return [one.name for one in node.names] == ["msgspec"]
    return not isinstance(node, ast.ImportFrom) or node.module in MODULES


def executed(text: str, name: str) -> types.ModuleType:
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(text, name, "exec"), module.__dict__)
    return module


def face_of(module: types.ModuleType) -> type:
    """The class of the server: the last one of a module."""
    own = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == module.__name__]
    return own[-1]


SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large, HealthCheck.large_base_example]
#: A failing example is a module that can be read; making it smaller would take minutes.
_AS_FOUND = (Phase.explicit, Phase.reuse, Phase.generate)


@pytest.mark.timeout(120)  # drawing servers takes long
@settings(max_examples=100, deadline=None, suppress_health_check=SLOW, phases=_AS_FOUND)
@given(SERVERS, st.booleans())
def test_a_hostile_server_puts_no_code_into_its_module(offered: ServerLists, blocking: bool) -> None:
    text = module_text(offered, blocking=blocking)
    tree = ast.parse(text)
    assert list(strange(tree)) == []
    module = executed(text, "hostile")
    try:
        for method in vars(face_of(module)).values():
            if isinstance(method, types.FunctionType):
                found = typing.get_type_hints(method, vars(module)).get("return")
                if method.__name__ != "__init__" and getattr(found, "__module__", "") != "gemel.schema.tools":
                    msgspec.json.Decoder(Any if found is None else found)
    finally:
        del sys.modules["hostile"]


@pytest.mark.long
@pytest.mark.timeout(120)  # without its cache mypy reads all of Gemel and its dependencies first
def test_modules_of_hostile_servers_are_typed_and_formatted(tmp_path: Path) -> None:
    """mypy and the formatter see many of them at once: starting them costs more than reading."""
    pytest.importorskip("mypy")
    ruff = Path(sys.executable).with_name("ruff")
    texts: list[str] = []

    @settings(max_examples=40, deadline=None, suppress_health_check=SLOW, phases=_AS_FOUND, database=None)
    @given(SERVERS, st.booleans())
    def collect(offered: ServerLists, blocking: bool) -> None:
        texts.append(module_text(offered, blocking=blocking))

    collect()
    for number, text in enumerate(texts):
        (tmp_path / f"server_{number}.py").write_text(text, encoding="utf-8")
    if ruff.is_file():
        done = run(str(ruff), "format", "--isolated", "--diff", str(tmp_path))
        assert done.returncode == 0, done.stdout[:4000]
    cache = ("--cache-dir", str(ROOT / ".mypy_cache" / "strict"))
    done = run(sys.executable, "-m", "mypy", "--strict", "--config-file", "", *cache, str(tmp_path))
    assert done.returncode == 0, done.stdout[:4000]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("name", ["class", "a b", "Any", "_x", "", "self"])
def test_a_name_that_can_not_be_a_class_is_refused(name: str) -> None:
    with pytest.raises(DefinitionError, match="can't be the name of the class"):
        module_text(ServerLists(None, None), name=name)
