"""The options of a client of a command line. Annotations are evaluated here: see `hinge.options`."""

import os
from collections.abc import Callable, Mapping
from typing import Annotated, Literal, TypeAlias, TypedDict

from hinge.options import FOLDER, SECONDS, Check, Option, or_none, texts_by_name


class Shown:
    """Standard error that people see beside the client's errors, which then needn't quote it.

    `to` is a function called for each line, or None for our own standard error.
    """

    def __init__(self, to: Callable[[str], object] | None = None) -> None:
        self.to: Literal["inherit"] | Callable[[str], object] = to or "inherit"


#: Where a child's standard error goes: to ours, nowhere, to the end of a file, line by line to a function, or to people.
Stderr: TypeAlias = Literal["inherit", "discard"] | os.PathLike[str] | Callable[[str], object] | Shown


class ProcessOptions(TypedDict, total=False):
    """The options of a client of a command line, or of a Python file."""

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
                    else isinstance(value, os.PathLike | Shown) or callable(value)
                ),
                'use "inherit", "discard", a Path, or a function that gets each line',
            ),
        ),
    ]
    patience: Annotated[
        float, Option("Seconds it gets to end after its input is closed, and again after SIGTERM.", 2.0, SECONDS)
    ]
