"""The standard streams of a process, where some of them are closed: services and cron jobs are started like that."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator


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


@contextlib.contextmanager
def moved_aside(*, output_only: bool = False) -> Iterator[tuple[int, int]]:
    """Yield descriptors of standard input and output, while 0 is /dev/null and 1 is standard error.

    So neither `print` nor child processes interfere with what the descriptors carry. Standard streams must be open.

    Args:
        output_only: Whether descriptor 0 stays what it is.
    """
    saved = _save(0), _save(1)
    line_buffered = isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.line_buffering
    null = os.open(os.devnull, os.O_RDWR)
    try:
        if not output_only:
            os.dup2(null, 0)
        os.dup2(null if sys.__stderr__ is None else 2, 1)
        _flush_stdout(line_buffering=True)
        yield saved
    finally:
        _flush_stdout(line_buffering=line_buffered)
        if not output_only:
            os.dup2(saved[0], 0)
        os.dup2(saved[1], 1)
        for descriptor in (*saved, null):
            os.close(descriptor)


def _save(descriptor: int) -> int:
    """Duplicate a standard descriptor to a number above the standard ones."""
    copies = [os.dup(descriptor)]
    while copies[-1] < 3:
        copies.append(os.dup(descriptor))
    for copy in copies[:-1]:
        os.close(copy)
    return copies[-1]


def _flush_stdout(*, line_buffering: bool) -> None:
    """Flush what was printed to where descriptor 1 points now, and set the buffering."""
    with contextlib.suppress(OSError, ValueError):
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=line_buffering)
        elif sys.stdout is not None:
            sys.stdout.flush()
