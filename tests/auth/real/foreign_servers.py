"""The example servers with authorization of the official SDKs, each with an authorization server of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.auth.real.browser import Page
from tests.auth.real.login import Person
from tests.interop.peers import Peers, locate, script
from tests.interop.processes import http_server
from tests.ports import free_port

SERVERS = ("python", "typescript")


class Visitor(Person):
    """Somebody at the login page of the official Python SDK's example, which has a name and a password filled in."""

    def _answer(self, page: Page) -> None:
        page.click("button[type=submit]")


@dataclass(frozen=True, slots=True)
class ForeignServer:
    """A running server.

    Attributes:
        url: Its endpoint.
        tool: A tool that needs no arguments that are not in `arguments`.
        arguments: Its arguments.
        issuer: The authorization server, as the metadata of the server names it.
    """

    url: str
    tool: str
    arguments: dict[str, str]
    issuer: str


def is_installed(sdk: str) -> bool:
    """Tell whether the example of an SDK is there: `python -m tests.interop.peers` brings it."""
    peers = locate()
    return (_python_example(peers) if sdk == "python" else _typescript_example(peers)).exists()


def _python_example(peers: Peers) -> Path:
    return peers.examples / "servers" / "simple-auth"


def _typescript_example(peers: Peers) -> Path:
    return peers.node_modules / "@modelcontextprotocol/sdk/dist/esm/examples/server/simpleStreamableHttp.js"


@contextmanager
def foreign_server(sdk: str, logs: Path) -> Iterator[ForeignServer]:
    """Run the example of an SDK (one of `SERVERS`) for the length of the block, with its logs in a directory."""
    peers = locate()
    port, auth_port = free_port(), free_port()
    issuer = f"http://localhost:{auth_port}"
    with ExitStack() as stack:
        if sdk == "python":
            where = {"PYTHONPATH": str(_python_example(peers))}
            program = [str(peers.peers_python), "-m"]
            auth = [*program, "mcp_simple_auth.auth_server", "--port", str(auth_port)]
            stack.enter_context(http_server(auth, auth_port, logs / "auth.log", where))
            options = ["--port", str(port), "--auth-server", issuer, "--oauth-strict"]
            stack.enter_context(
                http_server([*program, "mcp_simple_auth.server", *options], port, logs / "server.log", where)
            )
            yield ForeignServer(f"http://localhost:{port}/mcp", "get_time", {}, f"{issuer}/")
        else:
            command = [str(peers.node), "--import", str(script("loopback_only.mjs")), str(_typescript_example(peers))]
            ports = {"MCP_PORT": str(port), "MCP_AUTH_PORT": str(auth_port)}
            stack.enter_context(http_server([*command, "--oauth", "--oauth-strict"], port, logs / "server.log", ports))
            yield ForeignServer(f"http://localhost:{port}/mcp", "greet", {"name": "Ada"}, f"{issuer}/")
