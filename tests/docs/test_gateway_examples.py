"""The gateways of examples/policy do what they say, over Gemel's servers and over those of three other SDKs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.peers import locate, script
from tests.source import ROOT

PEERS = locate()
#: The servers of others: what runs them, and the program.
FOREIGN = {
    "library": (PEERS.peers_python, "library_python.py"),
    "mail": (PEERS.python("fastmcp"), "mail_fastmcp.py"),
    "bank": (PEERS.node, "bank_typescript.mjs"),
}
Run = Callable[[str], list[str]]


@pytest.fixture(params=["gemel", "foreign"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Runs an example over servers of Gemel or of others, and returns what it prints."""
    environment = {**os.environ, "RECEIPTS": str(tmp_path / "receipts.jsonl")}
    if request.param == "foreign":
        if "REQUIRE_PEERS" not in os.environ and not all(path.exists() for path, _ in FOREIGN.values()):
            pytest.skip("the servers of other SDKs aren't installed: `make interop`")
        servers = {name: {"command": str(path), "args": [str(script(file))]} for name, (path, file) in FOREIGN.items()}
        environment["SERVERS"] = str(tmp_path / "mcp.json")
        Path(environment["SERVERS"]).write_text(json.dumps({"mcpServers": servers}))

    def run_example(name: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, f"examples/policy/{name}"],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run_example


def test_scripts_of_a_gateway_in_code_mode_are_under_its_policy(run: Run) -> None:
    pytest.importorskip("pydantic_monty")
    listed, *rest = run("code_mode.py")
    assert listed == "listed: search_tools, query_code, run_code"
    assert rest[:2] == ["query_code:", "true"]
    assert sorted(line.strip() for line in rest if line.startswith("  asked")) == [
        "asked: Allow bank_pay of bank? no",
        "asked: Allow bank_pay of bank? yes",
    ]
    assert rest[rest.index("run_code:") + 1] == "sent to ann@example.com"
    assert sorted(line for line in rest if line.startswith(("- ", "5 receipts"))) == [
        "- bank_pay: ask, declined",
        "- bank_pay: ask, ok",
        "- bank_pay: deny, tool error",
        "- library_search: allow, ok",
        "- mail_send: allow, ok",
        "5 receipts:",
    ]


def test_the_gateway_under_a_policy_allows_denies_and_asks(run: Run) -> None:
    listed, *rest = run("gateway.py")
    assert listed == "listed: library_search, mail_send, bank_pay"
    assert [line.strip() for line in rest if line.startswith("  ")] == [
        "A short history of tea",
        "Unknown tool: library_discard. Did you mean 'library_search'?",
        "sent to ann@example.com, bob@example.com",
        "asked: Allow mail_send of mail? no",
        "The user did not allow mail_send with these arguments.",
        "asked: Allow bank_pay of bank? yes",
        "paid 7 EUR to Ann",
        "asked: Allow bank_pay of bank? no",
        "The user did not allow bank_pay with these arguments.",
        "The policy does not allow bank_pay with these arguments. Don't try it again.",
        "The policy allows bank_pay only with the argument currency.",
    ]
    assert [line for line in rest if line.startswith(("- ", "8 receipts"))] == [
        "8 receipts:",
        "- library_search: allow, ok",
        "- library_discard: deny, error",
        "- mail_send: allow, ok",
        "- mail_send: ask, declined",
        "- bank_pay: ask, ok",
        "- bank_pay: ask, declined",
        "- bank_pay: deny, tool error",
        "- bank_pay: deny, tool error",
    ]
