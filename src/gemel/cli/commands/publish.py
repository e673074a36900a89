"""`gemel bundle` and `gemel registry`: a bundle that hosts install with a click, and the entry in the public registry."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterable
from pathlib import Path

from gemel.cli.program.load import load, split_target
from gemel.client.terminal.display import write
from gemel.errors import DefinitionError, StartError
from gemel.install.bundle import make_bundle
from gemel.install.metadata import Metadata, read_metadata
from gemel.install.registry import remaining_steps, server_json
from gemel.user_files import replace_file, writing


def run(options: argparse.Namespace) -> int:
    """Write the bundle, or print the entry; only `registry` takes `--bundle-url`."""
    return _print_entry(options) if hasattr(options, "bundle_url") else _write_bundle(options)


def _write_bundle(options: argparse.Namespace) -> int:
    metadata = _load_metadata(options)
    bundle = make_bundle(metadata, options.target)
    _print_notes(bundle.notes)
    path = Path(options.output or f"{metadata.info.name.replace('/', '-')}-{metadata.info.version}.mcpb")
    with writing(path):
        replace_file(path, bundle.content)
    for name in bundle.names:
        write(sys.stdout, f"  {name}\n")
    write(sys.stdout, f"{path}: {len(bundle.names)} files, {len(bundle.content):,} bytes, SHA-256 {bundle.sha256}\n")
    return 0


def _print_entry(options: argparse.Namespace) -> int:
    """Print the content of server.json; on standard error what else the registry demands."""
    metadata = _load_metadata(options)
    name = options.name or metadata.registry_name
    if not name:
        raise StartError("The registry needs a name: --name com.example/weather, or `name` in [tool.gemel]")
    url = options.bundle_url
    bundle = None if url is None else {"url": url, "sha256": make_bundle(metadata, options.target).sha256}
    try:
        content = server_json(metadata, name, bundle=bundle)
    except DefinitionError as exc:
        raise StartError(str(exc)) from None
    write(sys.stdout, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    _print_notes([] if bundle is not None else remaining_steps(metadata, name))
    return 0


def _load_metadata(options: argparse.Namespace) -> Metadata:
    """Load the server and collect what is published about it."""
    place, _ = split_target(options.target)
    path = Path(place).absolute()
    folder = path.parent if path.suffix == ".py" else Path.cwd()
    return asyncio.run(read_metadata(load(options.target), folder))


def _print_notes(notes: Iterable[str]) -> None:
    """Print what an author should know on standard error."""
    for note in notes:
        write(sys.stderr, f"gemel: {note}\n")
