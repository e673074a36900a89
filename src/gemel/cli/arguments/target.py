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


def add_target(command: CommandParser, *, eras: bool = True, limits: bool = True, also: str = "") -> None:
    what = f"a URL, FILE.py[:NAME], MODULE[:NAME], CONFIG.json[:NAME], or a command line in quotes{also}"
    from gemel.client.targets import address_of

    command.add_argument("target", metavar="TARGET", type=address_of, help=what)
    add_module(command)
    if eras:
        command.add_argument("--era", choices=ERAS, default="auto", help="the protocol era (default: negotiated)")
    if limits:
        command.add_argument(
            "--limit",
            action="append",
            default=[],
            metavar="NAME=NUMBER",
            help="one of the limits of the client, such as connect=60 (seconds); may be repeated",
        )
    add_network(command)
    add_issuer(command)
    command.add_argument(
        "--no-login", action="store_true", help="never start a login: fail if a server wants one; with a URL"
    )
    from gemel.transports.http.client.options import HttpClientOptions

    add_options(command, HttpClientOptions, "wire", note="; with a URL")
    add_program(command)


def add_network(command: CommandParser) -> None:
    """Add how a URL is reached; see `gemel.cli.network`."""
    command.add_argument(
        "--header", action="append", default=[], metavar="NAME:VALUE", help="an HTTP header to send; may be repeated"
    )
    command.add_argument(
        "--cookie",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a cookie to send, to the origin of the URL only; may be repeated",
    )
    command.add_argument(
        "--ca", metavar="FILE", help="certificates (PEM) of authorities to trust besides those of the system"
    )
    command.add_argument(
        "--client-cert",
        metavar="FILE[,KEY]",
        help="the certificate (PEM) to show to a server that wants one, and its key, if that is in another file",
    )


def add_issuer(command: CommandParser) -> None:
    """Add what a login may use as the authorization server, and what that one needs; see `gemel.cli.network`."""
    command.add_argument("--issuer", metavar="URL", help="the only authorization server to log in to")
    command.add_argument(
        "--accept-issuer",
        action="append",
        default=[],
        metavar="URL",
        help="an issuer that the metadata may name although another one was asked for; may be repeated",
    )
    command.add_argument("--resource", metavar="URI", help="the value of `resource`, with --issuer; none leaves it out")
    command.add_argument(
        "--assume-pkce",
        action="store_true",
        help="the authorization server supports PKCE but doesn't say so, with --issuer",
    )
    command.add_argument(
        "--parameter",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a further parameter of the authorization request, with --issuer; may be repeated",
    )
    command.add_argument(
        "--private-networks",
        action="store_true",
        help="the authorization server may be in a private network, and use http",
    )


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


def add_code(command: CommandParser, meaning: str) -> None:
    """Add `--code` and `--code=search`. The value is never a word of its own: `--code server.py` has none."""
    command.add_argument("--code", action="store_const", const="code", help=meaning)
    command.add_argument(
        "--code=search",
        action="store_const",
        const="search",
        dest="code",
        help="likewise, with a tool that calls one of the others in place of scripts",
    )


def seconds(text: str) -> float:
    """Parse a time in seconds. Raises ArgumentTypeError for less than 0, infinity and NaN."""
    value = float(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError("use a number of seconds, 0 or more")
    return value
