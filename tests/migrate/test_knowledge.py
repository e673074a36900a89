"""What the tables of `gemel.migrate` say of the other libraries is true of an installed version; for `make interop`."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

import gemel
import gemel.auth
from tests.interop.peers import ROOT, install, locate
from tests.migrate.tables import keywords_of
from tests.migrate.test_originals import GROUPS

pytest.importorskip("libcst")
from gemel.migrate import advice, authorization, names  # needs libcst
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
#: Prints the keywords of each public method of the classes in its input, as far as they can be imported.
KEYWORDS = """
import importlib, inspect, json, sys, warnings
warnings.simplefilter("ignore")
found = []
for label, name in json.load(sys.stdin):
    module, _, last = name.rpartition(".")
    try:
        kind = getattr(importlib.import_module(module), last)
    except Exception:
        continue
    own = {name for base in kind.__mro__ if "pydantic" not in base.__module__ for name in vars(base)}
    for method in sorted(own):
        function = getattr(kind, method)
        if not method.startswith("_") and inspect.isroutine(function):
            parameters = list(inspect.signature(function).parameters.values())[1:]
            named = [one.name for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
            found.append((label, method, named))
json.dump(found, sys.stdout)
"""
#: The classes whose methods are called with keywords, and what stands for an object of each in the tables.
CLASSES = [
    ("ctx", "fastmcp.Context"),
    ("ctx", "mcp.server.fastmcp.Context"),
    ("ctx", "mcp.server.mcpserver.Context"),
    ("client", "fastmcp.Client"),
    ("client", "mcp.Client"),
    ("client", "mcp.ClientSession"),
]
#: Methods that are called by another name in Gemel, or noted whatever their arguments are.
OTHERWISE = {"set_logging_level": "set_log_level", "complete": None}
TABLES = {
    "names": [
        *(name for name in names.NAMES if not name.startswith("fastmcp_tasks")),
        *names.PROMPT_MESSAGES,
        *names.SESSIONS,
        *names.URL_TRANSPORTS,
        *names.PROXIES,
    ],
    "authorization": [
        f"fastmcp.server.auth.{module}{name}"
        for name in authorization.CLASSES
        for module in ("", "oidc_proxy.", *(f"providers.{provider}." for provider in authorization.MODULES))
    ],
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
@pytest.mark.parametrize("table", ["names", "authorization"])
def test_each_name_that_is_rewritten_is_one_of_a_module(table: str) -> None:
    missing = missing_everywhere(TABLES[table])  # a name stands in several modules, in each version in others
    known = {name.rpartition(".")[2] for name in set(TABLES[table]) - set(missing)}
    assert {name.rpartition(".")[2] for name in missing} - known == set()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("table", ["members of servers", "members of contexts"])
def test_each_member_is_one_of_a_class(table: str) -> None:
    missing = missing_everywhere(TABLES[table])
    known = {name.rpartition(".")[2] for name in set(TABLES[table]) - set(missing)}
    # Attributes of instances can't be seen at the class.
    of_instances = {name for name in advice.SERVER_MEMBERS if name.startswith("_")} | {"providers", "middleware"}
    assert {name.rpartition(".")[2] for name in missing} - known - of_instances == set()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("group", GROUPS)
def test_each_keyword_of_a_method_is_one_of_gemel_or_has_a_text(group: str) -> None:
    """A call that keeps its name fails when it runs if a keyword isn't known."""
    left, compared = [], 0
    for label, method, keywords in run(group, KEYWORDS, CLASSES):
        ours = getattr({"ctx": gemel.Context, "client": gemel.Client}[label], OTHERWISE.get(method, method) or "", None)
        if ours is None or method in (advice.CONTEXT_MEMBERS if label == "ctx" else advice.CLIENT_MEMBERS):
            continue
        compared += 1
        name = f"{label}.{method}"
        known = (
            keywords_of(ours) | set(advice.RENAMED_KEYWORDS.get(name, {})) | set(advice.KEYWORD_ADVICE.get(name, {}))
        )
        left += [f"{name}({keyword}=…)" for keyword in keywords if keyword not in known]
    assert left == []
    assert compared > 10


def test_each_renamed_keyword_is_one_of_gemel() -> None:
    for name, renamed in advice.RENAMED_KEYWORDS.items():
        label, _, method = name.partition(".")
        assert set(renamed.values()) <= keywords_of(
            getattr({"ctx": gemel.Context, "client": gemel.Client}[label], method)
        )


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
        left = run(group, SCRIPT, left)
    return left


def run(group: str, script: str, given: Any) -> Any:
    """What a script prints for its input, both JSON, in the environment of a group."""
    if REQUIRED:
        install(frozenset({group}))
    python = locate().python(group)
    if not python.exists():
        pytest.skip(f"{group} isn't installed: `make interop`")
    done = subprocess.run(
        [str(python), "-c", script],
        input=json.dumps(given),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
