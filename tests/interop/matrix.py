"""The matrix as data: which clients and servers there are, how each is started, and the plan that is walked.

Knows command lines and tool names; judges nothing.
"""

import json
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.interop.peers import FOREIGN, VERSIONS, Peers, script

HERE = Path(__file__).resolve().parent
REVISIONS: dict[str, str] = tomllib.loads(VERSIONS.read_text())["revisions"]
HINGE = Path(sys.executable).with_name("hinge")

Plan = dict[str, Any]


@dataclass(frozen=True)
class Server:
    """A server of the matrix: its command line per transport (`PORT` stands for the port) and what it can do."""

    name: str
    commands: dict[str, list[str]]
    plan: Plan
    eras: tuple[str, ...] = ("2025", "2026")
    environment: dict[str, str] = field(default_factory=dict)

    def command(self, transport: str, port: int) -> list[str]:
        return [str(port) if part == "PORT" else part for part in self.commands[transport]]


@dataclass(frozen=True)
class Client:
    """A client of the matrix: the command line that walks a plan and prints a report."""

    name: str
    command: list[str]

    def argv(self, transport: str, era: str, plan: Plan, target: str, hold: bool = False) -> list[str]:
        holding = ["--hold"] if hold else []
        options = ["--transport", transport, "--era", era, "--revision", REVISIONS[era], "--plan", json.dumps(plan)]
        return [*self.command, *options, *holding, target]


CONCURRENT = 20

FIXTURE_PLAN: Plan = {
    "text": ["echo", {"text": "hé ☃ \u2028 \U0001f600\n\"'\\"}],
    "structured": ["weather", {"city": "Oslo"}],
    "error": ["fail", {"reason": "because"}],
    "bad_arguments": ["add", {"a": "x"}],
    "unknown": ["no_such_tool", {}],
    "progress": ["count", {"steps": 5}],
    "logging": ["chatter", {}],
    "large": ["large", {"size": 700_000}],
    "huge": ["large", {"size": 3_000_000}],
    "cancel": ["slow", {"seconds": 30, "key": "cancel"}],
    "limit": ["slow", {"seconds": 30, "key": "limit"}],
    "concurrent": [["add", {"a": number, "b": 1000}] for number in range(CONCURRENT)],
}
"""What the fixture servers offer. The second length is beyond 1 MiB, where some clients cap an SSE event."""

TIME_PLAN: Plan = {
    "text": ["get_current_time", {"timezone": "UTC"}],
    "error": ["get_current_time", {"timezone": "Nowhere/Land"}],
    "bad_arguments": ["convert_time", {"time": 5}],
    "unknown": ["no_such_tool", {}],
    "concurrent": [["get_current_time", {"timezone": "UTC"}] for _ in range(CONCURRENT)],
}

EVERYTHING_PLAN: Plan = {
    "text": ["echo", {"message": "hé ☃"}],
    "structured": ["get-structured-content", {"location": "New York"}],
    "bad_arguments": ["get-sum", {"a": "x"}],
    "unknown": ["no_such_tool", {}],
    "progress": ["trigger-long-running-operation", {"duration": 1, "steps": 5}],
    "cancel": ["trigger-long-running-operation", {"duration": 30, "steps": 2}],
    "limit": ["trigger-long-running-operation", {"duration": 30, "steps": 2}],
    "concurrent": [["get-sum", {"a": number, "b": 1000}] for number in range(CONCURRENT)],
}


def servers(peers: Peers, fixture: Path) -> dict[str, Server]:
    """Every server by name; `hinge` is the one under test and serves the fixture file."""
    python = [str(peers.peers_python), str(FOREIGN / "server_python.py")]
    typescript = [str(peers.node), str(script("server_typescript.mjs"))]
    ours = [str(HINGE), "run", str(fixture)]
    everything = [peers.everything[0], "--import", str(script("loopback_only.mjs")), *peers.everything[1:]]
    found = [
        Server("hinge", {"stdio": ours, "http": [*ours, "--http", "--port", "PORT"]}, FIXTURE_PLAN),
        Server("python", {"stdio": [*python, "stdio"], "http": [*python, "http", "PORT"]}, FIXTURE_PLAN),
        Server("typescript", {"stdio": [*typescript, "stdio"], "http": [*typescript, "http", "PORT"]}, FIXTURE_PLAN),
        Server("time", {"stdio": peers.time_server}, TIME_PLAN),
        Server(
            "everything",
            {"stdio": [*everything, "stdio"], "http": [*everything, "streamableHttp"]},
            EVERYTHING_PLAN,
            ("2025",),
        ),
    ]
    return {server.name: server for server in found}


def clients(peers: Peers) -> dict[str, Client]:
    """Every client by name; `hinge` is the one under test."""
    found = [
        Client("hinge", [sys.executable, "-m", "tests.interop.client_hinge"]),
        Client("python", [str(peers.peers_python), str(FOREIGN / "client_python.py")]),
        Client("fastmcp", [str(peers.fastmcp_python), str(FOREIGN / "client_fastmcp.py")]),
        Client("typescript", [str(peers.node), str(script("client_typescript.mjs"))]),
        Client("inspector", [sys.executable, "-m", "tests.interop.inspector"]),
    ]
    return {client.name: client for client in found}
