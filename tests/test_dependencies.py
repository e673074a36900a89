"""What the code imports from elsewhere is what pyproject.toml declares, no less and no more."""

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

from tests.source import PACKAGE, ROOT, Module, imports_of, read_package

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
OURS = frozenset({"gemel", "tests", "tools", "benchmarks"})
#: The packages of modules that are called otherwise, where they need not be installed; "google" is shared by many.
PACKAGE_OF = {
    "agents": "openai-agents",
    "google": "google-adk",
    "llama_index": "llama-index-core",
    "mcp": "openai-agents",
    "pydantic_ai": "pydantic-ai-slim",
    "PIL": "smolagents",
    "pydantic_monty": "pydantic-monty",
}


def distributions(requirements: Iterable[object]) -> set[str]:
    """The names in a list of requirements; `{include-group = …}` is followed."""
    names: set[str] = set()
    for requirement in requirements:
        if isinstance(requirement, dict):
            names |= distributions(PROJECT["dependency-groups"][requirement["include-group"]])
        elif found := re.match(r"[\w.-]+", str(requirement)):
            names.add(normal(found[0]))
    return names


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


RUNTIME = distributions(PROJECT["project"]["dependencies"])
EXTRAS = distributions(one for extra in PROJECT["project"]["optional-dependencies"].values() for one in extra)
TESTS = distributions(PROJECT["dependency-groups"]["test"])


def foreign_imports(modules: Iterable[Module]) -> Iterator[tuple[str, frozenset[str]]]:
    """Where something from elsewhere is imported, other than for types alone, and the packages that may have it."""
    providers = packages_distributions()
    for module in modules:
        for found in imports_of(module, frozenset()):
            top = found.target.split(".")[0]
            if not found.type_only and top not in sys.stdlib_module_names and top not in OURS:
                packages = [PACKAGE_OF[top]] if top in PACKAGE_OF else providers.get(top, [top])
                yield f"{module.at(found.line)}: {top}", frozenset(map(normal, packages))


@pytest.fixture(scope="module")
def gemel_imports() -> list[tuple[str, frozenset[str]]]:
    return list(foreign_imports(read_package()))


def test_all_that_gemel_imports_is_declared(gemel_imports: list[tuple[str, frozenset[str]]]) -> None:
    # pydantic's own other half; who loads the plugin; the library of an original that `gemel migrate` runs, and what that needs
    declared = RUNTIME | EXTRAS | {"pydantic-core", "pytest", "fastmcp", "anyio"}
    assert not [place for place, packages in gemel_imports if not packages & declared]


def test_all_that_is_declared_is_imported(gemel_imports: list[tuple[str, frozenset[str]]]) -> None:
    imported = frozenset[str]().union(*(packages for _, packages in gemel_imports))
    assert (RUNTIME | EXTRAS) - imported == set()


@pytest.mark.timeout(120)  # it reads some 700 files
def test_the_tests_import_what_their_group_declares() -> None:
    # what runs in other environments
    foreign = {
        ROOT / path
        for path in (
            "tests/cluster/clients",
            "tests/interop/foreign",
            "tests/adapters/drivers",
            "tests/adapters/formats",
            "tests/migrate/programs",
        )
    }
    original = ROOT / "tests/migrate/original.py"  # runs in the environments of the peers
    modules = [
        module
        for module in read_package(ROOT / "tests")
        if module.path != original and not foreign.intersection(module.path.parents)
    ]
    # Their make targets install these, where they can be had.
    optional = {"atheris", "granian", "playwright"}
    declared = RUNTIME | EXTRAS | TESTS | optional
    assert not [place for place, packages in foreign_imports(modules) if not packages & declared]


def test_a_missing_declaration_is_found(tmp_path: Path) -> None:
    package = tmp_path / PACKAGE.name
    package.mkdir()
    (package / "surprise.py").write_text("import json\ndef late():\n    from numpy.linalg import norm\n")
    ((place, packages),) = foreign_imports(read_package(package))
    assert "surprise.py:3" in place
    assert packages == {"numpy"}
