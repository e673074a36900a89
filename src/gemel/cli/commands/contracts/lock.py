"""`gemel lock`: write the contract of a server to a file, so that changes are noticed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from gemel.cli.connect import client_for
from gemel.cli.console import Console
from gemel.client.terminal.display import write
from gemel.contracts.contract import SECTIONS, Contract
from gemel.contracts.display import hidden_in, hidden_within, name_shown
from gemel.contracts.fetch import fetch_contract
from gemel.contracts.lock_file import is_lock, written
from gemel.errors import StartError
from gemel.schema.methods import BY_SECTION, Section
from gemel.user_files import replace_file, writing
from gemel.visible import escape_line


async def run(options: argparse.Namespace) -> int:
    """Write the lock file; "-" is standard output. Warn of hidden characters on standard error."""
    _refuse_to_overwrite(options.output)
    contract = await fetch_target_contract(options, _parse_sections(options.only))
    for line in _hidden_character_warnings(contract):
        write(sys.stderr, f"gemel: {line}\n")
    if options.output == "-":
        write(sys.stdout, written(contract))
        return 0
    path = Path(options.output)
    with writing(path):
        replace_file(path, written(contract).encode())
    counts = [
        _count(len(entries), section) for section in SECTIONS if (entries := contract.section(section)) is not None
    ]
    name = " ".join(str(contract.server.get(word, "")) for word in ("name", "version")).strip() or "unnamed server"
    write(sys.stdout, f"{options.output}: {escape_line(name)}, {', '.join(counts)}\n")
    return 0


async def fetch_target_contract(options: argparse.Namespace, sections: Iterable[Section] = SECTIONS) -> Contract:
    """Return the contract of the TARGET; a lock in its configuration is not checked."""
    with Console(options) as console:
        async with client_for(options, lock=None, **console.client_options()) as client:
            return await fetch_contract(client, sections=sections)


def _parse_sections(only: str | None) -> Sequence[Section]:
    """Return the sections that `--only` names, all by default. Raises StartError for an unknown one."""
    names = [name.strip() for name in only.split(",")] if only is not None else list(SECTIONS)
    for name in names:
        if name not in SECTIONS:
            raise StartError(f"--only {name!r} is not a section: use {', '.join(SECTIONS)}")
    return [section for section in SECTIONS if section in names]


def _hidden_character_warnings(contract: Contract) -> Iterator[str]:
    """Yield a line for each entry with hidden characters."""
    for section in SECTIONS:
        for name, definition in (contract.section(section) or {}).items():
            if hidden := hidden_within([name, definition]):
                yield f"{BY_SECTION[section].word} {name_shown(name)} has hidden characters: {', '.join(hidden[:8])}"
    if hidden := hidden_in(contract.instructions or ""):
        yield f"the server's instructions have hidden characters: {', '.join(hidden[:8])}"


def _count(number: int, section: Section) -> str:
    return f"{number} {BY_SECTION[section].word}{'s' * (number != 1)}"


def _refuse_to_overwrite(path: str) -> None:
    if path != "-" and Path(path).exists() and not is_lock(path):
        raise StartError(f"{path} exists and is not a lock file: it is not overwritten")
