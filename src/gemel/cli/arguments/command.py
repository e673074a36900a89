"""What one command is, and the parser of its arguments."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, NoReturn

from gemel.errors import shorten

#: How arguments of tools and prompts are called in the help.
KEY_VALUE = "KEY=VALUE"


class Command(NamedTuple):
    """One command.

    Attributes:
        help: What it does, for `gemel --help`.
        declare: Adds its arguments to a parser.
        examples: Command lines without `gemel`, for its own `--help`.
        module: The module in `gemel.cli.commands` that runs it.
    """

    help: str
    declare: Callable[[CommandParser], None]
    examples: tuple[str, ...]
    module: str


class Parser(argparse.ArgumentParser):
    """Ends with one line for a wrong command line, which suggests what may have been meant."""

    #: The names of the commands, to suggest one.
    command_names: Iterable[str] = ()

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and end with exit code 2."""
        from gemel.cli.errors import print_error

        if unknown := re.match(r"argument COMMAND: invalid choice: '(.*?)' ", message):
            message = f"unknown command {shorten(unknown[1])!r}{_suggest(unknown[1], self.command_names)}"
        elif unknown := re.match(r"(argument .+?: invalid choice): '(.*?)' \(choose from (.*)\)", message):
            choices = [
                choice.strip("'") for choice in unknown[3].split(", ")
            ]  # the quotes depend on the version of Python
            meant = _suggest(unknown[2], choices)
            if not meant and unknown[1].startswith("argument ACTION"):
                meant = f"; the target comes after it, as in {self.prog} {choices[0]} {shorten(unknown[2])}"
            message = f"{unknown[1]}: {shorten(unknown[2])!r} (choose from {', '.join(choices)}){meant}"
        elif unknown := re.match(r"unrecognized arguments: --([^ =]+)", message):
            values = any(action.metavar == KEY_VALUE and not action.option_strings for action in self._actions)
            written = f"; what is not an option of gemel is written {unknown[1]}=VALUE" if values else ""
            message += written or _suggest(f"--{unknown[1]}", self._option_string_actions)
        elif missing := re.match(r"the following arguments are required: (.*)", message):
            optional = {action.metavar for action in self._actions if action.nargs == "*"}
            names = ", ".join(name for name in missing[1].split(", ") if name not in optional)
            message = f"the following arguments are required: {names}"
        print_error(f"{message} (see {self.prog} --help)")
        raise SystemExit(2)


class CommandParser(Parser):
    """The parser of one command: options may stand anywhere, also behind arguments; they can't be abbreviated.

    Args:
        *args: Arguments of `argparse.ArgumentParser`.
        declaration: The command. Its arguments are declared when the parser is first used.
        **options: Arguments of `argparse.ArgumentParser`.
    """

    def __init__(self, *args: Any, declaration: Command, **options: Any) -> None:
        formatter = argparse.RawDescriptionHelpFormatter
        super().__init__(*args, **{**options, "allow_abbrev": False, "formatter_class": formatter})
        self._declaration = declaration
        self._is_declared = False
        self._intermixing = False

    def declare(self) -> None:
        """Declare the arguments of the command, once."""
        if self._is_declared:
            return
        self._is_declared = True
        self._declaration.declare(self)
        words = [_usage_of(action) for action in self._actions if not action.option_strings]
        self.usage = " ".join(["%(prog)s [OPTIONS]", *words])
        self.description = f"{self._declaration.help[0].upper()}{self._declaration.help[1:]}."
        examples = "\n".join(["examples:", *(f"  gemel {example}" for example in self._declaration.examples)])
        self.epilog = "\n\n".join(filter(None, (self.epilog, examples)))

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]  # it overloads
        """Parse the arguments of the command, options between them included."""
        self.declare()
        if self._intermixing:
            return super().parse_known_args(args, namespace)
        self._intermixing = True
        try:
            namespace, unknown = self.parse_known_intermixed_args(args, namespace)
        finally:
            self._intermixing = False
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return namespace, unknown


def _usage_of(action: argparse.Action) -> str:
    """Return how a positional argument stands in the usage."""
    name = str(action.metavar or action.dest)
    return {"*": f"[{name} ...]", "?": f"[{name}]", "+": f"{name} ..."}.get(str(action.nargs), name)


def _suggest(word: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, names, n=1)
    return f"; did you mean {near[0]}?" if near else ""
