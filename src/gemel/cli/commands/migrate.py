"""`gemel migrate`: rewrite programs for FastMCP and the official SDK; the diff on standard output, the rest on standard error."""

from __future__ import annotations

import argparse
import sys

from gemel.client.terminal.display import write
from gemel.errors import StartError
from gemel.version import missing_extra


def run(options: argparse.Namespace) -> int:
    """Show or write the changes, and list what is left to do. Raises StartError without the extra."""
    try:
        import libcst  # noqa: F401  # what the package needs
    except ImportError:
        raise StartError(missing_extra("migrate needs", "migrate")) from None
    from gemel.migrate import migrate_paths

    changed = left = 0
    for file in migrate_paths(options.paths):
        changed += bool(file.diff)
        left += len(file.notes)
        write(sys.stdout, file.diff)
        if options.write:
            file.write()
        for note in file.notes:
            write(sys.stderr, f"{file.path}:{note.line}: {note.text}\n")
    done = "changed" if options.write else "would change with --write"
    write(sys.stderr, f"{changed} {'file' if changed == 1 else 'files'} {done}; {left} left to do by hand\n")
    return 0
