"""The command `hinge`: one module for each command, loaded when it is asked for."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from hinge.errors import HingeError
from hinge.transports.standard import fill_standard_streams


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code is 0 for success, 1 for a failure said in one line, 2 for a wrong command line."""
    from hinge.cli.arguments import parser

    fill_standard_streams()
    options = parser().parse_args(argv)
    try:
        code: int = options.command(options)
    except HingeError as exc:
        from hinge.client.screen import plain_text

        print(f"hinge: {plain_text(str(exc))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return code
