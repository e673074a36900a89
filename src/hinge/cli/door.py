"""What a command line says of the address to serve on: which options belong to which transport."""

from __future__ import annotations

import argparse
from typing import Any

from hinge.errors import StartError

#: Options of an HTTP endpoint, whichever of them a command has.
_HTTP = ("host", "port", "path", "sse_path", "workers")


def http_options(options: argparse.Namespace, *, http: bool, needs: str) -> dict[str, Any]:
    """Those that were given, for `server.run("http", …)`. Raises StartError for one that nobody would look at."""
    given = {name: value for name in _HTTP if (value := getattr(options, name, None)) is not None}
    if given and not http:
        name = next(iter(given)).replace("_", "-")
        raise StartError(f"--{name} needs {needs}: it says where HTTP is served")
    return given
