"""The three standard descriptors of a process: what stands in for one that is closed. Knows nothing of what is served."""

from __future__ import annotations

import os
import sys


def fill_standard_descriptors() -> None:
    """Put /dev/null where standard input, output or error is closed, as services and cron jobs are started.

    To be called before an event loop is made: a loop would take the free numbers for itself, and uvloop aborts the process
    when it closes them. `sys.__stdin__` and `sys.__stdout__` go on saying that they were closed.
    """
    for number in (0, 1, 2):
        if not _is_open(number):
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number: this one


def fill_standard_streams() -> None:
    """The same for Python's own streams: where there is none, one that gives and keeps nothing."""
    fill_standard_descriptors()
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
