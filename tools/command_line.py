"""The page about the command line as Markdown, made from the parsers of the command `gemel`: `page()`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from gemel.cli.arguments.parser import COMMANDS, command_parser

_HEAD = """\
# The command line

Every command of `gemel`, with its arguments and options. `gemel COMMAND --help` prints the same. Options may be anywhere after
the command. [Calling servers from a shell]({shell}) shows how the commands are used.
"""


def page(shell: str) -> str:
    """The page; `shell` is the link to the guide."""
    parts = [_HEAD.format(shell=shell)]
    for name, declaration in COMMANDS.items():
        command, text = command_parser(name), declaration.help
        parts.append(
            f"## `gemel {name}` {{ #{name} }}\n\n{text[:1].upper()}{text[1:]}.\n\n{_usage(command)}\n\n{_table(command)}\n"
            f"\n{_examples(name)}\n"
        )
    return "\n".join(parts)


def _usage(command: Any) -> str:
    command.formatter_class = lambda prog: argparse.HelpFormatter(prog, width=80)
    return f"```text\n{command.format_usage().removeprefix('usage: ').rstrip()}\n```"


def _examples(name: str) -> str:
    return "\n".join(["```sh", *(f"gemel {example}" for example in COMMANDS[name].examples), "```"])


def _table(command: Any) -> str:
    return "\n".join(["| argument or option | what it does |", "|---|---|", *_rows(command)])


def _rows(command: Any) -> Iterator[str]:
    for action in command._actions:
        if isinstance(action, argparse._HelpAction) or action.help == argparse.SUPPRESS:
            continue
        metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
        value = (
            "" if action.nargs == 0 else (f"{{{','.join(map(str, action.choices))}}}" if action.choices else metavar)
        )
        flags = (
            ", ".join(f"`{flag} {value}`" if value else f"`{flag}`" for flag in action.option_strings) or f"`{metavar}`"
        )
        text = (action.help or "") % {**vars(action), "prog": command.prog}
        yield f"| {flags} | {text[:1].upper()}{text[1:]} |".replace("{", "{").replace("\n", " ")
