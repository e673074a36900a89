"""`gemel diff`: show what changed since a lock file was written, and how severe it is."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

from gemel.cli.commands.contracts.lock import fetch_target_contract
from gemel.cli.console import as_json
from gemel.client.terminal.display import is_styled, write
from gemel.contracts.compare import SEVERITIES, differences, gravest
from gemel.contracts.contract import SECTIONS
from gemel.contracts.lock_file import is_lock, read_lock
from gemel.errors import Difference, Severity

#: The more severe the change, the higher; 1 and 2 have their usual meaning.
EXIT_CODES: Mapping[Severity, int] = {"harmless": 3, "text": 4, "may break": 5, "breaking": 6}

_COLOURS: Mapping[Severity, str] = {"harmless": "2", "text": "33", "may break": "35", "breaking": "31;1"}
_WIDTH = max(map(len, SEVERITIES))


async def run(options: argparse.Namespace) -> int:
    """Print a line for each change, the most severe first in each entry. The exit code is that of the most severe one."""
    old = read_lock(options.lock)
    if is_lock(options.target):
        new = read_lock(options.target)
    else:
        new = await fetch_target_contract(options, [name for name in SECTIONS if old.section(name) is not None])
    changes = differences(old, new)
    if options.json:
        write(sys.stdout, f"{as_json(changes)}\n")
    else:
        _print(changes)
    worst = gravest(changes)
    if worst is None or SEVERITIES.index(worst) < SEVERITIES.index(options.fail_on.replace("-", " ")):
        return 0
    count = f"{len(changes)} changes, the most severe is {worst!r}" if len(changes) > 1 else f"one change, {worst!r}"
    write(sys.stderr, f"gemel: {count}\n")
    return EXIT_CODES[worst]


def _print(changes: Sequence[Difference]) -> None:
    styled = is_styled(sys.stdout)
    for change in changes:
        severity = change.severity.ljust(_WIDTH)
        head = f"\x1b[{_COLOURS[change.severity]}m{severity}\x1b[0m" if styled else severity
        write(sys.stdout, f"{head}  {change}\n")
    if not changes:
        write(sys.stdout, "Nothing changed.\n")
