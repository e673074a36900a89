"""The command `gemel`: its subcommands are the modules of `commands`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from gemel.errors import GemelError
from gemel.standard_streams import discard_output, fill_standard_streams


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: The command line without `gemel`; `sys.argv` by default.

    Returns:
        The exit code: 0 for success, 1 for a failure, which is described in one line, 130 after Ctrl-C, and after SIGTERM in a
        command that calls a server, 141 when the reader of the output ended early, as `head` does. Some commands have further
        codes.

    Raises:
        SystemExit: With code 2 for a wrong command line, with 0 after `--help` and `--version`.
    """
    from gemel.cli.arguments.parser import parse

    fill_standard_streams()
    options = None
    try:
        options = parse(sys.argv[1:] if argv is None else argv)
        code: int = options.command(options)
    except GemelError as exc:
        from gemel.cli.errors import report

        report(exc, options)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        discard_output()
        return 141
    return code
