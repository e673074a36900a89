"""`hinge bridge`: offer a server that speaks one transport and era on another transport, to clients of both eras."""

from __future__ import annotations

import argparse
from typing import Any, Literal

from hinge.cli.connect import client_for
from hinge.cli.door import http_options
from hinge.errors import StartError
from hinge.proxy.proxy import proxy


def run(options: argparse.Namespace) -> int:
    """Serve until the end of input or a signal."""
    on_http = options.target.startswith(("http://", "https://"))
    to: Literal["stdio", "http"] = options.to or ("stdio" if on_http else "http")
    more: dict[str, Any] = {}
    if options.env:
        if on_http:
            raise StartError("--env needs a command as the source: a URL has no environment")
        more["env"] = dict(_variable(text) for text in options.env)
    where = http_options(options, http=to == "http", needs="--to http")
    server = proxy(client_for(options, **more), single_user=options.single_user)
    server.run(to, **where)
    return 0


def _variable(text: str) -> tuple[str, str]:
    """NAME=VALUE, or NAME for a variable of our own."""
    import os

    name, equals, value = text.partition("=")
    if not equals:
        if name not in os.environ:
            raise StartError(f"--env {name}: there is no such variable here; write {name}=VALUE")
        value = os.environ[name]
    return name, value
