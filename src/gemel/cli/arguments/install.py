"""The arguments of the commands that bring a server to hosts: install, uninstall, bundle, registry."""

from __future__ import annotations

from gemel.cli.arguments.command import Command, CommandParser
from gemel.cli.arguments.target import add_code, add_module, add_program


def _install(command: CommandParser) -> None:
    from gemel.client.targets import address_of

    command.add_argument(
        "target",
        metavar="TARGET",
        type=address_of,
        help="FILE.py[:NAME], MODULE[:NAME], a URL, or a command line in quotes",
    )
    add_module(command)
    _add_host(command)
    command.add_argument("--name", help="the name of the server there (default: its own)")
    command.add_argument(
        "--header", action="append", default=[], metavar="NAME:VALUE", help="an HTTP header, with a URL"
    )
    command.add_argument(
        "--always-load",
        action="store_true",
        help="keep its tools out of the search by which some hosts defer tools; for a server in code mode",
    )
    add_code(command, "start the Python file or module in code mode, as gemel run does; with --always-load")
    add_program(command)
    command.epilog = (
        f"{command.epilog} --env NAME alone, and ${{NAME}} in values, refer to the environment of the host."
    )


def _uninstall(command: CommandParser) -> None:
    command.add_argument("name", metavar="NAME", help="the name of the server, or the FILE.py")
    _add_host(command)


def _add_host(command: CommandParser) -> None:
    """Add where a server is installed, and how."""
    from gemel.install.hosts import HOSTS, SHORT_NAMES

    command.add_argument(
        "--host",
        action="append",
        default=[],
        choices=[*HOSTS, *SHORT_NAMES],
        metavar="HOST",
        help=f"{', '.join(HOSTS)}; may be repeated (default: lists those on this machine, and asks)",
    )
    command.add_argument("--project", action="store_true", help="use the host's file in this folder, not the user's")
    command.add_argument("--yes", action="store_true", help="change the file without asking")
    command.add_argument("--force", action="store_true", help="change an entry that gemel did not write, too")


def _bundle(command: CommandParser) -> None:
    _add_own(command)
    command.add_argument("-o", "--output", metavar="FILE", help="the file (default: NAME-VERSION.mcpb)")


def _registry(command: CommandParser) -> None:
    _add_own(command)
    command.add_argument(
        "--name", help="the name in reverse DNS form, such as com.example/weather (default: that of [tool.gemel])"
    )
    command.add_argument(
        "--bundle-url", metavar="URL", help="where the file that `gemel bundle` makes can be downloaded"
    )


def _add_own(command: CommandParser) -> None:
    """Add a server of the user's own, which is loaded and not started."""
    command.add_argument(
        "target", metavar="FILE[:NAME]", help="a Python file or module, and the name of the server in it"
    )


COMMANDS = {
    "install": Command(
        "write a server into the configuration of a host",
        _install,
        (
            "install weather.py --host claude-desktop --env WEATHER_TOKEN",
            "install https://example.com/mcp --host cursor --host vscode --name example",
            'install "npx -y some-server" --host zed --name some --yes',
        ),
        "install",
    ),
    "uninstall": Command("undo an installation", _uninstall, ("uninstall weather --host claude-desktop",), "install"),
    "bundle": Command(
        "make an MCPB bundle, which hosts install with a click",
        _bundle,
        ("bundle weather.py", "bundle package.weather:server -o weather.mcpb"),
        "publish",
    ),
    "registry": Command(
        "print server.json, the entry of a server in the registry",
        _registry,
        ("registry weather.py --name com.example/weather > server.json",),
        "publish",
    ),
}
