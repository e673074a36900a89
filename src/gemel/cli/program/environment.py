"""The program that a TARGET starts: its environment, working directory and arguments."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gemel.errors import StartError, shorten

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
#: A line of an environment file. In double quotes `\n`, `\t`, `\"` and `\\` are escapes; in single quotes nothing is.
_LINE = re.compile(
    rf"""(?:export\s+)?(?P<name>{_NAME})\s*=\s*
    (?: "(?P<double>(?:[^"\\]|\\.)*)" | '(?P<single>[^']*)' | (?P<plain>[^"'\s#](?:(?!\s\#).)*)? )
    \s*(?:\#.*)?""",
    re.VERBOSE,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def given_environment(options: argparse.Namespace) -> dict[str, str]:
    """Return the variables of `--env-file`, and those of `--env`, which win.

    Args:
        options: The parsed command line.

    Raises:
        StartError: A file can't be read or has a line that is not NAME=VALUE, or a variable is not set. Values are not shown.
    """
    variables: dict[str, str] = {}
    for path in options.env_file:
        variables.update(_read_file(path))
    variables.update(_parse_option(text) for text in options.env)
    return variables


def referenced_environment(options: argparse.Namespace) -> dict[str, str]:
    """Return the same variables as `given_environment`; `--env NAME` alone is the reference `${NAME}`, not its value.

    Args:
        options: The parsed command line.

    Raises:
        StartError: As `given_environment`, except for variables that are not set.
    """
    variables: dict[str, str] = {}
    for path in options.env_file:
        variables.update(_read_file(path))
    for text in options.env:
        is_reference = text and "=" not in text and "\0" not in text
        variables.update([(text, f"${{{text}}}") if is_reference else _parse_option(text)])
    return variables


def program_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return `env` and `cwd` for Client, as far as the command line has them. Raises StartError."""
    values: dict[str, Any] = {}
    if options.env or options.env_file:
        values["env"] = given_environment(options)
    if options.cwd is not None:
        values["cwd"] = working_directory(options.cwd)
    return values


def refuse_program_options(options: argparse.Namespace) -> None:
    """Raises StartError if an option for a program is given, for a TARGET that starts none."""
    for name, flag in (
        ("env", "--env"),
        ("env_file", "--env-file"),
        ("cwd", "--cwd"),
        ("program_arguments", "-- ARGS"),
    ):
        if getattr(options, name):
            raise StartError(
                f"{flag} needs a command line or a Python file as the target, not {shorten(options.target)}"
            )


def variable(option: str, name: str) -> str:
    """Return a variable of the environment of `gemel` that an option names. Raises StartError if it is not set."""
    value = os.environ.get(name)
    if not value:
        raise StartError(f"{option} {name}: this environment variable is not set")
    return value


def working_directory(path: str) -> str:
    """Return the folder of `--cwd`. Raises StartError if there is none."""
    if not os.path.isdir(path):
        raise StartError(f"--cwd {path}: there is no such folder")
    return path


def _parse_option(text: str) -> tuple[str, str]:
    """Split NAME=VALUE; the value of NAME alone is that of the environment of `gemel`."""
    name, equals, value = text.partition("=")
    if not name or "\0" in text:
        raise StartError("--env needs NAME=VALUE, or NAME for a variable of the shell")
    if not equals:
        if name not in os.environ:
            raise StartError(f"--env {name}: the variable is not set; write {name}=VALUE")
        value = os.environ[name]
    return name, value


def _read_file(path: str) -> Iterator[tuple[str, str]]:
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as exc:
        raise StartError(f"--env-file {path} can't be read: {exc.strerror or exc}") from exc
    except UnicodeDecodeError as exc:
        raise StartError(f"--env-file {path} is not UTF-8: {exc.reason} at byte {exc.start}") from exc
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None or "\0" in line:
            raise StartError(f"{path}:{number}: the line is not NAME=VALUE")
        value = match["plain"] or match["single"] or ""
        if match["double"]:
            value = re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[1]), match["double"])
        yield match["name"], value
