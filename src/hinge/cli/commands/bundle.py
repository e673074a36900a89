"""`hinge bundle`: an MCPB bundle of a server, which hosts install with a click."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterable
from pathlib import Path

from hinge.cli.program.load import load, split_target
from hinge.client.terminal.display import write
from hinge.errors import StartError
from hinge.install.bundle import make_bundle
from hinge.install.metadata import Metadata, read_metadata


def run(options: argparse.Namespace) -> int:
    """Write the bundle."""
    metadata = load_metadata(options)
    bundle = make_bundle(metadata, options.target)
    print_notes(bundle.notes)
    path = Path(options.output or f"{metadata.info.name.replace('/', '-')}-{metadata.info.version}.mcpb")
    try:
        path.write_bytes(bundle.content)
    except OSError as exc:
        raise StartError(f"{path} can't be written: {exc.strerror or exc}") from exc
    for name in bundle.names:
        write(sys.stdout, f"  {name}\n")
    write(sys.stdout, f"{path}: {len(bundle.names)} files, {len(bundle.content):,} bytes, SHA-256 {bundle.sha256}\n")
    return 0


def load_metadata(options: argparse.Namespace) -> Metadata:
    """Load the server and collect what is published about it."""
    place, _ = split_target(options.target)
    path = Path(place).absolute()
    folder = path.parent if path.suffix == ".py" else Path.cwd()
    return asyncio.run(read_metadata(load(options.target), folder))


def print_notes(notes: Iterable[str]) -> None:
    """Print what an author should know on standard error."""
    for note in notes:
        write(sys.stderr, f"hinge: {note}\n")
