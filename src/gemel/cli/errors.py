"""How a command reports its failure: one line on standard error, or JSON on standard output with `--json`."""

from __future__ import annotations

import argparse
import sys

import msgspec

from gemel.errors import GemelError, PeerError


def report(exc: GemelError, options: argparse.Namespace | None) -> None:
    """Report what ended a command.

    With `--json`, standard output gets `{"error": {"type", "message"}}`, with `code` and `data` for an error of the server;
    as one line where the command prints lines of JSON.
    A server that `gemel run` could not start has printed why, as the last line: then nothing more is printed.

    Args:
        exc: What ended it.
        options: The parsed command line; None if it was not parsed.
    """
    cause = str(exc)
    if "exited with code" in cause:
        cause = getattr(options, "start_error", None) or cause
    if getattr(options, "json", False):
        from gemel.client.terminal.display import write

        error: dict[str, object] = {"type": type(exc).__name__, "message": cause}
        if isinstance(exc, PeerError):
            error |= {"message": exc.message, "code": exc.code}
            error |= {} if exc.data is msgspec.UNSET or exc.data is None else {"data": exc.data}
        encoded = msgspec.json.encode({"error": error})
        is_line = getattr(options, "json_lines", False)
        write(sys.stdout, (encoded if is_line else msgspec.json.format(encoded)).decode() + "\n")
    elif cause == str(exc):
        print_error(cause)


def print_error(text: str) -> None:
    """Print `gemel: TEXT` to standard error, coloured on a terminal."""
    from gemel.client.terminal.display import is_styled
    from gemel.visible import escape_text

    head = "\x1b[31;1mgemel:\x1b[0m" if is_styled(sys.stderr) else "gemel:"
    print(f"{head} {escape_text(text)}", file=sys.stderr)
