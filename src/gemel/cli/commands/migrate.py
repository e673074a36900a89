"""`gemel migrate`: rewrite programs for FastMCP and the official SDK, and check what was written.

The diff goes to standard output, the rest to standard error.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gemel.client.terminal.display import write
from gemel.errors import StartError
from gemel.version import missing_extra
from gemel.visible import escape_text

if TYPE_CHECKING:
    from gemel.migrate import FileMigration
    from gemel.migrate.check import Verdict

_MORE = 8


def run(options: argparse.Namespace) -> int:
    """Show or write the changes, list what is left to do, and check the result. Raises StartError without the extra.

    The exit code is 0 if each server that was checked lists the same, 3 if something differs, 4 if a program doesn't start, and
    5 if one could not be compared.
    """
    try:
        import libcst  # noqa: F401  # what the package needs
    except ImportError:
        raise StartError(missing_extra("migrate needs", "migrate")) from None
    from gemel.migrate import migrate_paths
    from gemel.migrate.check import CheckOutcome, check, programs, worst

    files = list(migrate_paths(options.paths))
    changed = sum(bool(file.diff) for file in files)
    for file in files:
        write(sys.stdout, file.diff)
        if options.write:
            file.write()
    notes = list(_notes(files, written=options.write))
    for note in notes:
        write(sys.stderr, f"{note}\n")
    for text in sorted({text for file in files for text in file.kept}):
        write(sys.stderr, f"as before: {text}\n")
    verdicts: list[Verdict] = []
    found = programs(files) if options.check else []
    if found:
        write(sys.stderr, "running the program to check it, old and new; --no-check leaves that out\n")
    for program in found:
        for verdict in check(program, options.python):
            verdicts.append(verdict)
            write(sys.stderr, f"{_place(verdict, program, written=options.write)}: {escape_text(verdict.text)}\n")
    outcome = worst(verdict.outcome for verdict in verdicts)
    left = len(notes) + sum(verdict.outcome in (CheckOutcome.FAILS, CheckOutcome.DIFFERS) for verdict in verdicts)
    done = "changed" if options.write else "would change with --write"
    write(
        sys.stderr,
        f"{changed} {'file' if changed == 1 else 'files'} {done}; {_left(left, verdicts, options.check, changed)}\n",
    )
    return int(outcome)


def _left(left: int, verdicts: Sequence[Verdict], checked: bool, changed: int) -> str:
    """What is left to do, without a claim that was not verified."""
    if left or not changed or (verdicts and not any(verdict.outcome for verdict in verdicts)):
        return f"{left} left to do by hand"
    why = "not checked" if not checked else "not all could be compared" if verdicts else "there is no server to compare"
    return f"nothing is known to be left to do by hand ({why})"


def _notes(files: Sequence[FileMigration], *, written: bool) -> Iterator[str]:
    """A line for each fact, at the first place, with the others behind it."""
    places: dict[str, list[str]] = {}
    for file in files:
        for note in file.notes:
            line = file.written_line(note.line) if written else note.line
            places.setdefault(note.text, []).append(f"{file.path}:{line}")
    for text, (first, *others) in places.items():
        if others:
            home = first.rpartition(":")[0] + ":"
            listed = ", ".join(other.removeprefix(home) for other in others[:_MORE])
            more = f" and {len(others) - _MORE} more" if len(others) > _MORE else ""
            text += f" ({len(others) + 1} times; also {listed}{more})"
        yield f"{first}: {text}"


def _place(verdict: Verdict, program: Sequence[FileMigration], *, written: bool) -> str:
    if not verdict.line:
        return str(verdict.path)
    file = next(file for file in program if file.path == verdict.path)
    return f"{verdict.path}:{verdict.line if written else file.original_line(verdict.line)}"
