"""The options that a TypedDict declares, as flags of a command and as environment variables."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any, Literal, get_args, get_origin

from gemel.cli.arguments.command import CommandParser
from gemel.errors import StartError

#: The options of `server.run("http")` that a command line can give.
HTTP = (
    "host",
    "port",
    "path",
    "uds",
    "sse_path",
    "allowed_hosts",
    "allowed_origins",
    "trusted_proxies",
    "workers",
    "worker_timeout",
    "engine",
    "sessions",
    "access_log",
    "server_card",
    "headers",
    "header_bytes",
    "body_wait",
    "requests",
    "retry",
)
TLS = ("tls_cert", "tls_key")
_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def http_options(options: argparse.Namespace, *, http: bool, needs: str) -> dict[str, Any]:
    """Return the given options of HTTP for `server.run("http", …)`.

    Args:
        options: The parsed command line.
        http: Whether the command serves HTTP.
        needs: The option that makes it do so, for the error.

    Raises:
        StartError: One of them is given, and the command doesn't serve HTTP.
    """
    flags = [name for name in (*HTTP, *TLS) if getattr(options, name, None) is not None]
    if flags and not http:
        wrong = "no-sessions" if flags[0] == "sessions" else flags[0].replace("_", "-")
        raise StartError(f"--{wrong} needs {needs}")
    return table_options(options, *HTTP) if http else {}


def table_options(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return the values of those options that are given by a flag, or else by the environment variable GEMEL_NAME.

    Raises:
        StartError: A variable has a value that the option does not take.
    """
    values: dict[str, Any] = {}
    for name in names:
        if not hasattr(options, name):
            continue
        value = getattr(options, name)
        variable = f"GEMEL_{name.upper()}"
        if value is None and os.environ.get(variable):
            value = _parse_variable(variable, os.environ[variable], name)
        if value is not None:
            values[name] = value
    return values


def _parse_variable(variable: str, text: str, name: str) -> Any:
    from gemel.cli.program.options import RunOptions

    kind, choices = _kind(RunOptions, name)
    if kind is bool:
        word = text.strip().lower()
        if word not in _YES and word not in _NO:
            raise StartError(f"{variable}={text} is not possible: use 1 or 0")
        return word in _YES
    if kind is Sequence:
        return [part.strip() for part in text.split(",") if part.strip()]
    if choices and text not in choices:
        raise StartError(f"{variable}={text} is not possible: use {', '.join(choices)}")
    try:
        return kind(text)
    except ValueError:
        raise StartError(f"{variable}={text} is not possible: use a number") from None


# ---------------------------------------------------------------- flags


def add_http(command: CommandParser, *names: str) -> None:
    """Add the flags of an HTTP endpoint."""
    command.epilog = "The options of HTTP may also be set by variables, such as GEMEL_PORT=8080.\n"
    from gemel.cli.program.options import RunOptions

    add_options(command, RunOptions, *names, note="; with HTTP")


def add_options(command: CommandParser, declaration: type, *names: str, note: str = "") -> None:
    """Add flags for options that a TypedDict declares. Without a value they are None.

    A flag for a sequence may be given several times; a Literal lists the values; a bool that is on by default gets `--no-`.
    """
    from gemel.options import options_of

    for name in names:
        option = options_of(declaration)[name]
        kind, choices = _kind(declaration, name)
        text = option.meaning.removesuffix(".").removeprefix("Whether ")
        default = f" (default: {option.default})" if option.default and kind is not bool else ""
        flag, metavar = f"--{name.replace('_', '-')}", name.rpartition("_")[2].upper()
        meaning = f"{text[0].lower()}{text[1:]}{default}{note}".replace("%", "%%")
        if kind is bool and option.default:
            command.add_argument(
                flag.replace("--", "--no-"),
                dest=name,
                action="store_false",
                default=None,
                help=f"turn off (on by default): {meaning}",
            )
        elif kind is bool:
            command.add_argument(flag, action="store_true", default=None, help=meaning)
        elif choices:
            command.add_argument(flag, choices=choices, help=meaning)
        elif kind is Sequence:
            command.add_argument(flag, action="append", metavar=metavar, help=f"{meaning}; may be repeated")
        else:
            command.add_argument(flag, type=kind, metavar=metavar, help=meaning)


def _kind(declaration: type, name: str) -> tuple[Any, list[str]]:
    """Return how an option of a TypedDict is written: bool, int, float, Sequence or str; and its choices."""
    annotation = declaration.__annotations__[name].__origin__
    kinds = (annotation, *get_args(annotation))
    choices = [value for kind in kinds if get_origin(kind) is Literal for value in get_args(kind)]
    if get_origin(annotation) is Sequence:
        return Sequence, choices
    return next((kind for kind in (bool, int, float) if kind in kinds), str), choices
