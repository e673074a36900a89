"""The arguments of the command about logins."""

from __future__ import annotations

from gemel.cli.arguments.command import Command, CommandParser
from gemel.cli.arguments.target import add_issuer, add_network


def _auth(command: CommandParser) -> None:
    from gemel.client.targets import address_of

    command.add_argument(
        "action",
        choices=("login", "logout", "status", "token"),
        metavar="ACTION",
        help="login, logout, status (of the login), or token (print the access token)",
    )
    command.add_argument("target", metavar="URL", type=address_of, help="the server: a URL, or CONFIG.json:NAME")
    way = command.add_mutually_exclusive_group()
    way.add_argument("--device", action="store_true", help="log in with a code on another device")
    way.add_argument("--paste", action="store_true", help="log in with any browser, and paste where it ends")
    command.add_argument("--port", type=int, metavar="PORT", help="the port of the redirect URI (default: a free one)")
    command.add_argument("--scope", action="append", default=[], metavar="SCOPE", help="a scope to ask for")
    command.add_argument(
        "--client-id", metavar="ID", help="the client that you registered with the authorization server"
    )
    command.add_argument(
        "--auth-method",
        choices=("client_secret_basic", "client_secret_post"),
        help="how the secret is sent (default: what the authorization server supports)",
    )
    command.add_argument("--client-secret-file", metavar="FILE", help="a file with the secret of this client")
    add_issuer(command)
    add_network(command)
    command.add_argument("--json", action="store_true", help="print the status or token as JSON")


COMMANDS = {
    "auth": Command(
        "log in to a server, log out, show the login",
        _auth,
        (
            "auth login https://example.com/mcp",
            "auth login https://example.com/mcp --device",
            "auth status https://example.com/mcp",
            "auth token https://example.com/mcp",
        ),
        "auth.manage",
    ),
}
