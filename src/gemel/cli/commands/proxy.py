"""`gemel proxy`: serve a server over another transport, to clients of both eras."""

from __future__ import annotations

import argparse
from typing import Any, Literal

from gemel.cli.arguments.options import http_options
from gemel.cli.code_mode import use_code_mode
from gemel.cli.connect import CONFIGURED, client_for, client_of_entry, configuration_of
from gemel.cli.console import Console
from gemel.cli.network import limits_of
from gemel.cli.program.environment import variable
from gemel.errors import StartError
from gemel.proxy.gateway import gateway
from gemel.proxy.proxy import proxy
from gemel.server.server import Server


def run(options: argparse.Namespace) -> int:
    """Serve until the end of input or a signal."""
    on_http = options.target.startswith(("http://", "https://"))
    to: Literal["stdio", "http"] = options.to or ("stdio" if on_http else "http")
    address = http_options(options, http=to == "http", needs="--to http")
    server = _server(options, to)
    use_code_mode(server, options.code, options.trust_hints)
    with Console(options):
        server.run(to, **address)
    return 0


def _server(options: argparse.Namespace, to: Literal["stdio", "http"]) -> Server[Any]:
    """The server in front of the TARGET, or of all servers of a configuration. Raises StartError."""
    given: Any = {name: bool(getattr(options, name)) for name in ("shared", "single_user", "strict")}
    given |= {"backend": options.backend, "middleware": _middleware(options)}
    if options.policy is not None and to == "stdio":
        from gemel.ask_by_page import AskByPage

        given["ask"] = AskByPage()
    path = configuration_of(options)
    if path is None:
        client = client_for(options)
        entry = CONFIGURED.fullmatch(options.target)
        if entry is not None:
            given["name"] = entry["name"]
        return proxy(client, limits=client.limits, **given)
    return gateway(path, client_of=lambda entry: client_of_entry(options, entry), limits=limits_of(options), **given)


def _middleware(options: argparse.Namespace) -> list[Any]:
    """Receipts and a policy, in this order, as far as they are wanted. Raises StartError and DefinitionError."""
    middleware: list[Any] = []
    if options.receipts is not None:
        from gemel.receipts import Receipts

        key = None if options.receipts_key_env is None else variable("--receipts-key-env", options.receipts_key_env)
        middleware.append(Receipts(options.receipts, key=key, sync="written"))
    elif options.receipts_key_env is not None:
        raise StartError("--receipts-key-env needs --receipts")
    if options.policy is not None:
        from gemel.policies import Policy

        middleware.append(Policy(options.policy, trust_hints=options.trust_hints))
    elif options.trust_hints and options.code is None:
        raise StartError("--trust-hints needs --policy or --code")
    return middleware
