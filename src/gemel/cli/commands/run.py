"""`gemel run`: run the server that a file or module defines."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path
from typing import Any

from gemel.cli.arguments.options import http_options, table_options
from gemel.cli.code_mode import use_code_mode
from gemel.cli.network import parse_limits
from gemel.cli.program.environment import given_environment, working_directory
from gemel.cli.program.load import load, package_folder, split_target
from gemel.errors import LogFilter, StartError
from gemel.server.metrics import metrics_app
from gemel.server.options import override_limits
from gemel.telemetry import SHOWS_SPANS, when_started


def run(options: argparse.Namespace) -> int:
    """Serve until the end of input or a signal."""
    if options.http and options.socket:
        raise StartError("--http and --socket can't be combined")
    if options.http:
        from gemel.transports.http.server.workers.reload import remember_command

        remember_command()
    os.environ.update(given_environment(options))
    address = http_options(options, http=options.http, needs="--http")
    own = table_options(options, "limit", "log_level", "metrics_token")
    if options.http:
        address |= _tls(**table_options(options, "tls_cert", "tls_key"))
    if options.metrics:
        if not options.http:
            raise StartError("--metrics needs --http")
        address["routes"] = {"/metrics": metrics_app(token=own.get("metrics_token"))}
    if options.reload:
        if not options.http:
            raise StartError("--reload needs --http: on stdio, a restart would lose messages of the client")
        from gemel.cli.program.reload import reload

        words = [word for word in sys.argv[1:] if word != "--reload"]
        return reload(words, package_folder(Path(split_target(options.target)[0])))
    place, name = split_target(options.target)
    path = Path(place)
    if options.cwd is not None and not options.module and (path.suffix == ".py" or path.is_file()):
        place = str(path.resolve())
    if options.cwd is not None:
        os.chdir(working_directory(options.cwd))
    sys.argv = [place, *options.program_arguments]
    if "log_level" in own:
        logging.basicConfig(level=own["log_level"].upper(), format="%(levelname)s %(name)s: %(message)s")
        for handler in logging.getLogger().handlers:
            handler.addFilter(LogFilter())  # for other libraries, too
    override_limits(parse_limits(own.get("limit", ())))
    server = load(f"{place}:{name}" if name else place, is_module=options.module)
    if SHOWS_SPANS in os.environ:
        from gemel.dev.spans import send_spans

        when_started(send_spans)
    use_code_mode(server, options.code)
    if options.http:
        server.run("http", **address)
    elif options.socket:
        server.run("socket", path=options.socket)
    else:
        server.run()
    return 0


def _tls(tls_cert: str | None = None, tls_key: str | None = None) -> dict[str, Any]:
    """Return the option `tls` for a certificate. Raises StartError if it can't be loaded."""
    if tls_cert is None:
        if tls_key is not None:
            raise StartError("--tls-key needs --tls-cert")
        return {}
    import ssl

    for path in filter(None, (tls_cert, tls_key)):
        if not os.access(path, os.R_OK):
            raise StartError(f"The TLS file {path} can't be read")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(tls_cert, tls_key)
    except (OSError, ValueError) as exc:
        raise StartError(f"{tls_cert} is not a PEM file with a certificate and its private key: {exc}") from exc
    return {"tls": context}
