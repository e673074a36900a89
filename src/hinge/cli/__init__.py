"""The command `hinge`: one module for each command, loaded when it is asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from hinge.errors import HingeError
from hinge.standard_streams import fill_standard_streams


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code is 0 for success, 1 for a failure said in one line, 2 for a wrong command line.

    Whoever reads the output may go away before its end, as `head` does: 141, without a word, like other programs.
    """
    from hinge.cli.arguments import parser

    fill_standard_streams()
    options = parser().parse_args(argv)
    try:
        code: int = options.command(options)
    except HingeError as exc:
        from hinge.client.display import escape_text

        print(f"hinge: {escape_text(str(exc))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left in the buffer goes nowhere, too
        return 141
    return code
