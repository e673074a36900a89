"""`hinge diff`: show what changed since a lock file was written, and how severe it is."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Mapping, Sequence

import msgspec

from hinge.cli.lock import fetch_target_contract
from hinge.client.terminal.display import is_styled, write
from hinge.contracts.compare import SEVERITIES, Difference, Severity, differences, gravest
from hinge.contracts.contract import SECTIONS, Contract, Section
from hinge.contracts.lock_file import is_lock, read_lock

#: The more severe the change, the higher; 1 and 2 have their usual meaning.
EXIT_CODES: Mapping[Severity, int] = {"harmless": 3, "text": 4, "may break": 5, "breaking": 6}

_COLOURS: Mapping[Severity, str] = {"harmless": "2", "text": "33", "may break": "35", "breaking": "31;1"}
_WIDTH = max(map(len, SEVERITIES))


def run(options: argparse.Namespace) -> int:
    """Print a line for each change, the most severe first in each entry. The exit code is that of the most severe one."""
    old = read_lock(options.lock)
    found = differences(old, _other(options, old))
    if options.json:
        write(sys.stdout, msgspec.json.format(msgspec.json.encode(found)).decode() + "\n")
    else:
        _print(found)
    worst = gravest(found)
    if worst is None or SEVERITIES.index(worst) < SEVERITIES.index(options.fail_on.replace("-", " ")):
        return 0
    count = f"{len(found)} changes, the most severe is {worst!r}" if len(found) > 1 else f"one change, {worst!r}"
    write(sys.stderr, f"hinge: {count}\n")
    return EXIT_CODES[worst]


def _other(options: argparse.Namespace, old: Contract) -> Contract:
    if is_lock(options.target):
        return read_lock(options.target)
    looked_at: list[Section] = [section for section in SECTIONS if old.section(section) is not None]
    return asyncio.run(fetch_target_contract(options, looked_at))


def _print(found: Sequence[Difference]) -> None:
    colours = is_styled(sys.stdout)
    for one in found:
        severity = one.severity.ljust(_WIDTH)
        head = f"\x1b[{_COLOURS[one.severity]}m{severity}\x1b[0m" if colours else severity
        write(sys.stdout, f"{head}  {one}\n")
    if not found:
        write(sys.stdout, "Nothing changed.\n")
