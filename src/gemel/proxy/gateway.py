"""One server in place of all servers of a configuration."""

from __future__ import annotations

import logging
from typing import Any, Unpack

from gemel.client.client import Client
from gemel.client.group.config import Source, read_config
from gemel.errors import StartError
from gemel.options import options_of, resolve
from gemel.proxy.proxy import proxy
from gemel.server.options import GatewayOptions, ServerOptions
from gemel.server.server import Server

logger = logging.getLogger("gemel")


def gateway(source: Source, **options: Unpack[GatewayOptions]) -> Server[Any]:
    """Make the server of `Server.from_config`.

    Args:
        source: The path of a JSON file with `mcpServers`, or its content.
        **options: See `GatewayOptions`.

    Returns:
        The server.

    Raises:
        StartError: The configuration is invalid; with `strict`, a variable is not set.
        DefinitionError: A name in the configuration can't be a prefix.
    """
    settings = resolve(GatewayOptions, options, "Server.from_config")
    of_server: Any = {name: value for name, value in options.items() if name in options_of(ServerOptions)}
    server: Server[Any] = Server(settings["name"], **of_server)
    of_proxy: Any = {option: settings[option] for option in ("limits", "shared", "single_user", "strict")}
    for name, entry in read_config(source).items():
        if entry.disabled:
            continue
        try:
            target, of_client = entry.reach()
        except StartError as exc:
            if settings["strict"]:
                raise
            logger.warning("%r is left out: %s", name, exc)
            continue
        server.mount(proxy(Client(target, **of_client), **of_proxy), name)
    return server
