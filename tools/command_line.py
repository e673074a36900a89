"""The page about the command line as Markdown, made from the parsers of the command `hinge`: `page()`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from hinge.cli.arguments import parser

_HEAD = """\
# The command line

`hinge COMMAND --help` prints the same. Options may stand anywhere behind the command. How the commands are used is
described in [calling servers from a shell]({shell}).
"""


def commands() -> dict[str, Any]:
    """The parser of each command by its name, with all of its arguments declared."""
    found: dict[str, Any] = {}
    for action in parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                if (declare := getattr(command, "_declare", None)) is not None:
                    declare(command)
                    command._declare = None
                found[name] = command
    return found


def page(shell: str) -> str:
    """The page; `shell` is the link to the guide."""
    help_texts = {
        choice.dest: choice.help or ""
        for action in parser()._actions
        if isinstance(action, argparse._SubParsersAction)
        for choice in action._choices_actions
    }
    parts = [_HEAD.format(shell=shell)]
    for name, command in commands().items():
        text = help_texts.get(name, "")
        parts.append(
            f"## `hinge {name}` {{ #{name} }}\n\n{text[:1].upper()}{text[1:]}.\n\n{_usage(command)}\n\n{_table(command)}\n"
        )
    return "\n".join(parts)


def _usage(command: Any) -> str:
    command.formatter_class = lambda prog: argparse.HelpFormatter(prog, width=96)
    return f"```text\n{command.format_usage().removeprefix('usage: ').rstrip()}\n```"


def _table(command: Any) -> str:
    return "\n".join(["| | |", "|---|---|", *_rows(command)])


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
