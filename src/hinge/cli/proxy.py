"""`hinge proxy`: serve a server over another transport, to clients of both eras."""

from __future__ import annotations

import argparse
import os
from typing import Any, Literal

from hinge.cli.arguments import http_options
from hinge.cli.connect import client_for
from hinge.errors import StartError
from hinge.proxy.proxy import proxy


def run(options: argparse.Namespace) -> int:
    """Serve until the end of input or a signal."""
    on_http = options.target.startswith(("http://", "https://"))
    to: Literal["stdio", "http"] = options.to or ("stdio" if on_http else "http")
    transport: dict[str, Any] = {}
    if options.env:
        if on_http:
            raise StartError("--env needs a command line as the target, not a URL")
        transport["env"] = dict(_variable(text) for text in options.env)
    address = http_options(options, http=to == "http", needs="--to http")
    server = proxy(client_for(options, **transport), single_user=options.single_user)
    server.run(to, **address)
    return 0


def _variable(text: str) -> tuple[str, str]:
    """Split NAME=VALUE; the value of NAME alone is that of the environment of `hinge`."""
    name, equals, value = text.partition("=")
    if not equals:
        if name not in os.environ:
            raise StartError(f"--env {name}: the variable is not set; write {name}=VALUE")
        value = os.environ[name]
    return name, value
