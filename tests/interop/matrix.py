"""The matrix as data: which clients and servers there are, how each is started, and which plan it is for.

Knows command lines; judges nothing.
"""

import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop import plans, stories
from tests.interop.peers import AGENTS, FOREIGN, IMPORTS, OLD_SDKS, REVISIONS, Peers, script
from tests.interop.plans import Plan

HERE = Path(__file__).resolve().parent
GEMEL = [sys.executable, "-m", "gemel"]
ERAS = {"stdio": ("2025", "2026"), "http": ("2025", "2026"), "sse": ("2025",)}
"""The eras that travel by a transport: HTTP+SSE was only ever the handshake era's."""


@dataclass(frozen=True)
class Server:
    """A server of the matrix: its command line per transport, and what is to be done with it in each era.

    In commands and the environment `PORT` stands for the port and `PLACE` for a directory of the cell's own.
    """

    name: str
    commands: dict[str, list[str]]
    plans: Mapping[str, Plan]
    environment: dict[str, str] = field(default_factory=dict)
    has_journal: bool = False
    """Whether it is a fixture: it keeps a journal and knows its pid."""
    path: str = "mcp"
    """Of the endpoint on HTTP."""
    is_ours: bool = False
    """Whether what is under test is the server, whoever its client is."""
    clients: tuple[str, ...] = ()
    """Who is to meet it; everybody by default."""
    revision: str = ""
    """The newest that it knows; that of the era by default."""

    def command(self, transport: str, port: int, place: Path) -> list[str]:
        return [_filled(part, port, place) for part in self.commands[transport]]

    def variables(self, port: int, place: Path) -> dict[str, str]:
        return {name: _filled(value, port, place) for name, value in self.environment.items()}


def _filled(text: str, port: int, place: Path) -> str:
    return str(port) if text == "PORT" else text.replace("PLACE", str(place))


@dataclass(frozen=True)
class Client:
    """A client of the matrix: the command line that walks a plan and prints a report."""

    name: str
    command: list[str]
    transports: tuple[str, ...] = ("stdio", "http", "sse")
    eras: tuple[str, ...] = ("2025", "2026")
    servers: tuple[str, ...] = ()
    """Whom it is to meet; everybody by default."""
    revision: str = ""
    """The newest that it knows; that of the era by default."""
    plan: Plan | None = None
    """What it can do; the server's plan by default."""

    def argv(self, transport: str, era: str, plan: Plan, target: str) -> list[str]:
        items = {name: step.item for name, step in plan.items()}
        options = ["--transport", transport, "--era", era, "--revision", REVISIONS[era], "--plan", json.dumps(items)]
        return [*self.command, *options, "--answers", json.dumps(plans.FORMS), target]

    def holding(self, transport: str, era: str, plan: Plan, target: str, hold: Sequence[str], go: Path) -> list[str]:
        """The command line that stays in the middle of things; the file `go` lets it answer questions."""
        return [*self.argv(transport, era, plan, target), "--hold", ",".join(hold), "--go", str(go)]


def servers(peers: Peers, fixture: Path) -> dict[str, Server]:
    """Every server by name; `gemel` is the one under test and serves the fixture file."""
    python = [str(peers.peers_python), str(FOREIGN / "server_python.py")]
    fastmcp = [str(peers.python("fastmcp")), str(FOREIGN / "server_fastmcp.py")]
    typescript = [str(peers.node), str(script("server_typescript.mjs"))]
    ours = [*GEMEL, "run", str(fixture)]
    everything = [peers.everything[0], "--import", str(script("loopback_only.mjs")), *peers.everything[1:]]
    found = [
        Server(
            "gemel",
            {
                "stdio": ours,
                "http": [*ours, "--http", "--port", "PORT"],
                "sse": [sys.executable, str(fixture), "PORT"],
            },
            plans.GEMEL,
            has_journal=True,
            is_ours=True,
        ),
        Server(
            "python",
            {"stdio": [*python, "stdio"], "http": [*python, "http", "PORT"], "sse": [*python, "sse", "PORT"]},
            plans.PYTHON,
            has_journal=True,
        ),
        Server(
            "typescript",
            {"stdio": [*typescript, "stdio"], "http": [*typescript, "http", "PORT"]},
            plans.TYPESCRIPT,
            has_journal=True,
        ),
        Server(
            "fastmcp",
            {"stdio": [*fastmcp, "stdio"], "http": [*fastmcp, "http", "PORT"]},
            plans.FASTMCP,
            has_journal=True,
        ),
        Server(
            "everything",
            {
                "stdio": [*everything, "stdio"],
                "http": [*everything, "streamableHttp"],
                "sse": [*everything, "sse"],
            },
            plans.EVERYTHING,
            {"PORT": "PORT"},
        ),
        Server("filesystem", {"stdio": [*peers.filesystem, "PLACE"]}, plans.FILESYSTEM),
        Server("memory", {"stdio": peers.memory}, plans.MEMORY, {"MEMORY_FILE_PATH": "PLACE/memory.jsonl"}),
        Server("time", {"stdio": peers.time_server}, plans.TIME),
        Server("fetch", {"stdio": peers.fetch_server}, plans.FETCH),
    ]
    more = [_proxy(everything), *_stories(peers), _reference(peers), *_old_servers(peers)]
    return {server.name: server for server in [*found, *more]}


def _proxy(everything: list[str]) -> Server:
    """The reference server, which speaks the handshake over stdio, behind a proxy, and behind two that turn back.

    It switches updates on for a session, and requests of the stateless era have none: the proxy is told that they are one user's.
    """
    proxy = [*GEMEL, "proxy", shlex.join([*everything, "stdio"]), "--to"]
    return Server(
        "proxy",
        {
            "stdio": [*GEMEL, "proxy", shlex.join([*proxy, "stdio"]), "--to", "stdio"],
            "http": [*proxy, "http", "--port", "PORT", "--single-user"],
        },
        plans.BRIDGE,
        is_ours=True,
        clients=("python", "typescript", "gemel"),
    )


def _stories(peers: Peers) -> list[Server]:
    """The examples of the official Python SDK."""
    found = []
    for name, story in stories.STORIES.items():
        commands = {
            transport: command
            for transport in ("stdio", "http")
            if (command := story.command(str(peers.peers_python), name, transport)) is not None
        }
        imports = os.pathsep.join((IMPORTS, str(peers.examples)))
        found.append(Server(f"sdk-{name}", commands, story.plans, {"PYTHONPATH": imports}, path=story.path))
    return found


def _reference(peers: Peers) -> Server:
    """The official Python SDK's server for the conformance suite."""
    imports = os.pathsep.join((IMPORTS, str(peers.examples / "servers" / "everything-server")))
    command = [str(peers.peers_python), "-m", "mcp_everything_server", "--port", "PORT"]
    return Server("reference", {"http": command}, stories.REFERENCE, {"PYTHONPATH": imports})


def _old_servers(peers: Peers) -> list[Server]:
    """The fixture served by SDKs of the handshake era, for Gemel's client."""
    found = []
    for name, (revision, transports) in OLD_SDKS.items():
        command = [str(peers.python(name)), str(FOREIGN / "server_python_v1.py")]
        commands = {transport: [*command, transport, "PORT"] for transport in transports}
        found.append(Server(name, commands, {"2025": plans.OLD[name]}, clients=("gemel",), revision=revision))
    return found


def _old_clients(peers: Peers) -> list[Client]:
    """SDKs of the handshake era, for Gemel's server."""
    typescript = [str(peers.node), str(script("client_typescript.mjs")), "--sdk", "v1"]
    found = [Client("typescript-1", typescript, eras=("2025",), servers=("gemel",), revision=REVISIONS["2025"])]
    for name, (revision, transports) in OLD_SDKS.items():
        program = "client_fastmcp_v2.py" if name.startswith("fastmcp") else "client_python_v1.py"
        command = [str(peers.python(name)), str(FOREIGN / program)]
        found.append(Client(name, command, transports, eras=("2025",), servers=("gemel",), revision=revision))
    return found


def agents(peers: Peers) -> list[Client]:
    """The MCP clients of agent frameworks, for Gemel's server."""
    commands = {name: [str(peers.python(name)), str(FOREIGN / "client_agents.py"), name] for name in AGENTS}
    commands["ai-sdk"] = [str(peers.node), str(script("client_ai_sdk.mjs"))]
    return [
        Client(name, command, ("stdio", "http"), eras=("2025",), servers=("gemel",), plan=plans.AGENT)
        for name, command in commands.items()
    ]


def clients(peers: Peers) -> dict[str, Client]:
    """Every client by name; `gemel` is the one under test. The slowest first, so that none is left to the end."""
    found = [
        Client("inspector", [sys.executable, "-m", "tests.interop.inspector"], ("stdio", "http")),
        Client("fastmcp", [str(peers.python("fastmcp")), str(FOREIGN / "client_fastmcp.py")]),
        Client("python", [str(peers.peers_python), str(FOREIGN / "client_python.py")]),
        Client("typescript", [str(peers.node), str(script("client_typescript.mjs"))]),
        Client("gemel", [sys.executable, "-m", "tests.interop.client_gemel"]),
    ]
    return {client.name: client for client in [*found, *_old_clients(peers)]}
