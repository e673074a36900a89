"""What may stand at the end of a command line: commands, options, their values, and names that a server lists."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
from collections.abc import Iterable, Iterator, Sequence

from gemel.cli.arguments.command import CommandParser
from gemel.cli.arguments.parser import COMMANDS, command_parser, parse
from gemel.cli.completion.words import Candidate
from gemel.errors import GemelError


def candidates(words: Sequence[str]) -> list[Candidate]:
    """Return what the last word may become; nothing where it is the name of a file, or anything.

    Args:
        words: The command line without `gemel`. The last word is incomplete, maybe empty.
    """
    *before, current = words
    if "--" in before:  # the arguments of another program
        return []
    if not before:
        top = {"--help": "show the commands", "--version": "show the version"}
        names = top if current.startswith("-") else {name: command.help for name, command in COMMANDS.items()}
        return _matching(current, (Candidate(name, meaning) for name, meaning in names.items()))
    if before[0] not in COMMANDS:
        return []
    return _Line(command_parser(before[0]), before, current).candidates()


class _Line:
    """A command line up to its last word.

    Args:
        parser: The parser of its command.
        before: The words before the last one.
        current: The last word.
    """

    def __init__(self, parser: CommandParser, before: Sequence[str], current: str) -> None:
        self._parser = parser
        self._before = before
        self._current = current
        self._flags: set[str] = set()
        #: How many arguments that are not options stand before the last word.
        self._position = 0
        #: The option whose value the last word is.
        self._option: argparse.Action | None = None
        for word in before[1:]:
            self._take(word)

    def _take(self, word: str) -> None:
        if self._option is not None:
            self._option = None
        elif word.startswith("-") and word != "-":
            flag, equals, _ = word.partition("=")
            self._flags.add(flag)
            action = self._parser._option_string_actions.get(flag)
            self._option = action if action is not None and action.nargs != 0 and not equals else None
        else:
            self._position += 1

    def candidates(self) -> list[Candidate]:
        """Return what the last word may become."""
        if self._option is not None:
            return _matching(self._current, _values(self._option))
        flag, equals, value = self._current.partition("=")
        if self._current.startswith("-"):
            action = self._parser._option_string_actions.get(flag)
            if equals and action is not None and action.nargs != 0:
                return [Candidate(f"{flag}={word}", text) for word, text in _matching(value, _values(action))]
            return _matching(self._current, self._options())
        action = self._argument()
        if action is None:
            return []
        if action.choices is not None:
            return _matching(self._current, _values(action))
        return self._names(action.dest)

    def _options(self) -> Iterator[Candidate]:
        for action in self._parser._actions:
            is_repeated = isinstance(action, argparse._AppendAction)
            for flag in action.option_strings if is_repeated or self._flags.isdisjoint(action.option_strings) else ():
                if flag.startswith("--"):
                    yield Candidate(flag, (action.help or "") % {**vars(action), "prog": self._parser.prog})

    def _argument(self) -> argparse.Action | None:
        """Return the argument that the last word is."""
        arguments = [action for action in self._parser._actions if not action.option_strings]
        if self._position < len(arguments):
            return arguments[self._position]
        return arguments[-1] if arguments and arguments[-1].nargs in ("*", "+") else None

    def _names(self, argument: str) -> list[Candidate]:
        """Return the names that a server lists, if the line names a server that may be asked."""
        required = [action for action in self._parser._actions if not action.option_strings and action.nargs is None]
        missing = [""] * (len(required) - self._position - 1)
        with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(SystemExit, GemelError):
            options = parse([*self._before, self._current, *missing])
            if getattr(options, "target", None) is not None:
                from gemel.cli.completion.listed import listed_names

                return _matching(self._current, listed_names(self._before[0], argument, options, self._current))
        return []


def _values(action: argparse.Action) -> Iterator[Candidate]:
    """Yield the values of an option or argument, as far as they can be listed."""
    if action.choices is not None:
        yield from (Candidate(str(choice)) for choice in action.choices)
    elif action.dest == "env":
        yield from (Candidate(name) for name in sorted(os.environ))


def _matching(prefix: str, words: Iterable[Candidate]) -> list[Candidate]:
    return [candidate for candidate in words if candidate.word.startswith(prefix)]
