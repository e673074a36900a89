"""One server in place of all servers of a configuration."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Unpack

from gemel.client.client import Client
from gemel.client.group.config import ServerEntry, Source, read_config
from gemel.client.group.names import prefixes_of
from gemel.errors import DefinitionError, StartError
from gemel.options import options_of, resolve
from gemel.proxy.proxy import proxy
from gemel.server.options import GatewayOptions, ServerOptions
from gemel.server.server import Server

logger = logging.getLogger("gemel")


def _client_of(entry: ServerEntry) -> Client:
    target, options = entry.reach()
    return Client(target, **options)


def gateway(
    source: Source, *, client_of: Callable[[ServerEntry], Client] = _client_of, **options: Unpack[GatewayOptions]
) -> Server[Any]:
    """Make the server of `Server.from_config`.

    Args:
        source: The path of a JSON file with `mcpServers`, or its content.
        client_of: Makes the client for an entry; raises StartError or DefinitionError if it can't be used.
        **options: See `GatewayOptions`.

    Returns:
        The server.

    Raises:
        StartError: The file can't be read or has no servers; with `strict`, an entry has a mistake.
    """
    settings = resolve(GatewayOptions, options, "Server.from_config")
    of_server: Any = {name: value for name, value in options.items() if name in options_of(ServerOptions)}
    server: Server[Any] = Server(settings["name"], **of_server)
    of_proxy: Any = {option: settings[option] for option in ("limits", "shared", "single_user", "strict")}
    entries = read_config(source)
    prefixes = prefixes_of(entries)
    problems: dict[str, str] = {}
    for name, entry in entries.items():
        if entry.disabled:
            continue
        try:
            upstream = proxy(client_of(entry), name=name, **of_proxy)
        except (DefinitionError, StartError) as exc:
            problems[name] = str(exc)
        else:
            server.mount(upstream, prefixes[name])
    if problems and settings["strict"]:
        raise StartError("; ".join(problems.values()))
    for name, problem in problems.items():
        logger.warning("%r is left out: %s", name, problem)
    return server
