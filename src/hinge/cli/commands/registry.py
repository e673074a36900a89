"""`hinge registry`: the entry of a server in the public registry, on standard output."""

from __future__ import annotations

import argparse
import json
import sys

from hinge.cli.commands.bundle import load_metadata, print_notes
from hinge.client.terminal.display import write
from hinge.errors import DefinitionError, StartError
from hinge.install.bundle import make_bundle
from hinge.install.registry import remaining_steps, server_json


def run(options: argparse.Namespace) -> int:
    """Print the content of server.json; on standard error what else the registry demands."""
    metadata = load_metadata(options)
    name = options.name or metadata.registry_name
    if not name:
        raise StartError("The registry needs a name: --name com.example/weather, or `name` in [tool.hinge]")
    url = options.bundle_url
    bundle = None if url is None else {"url": url, "sha256": make_bundle(metadata, options.target).sha256}
    try:
        content = server_json(metadata, name, bundle=bundle)
    except DefinitionError as exc:
        raise StartError(str(exc)) from None
    write(sys.stdout, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    print_notes([] if bundle is not None else remaining_steps(metadata, name))
    return 0
