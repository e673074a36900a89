"""The arguments of the commands about a project and a shell: init, migrate, completion."""

from __future__ import annotations

from gemel.cli.arguments.command import Command, CommandParser


def _init(command: CommandParser) -> None:
    command.add_argument(
        "folder", nargs="?", default=".", metavar="DIR", help="a new or empty folder (default: the working directory)"
    )
    command.add_argument("--name", metavar="NAME", help="the name of the server (default: that of the folder)")


def _migrate(command: CommandParser) -> None:
    command.add_argument("paths", nargs="+", metavar="PATH", help="a Python file, or a folder with Python files")
    command.add_argument("--write", action="store_true", help="change the files; without it, only the diff is shown")
    command.add_argument(
        "--no-check",
        dest="check",
        action="store_false",
        help="don't run the program, old and new, to compare what its servers list",
    )
    command.add_argument(
        "--python",
        metavar="PYTHON",
        help="the interpreter that runs the original program (default: the one of this command)",
    )


def _completion(command: CommandParser) -> None:
    command.add_argument("shell", choices=("bash", "zsh", "fish"), metavar="SHELL", help="bash, zsh or fish")
    command.set_defaults(program_arguments=[])  # the words to complete, from the script


COMMANDS = {
    "init": Command("make a project with a server and its tests", _init, ("init notes", "init . --name notes"), "init"),
    "migrate": Command(
        "rewrite a program for FastMCP or the official SDK",
        _migrate,
        ("migrate server.py", "migrate src tests --write", "migrate server.py --python ../old/.venv/bin/python"),
        "migrate",
    ),
    "completion": Command(
        "print the completion script of a shell",
        _completion,
        (
            "completion bash >> ~/.bashrc",
            "completion zsh > ~/.zfunc/_gemel",
            "completion fish > ~/.config/fish/completions/gemel.fish",
        ),
        "completion",
    ),
}
