"""The arguments of commands that reach a server: the target, the program that it starts, and what to do with a result."""

from __future__ import annotations

import argparse
import math

from gemel.cli.arguments.command import CommandParser
from gemel.cli.arguments.options import add_options

ERAS = ("auto", "2025", "2026")


def add_result(command: CommandParser) -> None:
    command.add_argument("--json", action="store_true", help="print the result as JSON")
    command.add_argument("--save", metavar="DIR", help="save images, audio and resources of the result in this folder")
    add_timeout(command)
    command.add_argument("--root", action="append", default=[], metavar="DIR", help="a root to offer to the server")
    command.add_argument(
        "--no-input", action="store_true", help="never prompt: elicitation is not declared to the server"
    )


def add_timeout(command: CommandParser) -> None:
    """Add the limit of the whole command; see `gemel.cli.limit`."""
    meaning = "fail after this time, with starting and connecting; a person who is asked has time of their own"
    command.add_argument("--timeout", type=seconds, default=None, metavar="SECONDS", help=meaning)
    command.set_defaults(is_limited=True)


def add_target(command: CommandParser, *, eras: bool = True, also: str = "") -> None:
    what = f"a URL, FILE.py[:NAME], MODULE[:NAME], CONFIG.json[:NAME], or a command line in quotes{also}"
    from gemel.client.targets import address_of

    command.add_argument("target", metavar="TARGET", type=address_of, help=what)
    add_module(command)
    if eras:
        command.add_argument("--era", choices=ERAS, default="auto", help="the protocol era (default: negotiated)")
    command.add_argument("--header", action="append", default=[], metavar="NAME:VALUE", help="an HTTP header to send")
    command.add_argument(
        "--no-login", action="store_true", help="never start a login: fail if a server wants one; with a URL"
    )
    from gemel.transports.http.client.options import HttpClientOptions

    add_options(command, HttpClientOptions, "wire", note="; with a URL")
    add_program(command)


def add_module(command: CommandParser) -> None:
    """Add `-m`, as Python has it."""
    command.add_argument(
        "-m", "--module", action="store_true", help="the target is a Python module, not a file or program"
    )


def add_program(command: CommandParser) -> None:
    """Add what the program that a TARGET starts gets."""
    command.epilog = f"{command.epilog or ''}After --, arguments for the program."
    command.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="an environment variable for the program; may be repeated",
    )
    command.add_argument(
        "--env-file",
        action="append",
        default=[],
        metavar="FILE",
        help="a file with a line NAME=VALUE for each variable",
    )
    command.add_argument("--cwd", metavar="DIR", help="the working directory of the program")
    command.set_defaults(program_arguments=[])


def seconds(text: str) -> float:
    """Parse a time in seconds. Raises ArgumentTypeError for less than 0, infinity and NaN."""
    value = float(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError("use a number of seconds, 0 or more")
    return value
