"""The layers: who may import whom, what the pure part must not touch, where revision dates stand, what is no name."""

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from gemel.lazy_imports import LAZY_IMPORTS, load
from tests.source import PACKAGE, Module, bare_strings, import_cycles, imports_of, inner_imports, read_package

# Leftmost first; layers on one line don't know each other. Each imports only from lines above its own, and itself.
LAYERS = (
    ("visible",),
    ("errors", "version", "shares", "decisions"),
    ("options", "values"),
    ("jsonrpc",),
    ("schema",),
    ("protocol",),
    ("loops",),
    ("timeouts", "channel", "signals", "standard_streams", "lazy_imports", "local_sockets", "encryption", "user_files"),
    ("lifespan",),
    ("spans",),
    ("telemetry",),
    ("session",),
    ("http1", "backends"),
    ("transports",),
    ("server", "client"),
    ("extensions", "auth", "item_tools", "policies", "receipts"),
    ("blocking",),
    ("sync", "ask_by_page"),
    ("contracts", "doctor", "install"),
    ("proxy", "openapi", "stubs", "testing", "migrate", "adapters"),
    ("code", "dev"),
    ("cli", "pytest_plugin"),
    ("__init__", "__main__"),
)
RANK = {layer: rank for rank, layers in enumerate(LAYERS) for layer in layers}
PURE = ("errors", "values", "jsonrpc", "schema", "protocol")

IMPURE_MODULES = frozenset(
    {
        "anyio",
        "asyncio",
        "concurrent",
        "multiprocessing",
        "select",
        "selectors",
        "signal",
        "socket",
        "ssl",
        "subprocess",
        "threading",
        "time",
        "uvloop",
    }
)
REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
ERA_FILES = ("protocol/eras/handshake.py", "protocol/eras/stateless.py")
REFUSED_FILE_NAMES = frozenset({"common", "helper", "helpers", "lowlevel", "misc", "shared", "util", "utils"})
REFUSED_CLASS_ENDINGS = ("Manager", "Helper", "Handler")

# Each of them costs a user who doesn't need it a good part of the start-up time.
HEAVY = frozenset(
    {"argparse", "httptools", "httpx2", "jsonschema_rs", "opentelemetry", "pydantic", "pyreqwest", "uvicorn", "uvloop"}
)


def layer_of(name: str) -> str:
    """The layer of a module of `gemel` by its dotted name; the package itself is `__init__`."""
    return name.split(".")[1] if "." in name else "__init__"


def layer_violations(modules: Sequence[Module]) -> Iterator[str]:
    by_name = {module.name: module for module in modules}
    for name, imports in inner_imports(modules).items():
        source = layer_of(name)
        if source not in RANK:
            yield f"{by_name[name].at(1)}: {source!r} has no place among the layers; give it one in LAYERS"
            continue
        for found in imports:
            target = layer_of(found.target)
            if target != source and RANK.get(target, -1) >= RANK[source]:
                yield f"{by_name[name].at(found.line)}: {source} imports {found.target}, which isn't to its left"


def purity_violations(modules: Sequence[Module]) -> Iterator[str]:
    for module in modules:
        if layer_of(module.name) not in PURE:
            continue
        for found in imports_of(module, frozenset()):
            if found.target.split(".")[0] in IMPURE_MODULES:
                yield f"{module.at(found.line)}: imports {found.target}"
        for node in ast.walk(module.tree):
            if isinstance(node, ast.AsyncFunctionDef):
                yield f"{module.at(node.lineno)}: async def {node.name}"


def revision_violations(modules: Sequence[Module], package: Path) -> Iterator[str]:
    for module in modules:
        if layer_of(module.name) == "schema" or module.path.relative_to(package).as_posix() in ERA_FILES:
            continue
        documentation = bare_strings(module.tree)
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in documentation:
                yield from (f"{module.at(node.lineno)}: {date}" for date in REVISIONS if date in node.value)


def name_violations(modules: Sequence[Module], package: Path) -> Iterator[str]:
    for module in modules:
        for part in module.path.relative_to(package).with_suffix("").parts:
            if part.strip("_").lower() in REFUSED_FILE_NAMES:
                yield f"{module.at(1)}: {part!r} says nothing about what is inside"
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef) and node.name.endswith(REFUSED_CLASS_ENDINGS):
                yield f"{module.at(node.lineno)}: class {node.name} is named for a role, not for what it is"


@pytest.fixture(scope="module")
def gemel() -> list[Module]:
    modules = read_package()
    assert modules, f"no source below {PACKAGE}"
    return modules


def package_of(directory: Path, files: Mapping[str, str]) -> tuple[list[Module], Path]:
    """A package `gemel` written for one test."""
    package = directory / "gemel"
    for name, text in files.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    return read_package(package), package


def test_imports_point_only_to_the_left(gemel: list[Module]) -> None:
    assert not list(layer_violations(gemel))


def test_http1_imports_nothing_of_mcp(gemel: list[Module]) -> None:
    """An HTTP/1.1 implementation that could stand alone; of Gemel it has errors, Structs, shares and the sockets of a machine."""
    for name, imports in inner_imports(gemel).items():
        if layer_of(name) == "http1":
            assert {layer_of(found.target) for found in imports} <= {
                "http1",
                "errors",
                "structs",
                "loops",
                "local_sockets",
                "shares",
            }, name


def test_no_import_closes_a_cycle(gemel: list[Module]) -> None:
    assert not import_cycles(gemel)


def test_add_ons_are_loaded_through_one_table_only(gemel: list[Module]) -> None:
    """What points from the core to an add-on is listed here; it costs nothing until it is used."""
    assert LAZY_IMPORTS == {
        "client": ("gemel.client.client", "Client"),
        "client_tasks": ("gemel.extensions.tasks.client", "TasksOfClient"),
        "configured_oauth": ("gemel.auth.client.configured", "configured_oauth"),
        "contract_check": ("gemel.contracts.check", "ContractCheck"),
        "gateway": ("gemel.proxy.gateway", "gateway"),
        "oauth": ("gemel.auth.client.oauth", "OAuth"),
        "proxy": ("gemel.proxy.proxy", "proxy"),
        "server_from_openapi": ("gemel.openapi.server", "server_from"),
        "skills": ("gemel.extensions.skills.server", "Skills"),
    }
    for name in LAZY_IMPORTS:
        assert callable(load(name))
    loaded = modules_loaded_by("gemel.server.server")
    assert not {one for one in loaded if layer_of(one) in ("client", "contracts", "proxy", "openapi")}
    assert not {one for one in modules_loaded_by("gemel.client.client") if layer_of(one) == "contracts"}


def test_the_pure_part_knows_no_async_no_clock_and_no_sockets(gemel: list[Module]) -> None:
    assert not list(purity_violations(gemel))


def test_revision_dates_stand_in_the_era_files_and_the_schema_only(gemel: list[Module]) -> None:
    assert not list(revision_violations(gemel, PACKAGE))


def test_files_and_classes_are_named_for_what_they_are(gemel: list[Module]) -> None:
    assert not list(name_violations(gemel, PACKAGE))


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("protocol/eras/detect.py", "from gemel.session import Session"),
        ("protocol/eras/detect.py", "from gemel import session"),
        ("protocol/eras/detect.py", "from ...session import Session"),
        ("protocol/eras/detect.py", "from ... import session"),
        ("protocol/eras/detect.py", "def late():\n    import gemel.session"),
        ("protocol/eras/detect.py", "if TYPE_CHECKING:\n    from gemel.session import Session"),
        ("protocol/eras/detect.py", "import_module('gemel.session')"),
        ("server/features/tools.py", "from gemel.client.calls import call"),
        ("client/calls.py", "from gemel.server.features.tools import tool"),
        ("testing.py", "import gemel.cli"),
        ("errors.py", "from gemel import ToolError"),
        ("surprise.py", "import gemel.errors"),
    ],
)
def test_an_import_to_the_right_is_found_however_it_is_written(tmp_path: Path, path: str, line: str) -> None:
    files = {"__init__.py": "", "errors.py": "", "session.py": "", "cli/__init__.py": "", "protocol/__init__.py": ""}
    files |= {"server/features/tools.py": "", "client/calls.py": "", path: line}
    modules, _ = package_of(tmp_path, files)
    assert len(list(layer_violations(modules))) == 1


def test_imports_to_the_left_and_within_a_layer_are_fine(tmp_path: Path) -> None:
    modules, _ = package_of(
        tmp_path,
        {
            "__init__.py": "from gemel.server.server import Server",
            "errors.py": "import asyncio.tasks as tasks",
            "server/server.py": "from gemel.errors import GemelError\nfrom gemel.server import tools",
            "server/features/tools.py": "from ..errors import GemelError",
        },
    )
    assert not list(layer_violations(modules))
    assert not import_cycles(modules)


def test_a_cycle_is_found_even_when_an_import_waits_in_a_function(tmp_path: Path) -> None:
    modules, _ = package_of(
        tmp_path,
        {
            "server/a.py": "from gemel.server.b import B",
            "server/b.py": "from gemel.server import c",
            "server/c.py": "def late():\n    from .a import A",
        },
    )
    assert import_cycles(modules) == [["gemel.server.a", "gemel.server.b", "gemel.server.c", "gemel.server.a"]]


def test_a_type_may_be_named_backwards_within_a_layer(tmp_path: Path) -> None:
    files = {
        "server/a.py": "import gemel.server.b",
        "server/b.py": "if TYPE_CHECKING:\n    from gemel.server.a import A",
    }
    modules, _ = package_of(tmp_path, files)
    assert not import_cycles(modules)


@pytest.mark.parametrize(
    "text", ["import asyncio", "from time import monotonic", "import ssl as s", "async def f(): ..."]
)
def test_impurity_is_found_in_the_protocol_and_allowed_in_the_session(tmp_path: Path, text: str) -> None:
    modules, _ = package_of(tmp_path, {"protocol/http/sse.py": text, "session.py": text})
    (found,) = purity_violations(modules)
    assert "sse.py" in found


def test_a_revision_date_is_found_in_code_but_may_be_cited_in_documentation(tmp_path: Path) -> None:
    cited = '"""Since 2025-06-18."""\n'
    used = "NEWEST = f'{x} 2026-07-28'\n"
    files = {
        "session.py": cited + used,
        "schema/base.py": used,
        "protocol/eras/handshake.py": used,
        "protocol/http/sse.py": cited,
    }
    (found,) = revision_violations(*package_of(tmp_path, files))
    assert "session.py:2" in found


def test_names_that_say_nothing_are_found(tmp_path: Path) -> None:
    files = {
        "server/_utils.py": "",
        "client/helpers/sse.py": "",
        "session.py": "class SessionManager: ...\nclass Handlers: ...",
    }
    assert len(list(name_violations(*package_of(tmp_path, files)))) == 3


def modules_loaded_by(name: str) -> set[str]:
    """What a fresh interpreter has loaded after `import name` and had not before."""
    code = f"import sys; before = set(sys.modules); import {name}; print(*sys.modules.keys() - before)"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_importing_gemel_imports_nothing_else() -> None:
    assert modules_loaded_by("gemel") == {"gemel"}


@pytest.mark.parametrize(("side", "other"), [("client", "server"), ("server", "client")])
def test_one_side_loads_neither_the_other_side_nor_anything_heavy(side: str, other: str) -> None:
    if not any((PACKAGE / side).glob("*.py")):
        pytest.skip(f"gemel.{side} does not exist yet")
    loaded = modules_loaded_by(f"gemel.{side}")
    assert f"gemel.{side}" in loaded
    unwanted = {name for name in loaded if name.split(".")[0] in HEAVY or f"{name}.".startswith(f"gemel.{other}.")}
    assert not unwanted
