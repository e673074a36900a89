"""The arguments of the commands that write or change files of a project: migrate."""

from __future__ import annotations

from hinge.cli.arguments.command import Command, CommandParser


def _migrate(command: CommandParser) -> None:
    command.add_argument("paths", nargs="+", metavar="PATH", help="a Python file, or a folder with Python files")
    command.add_argument("--write", action="store_true", help="change the files; without it, only the diff is shown")


COMMANDS = {
    "migrate": Command(
        "rewrite a program for FastMCP or the official SDK",
        _migrate,
        ("migrate server.py", "migrate src tests --write"),
        "migrate",
    ),
}
