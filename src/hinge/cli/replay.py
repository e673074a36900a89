"""`hinge replay` and `hinge record`: a recording in place of a server, and a server that is recorded on the way."""

from __future__ import annotations

import argparse
from typing import Any

from hinge.cli.connect import target_of
from hinge.testing import Recording


def run(options: argparse.Namespace) -> int:
    """Play the server of a recording, or stand between a client and a server and record; until the end or a signal."""
    if options.target is None:
        recording = Recording(options.file, record="never", repeat=options.repeat)
    else:
        target, found = target_of(options)
        recording = Recording(options.file, target, record="missing" if options.add else "always", **found)
    where: dict[str, Any] = {"host": options.host, "port": options.port, "path": options.path} if options.http else {}
    recording.run("http" if options.http else "stdio", **where)
    return 0
