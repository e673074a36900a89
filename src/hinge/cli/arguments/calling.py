"""The arguments of the commands that use a server: list, call, read, prompt."""

from __future__ import annotations

from hinge.cli.arguments.command import Command, CommandParser
from hinge.cli.arguments.target import add_result, add_target


def _list(command: CommandParser) -> None:
    add_target(command)
    command.add_argument("--json", action="store_true", help="print the lists as JSON")


def _call(command: CommandParser) -> None:
    add_target(command)
    command.add_argument("name", metavar="TOOL")
    command.add_argument(
        "arguments",
        nargs="*",
        metavar="KEY=VALUE",
        help="an argument, converted to the type in the schema of the tool; KEY:=JSON for a JSON value, KEY=@FILE to "
        "read a file, A.B=VALUE for a member of an object, the same KEY again for a list",
    )
    add_result(command)


def _read(command: CommandParser) -> None:
    add_target(command)
    command.add_argument("name", metavar="URI")
    add_result(command)


def _prompt(command: CommandParser) -> None:
    add_target(command)
    command.add_argument("name", metavar="NAME")
    command.add_argument("arguments", nargs="*", metavar="KEY=VALUE", help="an argument; KEY=@FILE to read a file")
    add_result(command)


COMMANDS = {
    "list": Command(
        "list the tools, prompts and resources of a server",
        _list,
        ("list weather.py", "list https://example.com/mcp --json", "list mcp.json:weather"),
        "list",
    ),
    "call": Command(
        "call a tool",
        _call,
        (
            "call weather.py forecast city=Oslo days=3",
            'call https://example.com/mcp search query:=\'{"word": "tea"}\'',
            'call "npx -y some-server" greet name=Ada --env TOKEN',
        ),
        "call",
    ),
    "read": Command(
        "read a resource",
        _read,
        ("read weather.py weather://oslo/today", "read https://example.com/mcp file:///logo.png > logo.png"),
        "read",
    ),
    "prompt": Command("get the messages of a prompt", _prompt, ("prompt weather.py advice city=Oslo",), "prompt"),
}
