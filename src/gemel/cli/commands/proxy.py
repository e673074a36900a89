"""`gemel proxy`: serve a server over another transport, to clients of both eras."""

from __future__ import annotations

import argparse
from typing import Literal

from gemel.cli.arguments.options import http_options
from gemel.cli.connect import client_for
from gemel.proxy.proxy import proxy


def run(options: argparse.Namespace) -> int:
    """Serve until the end of input or a signal."""
    on_http = options.target.startswith(("http://", "https://"))
    to: Literal["stdio", "http"] = options.to or ("stdio" if on_http else "http")
    address = http_options(options, http=to == "http", needs="--to http")
    client = client_for(options)
    server = proxy(
        client,
        limits=client.limits,
        shared=bool(options.shared),
        single_user=bool(options.single_user),
        strict=bool(options.strict),
    )
    server.run(to, **address)
    return 0
