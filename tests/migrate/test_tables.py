"""The tables of docs/migration: what they name in Gemel exists, and no exported name of the other libraries is left out."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.interop.peers import install, locate
from tests.migrate.tables import FOLDER, missing_in_gemel, rows

PAGES = ("from-fastmcp.md", "from-official-sdk.md")
#: Each page with the environment that has the library, its packages, and the classes whose members have tables, too.
LIBRARIES = {
    "from-fastmcp.md": ("fastmcp", ["fastmcp"], ["fastmcp:FastMCP", "fastmcp:Context", "fastmcp:Client"]),
    "from-official-sdk.md": (
        "peers",
        ["mcp", "mcp_types"],
        ["mcp.server:MCPServer", "mcp.server.mcpserver:Context", "mcp:Client", "mcp.server:Server"],
    ),
}
REQUIRED = "REQUIRE_PEERS" in os.environ


@pytest.mark.parametrize("page", PAGES)
def test_every_name_of_gemel_exists(page: str) -> None:
    assert [(row.names, code) for row in rows(page) for code in missing_in_gemel(row.gemel)] == []


@pytest.mark.parametrize("page", PAGES)
def test_a_row_says_what_its_names_are_and_what_to_do(page: str) -> None:
    for row in rows(page):
        assert row.names, row
        assert row.gemel or row.text, row
        assert row.state == "missing" or row.gemel, row


@pytest.mark.parametrize("page", PAGES)
def test_no_name_has_two_rows(page: str) -> None:
    counted = Counter((_class_of(row.section), name) for row in rows(page) for name in row.names)
    assert [name for name, count in counted.items() if count > 1] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_exported_name_has_a_row(page: str) -> None:
    group, packages, classes = LIBRARIES[page]
    exported = _exported(group, packages, classes)
    listed = [row for row in rows(page) if "older versions" not in row.section]
    named = {name for row in listed for name in row.names if not _class_of(row.section) and "." not in name}
    whole = {name for row in listed for name in row.names if "." in name}
    known, left = set[str](), []
    for module, content in exported["modules"].items():
        covered = any(module == name or module.startswith(f"{name}.") for name in whole)
        if content is None:
            left += [] if covered else [module]
            continue
        known |= {*content["names"], module}
        if not covered or content["all"]:
            left += [f"{module}.{name}" for name in content["names"] if name not in named]
    assert left == []
    assert named - known == set()
    assert {name for name in whole if not any(module.startswith(name) for module in exported["modules"])} == set()
    for kind, members in exported["members"].items():
        rows_of_kind = {name for row in listed if _class_of(row.section) == kind for name in row.names}
        assert rows_of_kind == set(members), kind


def test_a_name_that_gemel_lacks_is_found() -> None:
    assert list(missing_in_gemel("`Server.tool` and `Server.gone`, `Client(on_elicit=…)`")) == ["Server.gone"]
    assert list(missing_in_gemel("`server.tool(timeout=…, never=…)`")) == ["server.tool(timeout=…, never=…): never"]
    assert list(missing_in_gemel("`gemel run` and `gemel dance`")) == ["gemel dance"]


def _class_of(section: str) -> str:
    found = re.match(r"Members of `(\w+)`", section)
    return found[1] if found else ""


def _exported(group: str, packages: list[str], classes: list[str]) -> Any:
    if REQUIRED:
        install(frozenset({group}))
    python = locate().python(group)
    if not python.exists():
        pytest.skip(f"{group} isn't installed: `make interop`")
    command = [str(python), str(Path(__file__).with_name("exported.py")), *packages, "--", *classes]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
