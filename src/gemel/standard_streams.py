"""The standard streams of a process, where some of them are closed: services and cron jobs are started like that."""

from __future__ import annotations

import os
import sys


def fill_standard_descriptors() -> None:
    """Open /dev/null for each of the file descriptors 0, 1 and 2 that is closed.

    Call this before an event loop is created: the loop would take the free numbers, and uvloop aborts the process when it
    closes them. `sys.__stdin__` and `sys.__stdout__` stay None, which shows that the streams were closed.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number: this one


def fill_standard_streams() -> None:
    """Do the same for `sys.stdin`, `sys.stdout` and `sys.stderr`."""
    fill_standard_descriptors()
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)
