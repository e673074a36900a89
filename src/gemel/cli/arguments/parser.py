"""The parser of the whole command line, and the table of commands."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections.abc import Callable, Coroutine, Sequence
from importlib import import_module
from typing import Any

from gemel.cli.arguments import auth, calling, contracts, install, project, receipts, serving
from gemel.cli.arguments.command import Command, CommandParser, Parser
from gemel.errors import StartError
from gemel.version import __version__

#: The commands as `gemel --help` lists them: what begins comes first.
GROUPS = {
    "make and run a server": ("init", "run", "dev", "migrate"),
    "look at a server and call it": (
        *("list", "call", "read", "prompt", "complete", "tasks", "skills", "listen", "ping", "bench", "stubs"),
    ),
    "connect it": ("install", "uninstall", "auth", "proxy", "bundle", "registry"),
    "check it": ("doctor", "lock", "diff", "policy", "receipts", "record", "replay"),
    "the shell": ("completion",),
}

_ABOUT = "The Model Context Protocol: run and call servers."

COMMANDS: dict[str, Command] = {
    **serving.COMMANDS,
    **calling.COMMANDS,
    **auth.COMMANDS,
    **contracts.COMMANDS,
    **receipts.COMMANDS,
    **install.COMMANDS,
    **project.COMMANDS,
}


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse the command line without `gemel`. What follows `--` are arguments for the program that the target starts.

    Raises:
        SystemExit: The command line is wrong, or there was only something to print.
        StartError: The command starts no program that could take arguments.
    """
    if not words:
        parser().print_help(sys.stderr)
        raise SystemExit(2)
    end = words.index("--") if "--" in words else len(words)
    options = parser().parse_args(words[:end])
    if end < len(words):
        if not hasattr(options, "program_arguments"):
            raise StartError("-- ARGS needs a command that starts a program")
        options.program_arguments = list(words[end + 1 :])
    return options


def parser() -> Parser:
    """Return the parser of the whole command line."""
    top = _TopParser(
        prog="gemel",
        usage="gemel COMMAND [OPTIONS] [ARGUMENTS]",
        epilog="A command shows its options and examples with --help, as in gemel call --help.",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.command_names = COMMANDS
    top.add_argument("--version", action="version", version=f"gemel {__version__}")
    subparsers = top.add_subparsers(
        required=True, metavar="COMMAND", help=argparse.SUPPRESS, parser_class=CommandParser
    )
    for name, command in COMMANDS.items():
        command_parser = subparsers.add_parser(name, prog=f"gemel {name}", declaration=command)
        command_parser.set_defaults(command=_run_module(command.module))
    return top


class _TopParser(Parser):
    """Shows the commands, in groups, before the options."""

    def format_help(self) -> str:
        """Return the help."""
        columns = shutil.get_terminal_size().columns - 2
        width = max(map(len, COMMANDS)) + 4
        lines = [_ABOUT]
        for title, names in GROUPS.items():
            lines += ["", f"{title}:"]
            for name in names:
                head = f"  {name:{width - 2}}"
                lines += textwrap.wrap(COMMANDS[name].help, columns, initial_indent=head, subsequent_indent=" " * width)
        self.description = "\n".join(lines)
        return super().format_help()


def command_parser(name: str) -> CommandParser:
    """Return the parser of one command, with its arguments declared."""
    command = CommandParser(prog=f"gemel {name}", declaration=COMMANDS[name])
    command.declare()
    return command


def _run_module(module: str) -> Callable[[argparse.Namespace], int]:
    def command(options: argparse.Namespace) -> int:
        run: Callable[[argparse.Namespace], int | Coroutine[Any, Any, int]] = import_module(
            f"gemel.cli.commands.{module}"
        ).run
        code = run(options)
        if isinstance(code, int):
            return code
        import asyncio

        from gemel.cli.limit import termination_interrupts, within

        if getattr(options, "is_limited", False) and options.timeout is not None:
            code = within(code, options)
        with termination_interrupts():
            return asyncio.run(code)

    return command
