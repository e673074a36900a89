"""`hinge replay` and `hinge record`: a recording in place of a server, and a server that is recorded on the way."""

from __future__ import annotations

import argparse

from hinge.cli.connect import target_of
from hinge.cli.door import http_options
from hinge.testing import Recording


def run(options: argparse.Namespace) -> int:
    """Play the server of a recording, or stand between a client and a server and record; until the end or a signal."""
    where = http_options(options, http=options.http, needs="--http")
    if options.target is None:
        recording = Recording(options.file, record="never", repeat=options.repeat)
    else:
        target, found = target_of(options)
        recording = Recording(options.file, target, record="missing" if options.add else "always", **found)
    recording.run("http" if options.http else "stdio", **where)
    return 0
