"""What the tables of `gemel.migrate` say of the other libraries is true of an installed version; for `make interop`."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

import gemel
import gemel.auth
from tests.interop.peers import ROOT, install, locate
from tests.migrate.test_originals import GROUPS

pytest.importorskip("libcst")
from gemel.migrate import advice, names  # needs libcst
from gemel.server.options import ServerOptions  # libcst first

REQUIRED = "REQUIRE_PEERS" in os.environ
#: Prints those of the dotted names in its input that can't be imported.
SCRIPT = """
import importlib, json, sys, warnings
warnings.simplefilter("ignore")
missing = []
for name in json.load(sys.stdin):
    parts, value = name.split("."), None
    for length in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:length]))
        except Exception:
            continue
        for part in parts[length:]:
            value = getattr(value, part, None)
        break
    if value is None:
        missing.append(name)
json.dump(missing, sys.stdout)
"""
TABLES = {
    "names": [*names.NAMES, *names.PROMPT_MESSAGES, *names.SESSIONS, *names.URL_TRANSPORTS, *names.PROXIES],
    "advice": [name for name in advice.NAME_ADVICE if not name.startswith("fastmcp_tasks")],
    "members of servers": [
        f"{server}.{name}"
        for name in advice.SERVER_MEMBERS
        for server in ("fastmcp.FastMCP", "mcp.server.fastmcp.FastMCP", "mcp.server.MCPServer", "mcp.server.Server")
    ],
    "members of contexts": [
        f"{context}.{name}"
        for name in advice.CONTEXT_MEMBERS
        for context in ("fastmcp.Context", "mcp.server.fastmcp.Context", "mcp.server.mcpserver.Context")
    ],
}


@pytest.mark.timeout(300)
def test_each_name_is_one_of_the_other_libraries() -> None:
    assert missing_everywhere(TABLES["advice"]) == []


@pytest.mark.timeout(300)
def test_each_name_that_is_rewritten_is_one_of_a_module() -> None:
    missing = missing_everywhere(TABLES["names"])  # a name stands in several modules, in each version in others
    known = {name.rpartition(".")[2] for name in set(TABLES["names"]) - set(missing)}
    assert {name.rpartition(".")[2] for name in missing} - known == set()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("table", ["members of servers", "members of contexts"])
def test_each_member_is_one_of_a_class(table: str) -> None:
    missing = missing_everywhere(TABLES[table])
    known = {name.rpartition(".")[2] for name in set(TABLES[table]) - set(missing)}
    # Attributes of instances can't be seen at the class.
    of_instances = {name for name in advice.SERVER_MEMBERS if name.startswith("_")} | {"providers", "middleware"}
    assert {name.rpartition(".")[2] for name in missing} - known - of_instances == set()


def test_what_is_written_exists_in_gemel() -> None:
    for option in (*advice.KEPT_OPTIONS, "on_duplicate"):
        assert option in ServerOptions.__annotations__
    for text in (*advice.NAME_ADVICE.values(), *advice.SERVER_OPTIONS.values()):
        for name in ("OAuthProxy", "GitHub", "JWTAuth", "IntrospectionAuth", "TokenAuth", "Google", "Auth0", "EntraID"):
            assert name not in text or hasattr(gemel.auth, name)
    for new in names.NAMES.values():
        assert new.module != "gemel" or hasattr(gemel, new.name), new


def missing_everywhere(wanted: list[str]) -> list[str]:
    """The names that no installed version has."""
    left = wanted
    for group in GROUPS:
        if REQUIRED:
            install(frozenset({group}))
        python = locate().python(group)
        if not python.exists():
            pytest.skip(f"{group} isn't installed: `make interop`")
        done = subprocess.run(
            [str(python), "-c", SCRIPT],
            input=json.dumps(left),
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        left = json.loads(done.stdout)
    return left
