"""Every environment variable that the source reads is on the page of settings."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from gemel.transports.stream.subprocess import INHERITED
from tests.source import ROOT

PAGE = ROOT / "docs" / "reference" / "settings.md"
SOURCE = ROOT / "src" / "gemel"
#: A name with an underscore in a string is a variable, in a module that reads the environment.
_NAME = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
#: The name of a status in spans.
_OTHERS = {"STATUS_CODE_ERROR"}


def test_every_environment_variable_is_on_the_page_of_settings() -> None:
    page = PAGE.read_text(encoding="utf-8")
    read = {name: path for path in SOURCE.rglob("*.py") for name in variables(path)}
    assert len(read) > 30
    missing = {name: str(path) for name, path in read.items() if f"`{name}`" not in page}
    assert not missing


def test_the_variables_that_children_inherit_are_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert not [name for name in INHERITED if f"`{name}`" not in page]


def test_every_extra_is_on_the_page() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    section = PAGE.read_text(encoding="utf-8").partition("\n## Extras\n")[2].partition("\n## ")[0]
    cells = [row.split(" | ")[0] for row in section.splitlines() if row.startswith("| `")]
    assert sorted(name for cell in cells for name in re.findall(r"`([^`]+)`", cell)) == sorted(
        project["optional-dependencies"]
    )


def test_a_variable_is_found(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        '"""About NO_SUCH_VARIABLE."""\nimport os\nTABLE = "A_B C_D"\n'
        'os.environ["PAGER"], os.environ.get("EDITOR", "ED_IT"), os.getenv("SHELL")\n'
    )
    assert set(variables(module)) == {"A_B", "C_D", "ED_IT", "PAGER", "EDITOR", "SHELL"}
    module.write_text('TABLE = "A_B"\n')
    assert set(variables(module)) == set()


def variables(path: Path) -> Iterator[str]:
    """The names of variables in a module that reads the environment."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if not any(_is_environment(node) for node in ast.walk(tree)):
        return
    said = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in said:
            yield from (word for word in node.value.split() if _NAME.fullmatch(word) and word not in _OTHERS)
        if isinstance(node, ast.Subscript) and _is_environment(node.value):
            yield from _literal(node.slice)
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and (_is_environment(node.func.value) or _is_environment(node.func))
        ):
            yield from _literal(node.args[0] if node.args else None)


def _is_environment(node: ast.AST) -> bool:
    """Whether it is `os.environ`, `environ` or `os.getenv`."""
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name in ("environ", "getenv")


def _literal(node: ast.expr | None) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
