"""The options of a client of a command line. Annotations are evaluated here: see `gemel.options`."""

import contextlib
import os
import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Literal, TypeAlias, TypedDict

from gemel.options import FOLDER, SECONDS, Check, Option, is_function, or_none, texts_by_name


class Shown:
    """Standard error that people see beside the client's errors, which then needn't quote it.

    A server that is started again and begins with the same lines, such as why it can't start, is shown once.

    Args:
        to: A function called for each line; by default it is printed to our own standard error.
    """

    LINES = 100

    def __init__(self, to: Callable[[str], object] | None = None) -> None:
        self._to = to or _print
        self._lines: list[str] = []

    def begin(self) -> Callable[[str], object]:
        """Return a function for the lines of one process."""
        repeated = iter(list(self._lines))
        is_repeating = bool(self._lines)

        def show(line: str) -> None:
            nonlocal is_repeating
            is_repeating = is_repeating and next(repeated, None) == line
            if not is_repeating:
                if len(self._lines) < self.LINES:
                    self._lines.append(line)
                self._to(line)

        return show


def _print(line: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        print(line, file=sys.stderr, flush=True)


#: Where a child's standard error goes: to ours, nowhere, to the end of a file, line by line to a function, or to people.
Stderr: TypeAlias = Literal["inherit", "discard"] | os.PathLike[str] | Callable[[str], object] | Shown


class ChildOptions(TypedDict, total=False):
    """How a child process is started."""

    env: Annotated[
        Mapping[str, str] | None,
        Option(
            "Environment variables for the process, added to a short list of harmless ones; `os.environ` gives all.",
            None,
            or_none(texts_by_name('env={"NAME": "value"}')),
        ),
    ]
    cwd: Annotated[str | os.PathLike[str] | None, Option("Its working directory.", None, or_none(FOLDER))]
    stderr: Annotated[
        Stderr,
        Option(
            'Where its standard error goes: "inherit", "discard", the path of a file, or a function called for each line.',
            "inherit",
            Check(
                lambda value: (
                    value in ("inherit", "discard")
                    if isinstance(value, str)
                    else isinstance(value, os.PathLike | Shown) or is_function(value, 1, plain=True)
                ),
                'use "inherit", "discard", a Path, or a function that gets each line',
            ),
        ),
    ]


class ProcessOptions(ChildOptions, total=False):
    """The options of a client of a command line, or of a Python file."""

    patience: Annotated[
        float, Option("Seconds it gets to end after its input is closed, and again after SIGTERM.", 2.0, SECONDS)
    ]
