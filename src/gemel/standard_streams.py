"""Who owns standard input, output and error of this process.

A server over stdio takes input and output for the protocol: meanwhile `print` and child processes write to standard error.
Streams that are closed, as in services and cron jobs, are replaced by /dev/null.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator

from gemel.errors import StartError

_taken = False


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


def require_standard_streams() -> None:
    """Require open standard input and output; replace a closed standard error by /dev/null.

    Call it before an event loop is made, like `fill_standard_descriptors`.

    Raises:
        StartError: Standard input or output is closed.
    """
    for name, stream in (("input", sys.__stdin__), ("output", sys.__stdout__)):
        if stream is None:
            raise StartError(
                f"Standard {name} is closed, so there is nothing to serve on: start the server from an MCP client, "
                "or serve another transport."
            )
    fill_standard_descriptors()


@contextlib.contextmanager
def own_streams() -> Iterator[tuple[int, int]]:
    """Take standard input and output for the protocol; nobody else can meanwhile.

    Yields descriptors for the protocol, while 0 is /dev/null and 1 is standard error, so that what a lifespan prints does
    not reach the client. Both are restored at the end.

    Raises:
        StartError: Standard input or output is closed or already taken.
    """
    global _taken
    if _taken:
        raise StartError("Standard input and output are already being served by this process; serve them once.")
    require_standard_streams()
    with moved_aside() as descriptors:
        _taken = True
        try:
            yield descriptors
        finally:
            _taken = False


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


def discard_output() -> None:
    """Discard what is still in the buffer of standard output, whose reader is gone, and what comes from now on."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


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
