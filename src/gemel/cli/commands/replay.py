"""`gemel replay` and `gemel record`: replay the server of a recording, or proxy a server and record the messages."""

from __future__ import annotations

import argparse
from typing import Literal

from gemel.cli.arguments.options import http_options
from gemel.cli.connect import target_of
from gemel.cli.network import limits_of
from gemel.testing import Recording


def run(options: argparse.Namespace) -> int:
    """Serve until the end of input or a signal."""
    address = http_options(options, http=options.http, needs="--http")
    if options.target is None:
        recording = Recording(options.file, record="never", repeat=options.repeat)
    else:
        target, transport = target_of(options)
        mode: Literal["missing", "always"] = "missing" if options.add else "always"
        recording = Recording(options.file, target, record=mode, limits=limits_of(options), **transport)
    recording.run("http" if options.http else "stdio", **address)
    return 0
