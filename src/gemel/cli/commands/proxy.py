"""`gemel proxy`: serve a server over another transport, to clients of both eras."""

from __future__ import annotations

import argparse
from typing import Any, Literal

from gemel.cli.arguments.options import http_options
from gemel.cli.code_mode import use_code_mode
from gemel.cli.connect import client_for, client_of_entry, configuration_of
from gemel.cli.console import Console
from gemel.cli.network import limits_of
from gemel.proxy.gateway import gateway
from gemel.proxy.proxy import proxy
from gemel.server.server import Server


def run(options: argparse.Namespace) -> int:
    """Serve until the end of input or a signal."""
    on_http = options.target.startswith(("http://", "https://"))
    to: Literal["stdio", "http"] = options.to or ("stdio" if on_http else "http")
    address = http_options(options, http=to == "http", needs="--to http")
    server = _server(options)
    use_code_mode(server, options.code)
    with Console(options):
        server.run(to, **address)
    return 0


def _server(options: argparse.Namespace) -> Server[Any]:
    """The server in front of the TARGET, or of all servers of a configuration. Raises StartError."""
    given: Any = {name: bool(getattr(options, name)) for name in ("shared", "single_user", "strict")}
    given["backend"] = options.backend
    path = configuration_of(options)
    if path is None:
        client = client_for(options)
        return proxy(client, limits=client.limits, **given)
    return gateway(path, client_of=lambda entry: client_of_entry(options, entry), limits=limits_of(options), **given)
