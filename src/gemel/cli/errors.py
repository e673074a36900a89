"""How a command reports its failure: one line on standard error, or JSON on standard output with `--json`."""

from __future__ import annotations

import argparse
import sys

import msgspec

from gemel.errors import CallError, GemelError, MethodNotFound, MissingClientCapability, Outcome, PeerError

#: How a server refuses to ask a client that can't answer, as an error or as the text of a result.
NO_ELICITATION = "Missing required client capability: elicitation"
HOW_TO_ANSWER = "it asks the user: run it in a terminal, with the extra cli and without --no-input"


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
        print_error(f"{cause}{_advice(exc, options)}")


def _advice(exc: GemelError, options: argparse.Namespace | None) -> str:
    """What to know or to do about an error that its text doesn't say."""
    if isinstance(exc, CallError) and exc.outcome is Outcome.UNKNOWN and getattr(options, "calls_tool", False):
        return "; the tool may have run"
    if isinstance(exc, PeerError) and exc.code == MissingClientCapability.code and NO_ELICITATION in exc.message:
        return f"; {HOW_TO_ANSWER}"
    if isinstance(exc, PeerError) and exc.code == MethodNotFound.code:
        return "; the server doesn't support this command"
    return ""


def print_error(text: str) -> None:
    """Print `gemel: TEXT` to standard error, coloured on a terminal."""
    from gemel.client.terminal.display import is_styled
    from gemel.visible import escape_text

    head = "\x1b[31;1mgemel:\x1b[0m" if is_styled(sys.stderr) else "gemel:"
    print(f"{head} {escape_text(text)}", file=sys.stderr)
