"""What a server can be made, served over HTTP and run with: the values of its options, and one line about wrong ones.

Knows options. Must not know what they do.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping
from typing import Any

from hinge.errors import DefinitionError, StartError, shorten
from hinge.protocol.limits import Limits
from hinge.protocol.options import (
    FLAG,
    PATH,
    TEXT,
    TEXTS,
    Allowed,
    check_values,
    function,
    instance,
    is_number,
    is_whole,
    or_none,
    several,
    whole,
)
from hinge.schema.base import Implementation
from hinge.schema.notifications import SEVERITY
from hinge.server.features.caching import CacheHint
from hinge.server.registration import is_uri, listed


def _lifespan(form: str) -> Allowed:
    """A function that gives an async context manager: one that yields or is awaited lacks its decorator."""

    def fits(value: Any) -> bool:
        wrong = (inspect.isasyncgenfunction, inspect.isgeneratorfunction, inspect.iscoroutinefunction)
        return value is None or (callable(value) and not any(is_wrong(value) for is_wrong in wrong))

    return Allowed(fits, f"write @asynccontextmanager above `async def {form}`, and `yield` in it, or None")


#: What a server can be made with, besides what `check_server` looks at.
SERVER: dict[str, Allowed] = {
    "version": TEXT,
    **dict.fromkeys(("title", "description", "website_url", "instructions"), or_none(TEXT)),
    "lifespan": _lifespan("lifespan(server)"),
    "connection_lifespan": _lifespan("connected(ctx)"),
    "middleware": several(lambda one: True, "middleware=[…]"),
    "limits": instance(Limits, "limits=Limits(…)"),
    "log_level": Allowed(
        lambda value: value is None or (isinstance(value, str) and value in SEVERITY),
        f"use one of {', '.join(SEVERITY)}, or None",
    ),
    "page_size": Allowed(lambda value: value is None or is_whole(value, 1), "use 1 or more, or None for whole lists"),
    "state_keys": several(
        lambda one: isinstance(one, bytes), "state_keys=[…] with secrets of 32 bytes: secrets.token_bytes(32)"
    )._replace(secret=True),
    "state_once": FLAG,
    "backend": or_none(
        Allowed(
            lambda value: isinstance(value, str) or (hasattr(value, "publish") and hasattr(value, "subscribe")),
            'use "memory://", an object with publish and subscribe',
        )
    ),
    "authorize_subscription": or_none(function("`async def may_watch(ctx, uri) -> bool`")),
    "cache": or_none(
        Allowed(
            lambda value: isinstance(value, Mapping) and all(isinstance(one, CacheHint) for one in value.values()),
            'write cache={"tools/list": CacheHint(60)}',
        )
    ),
    "resource_bytes": whole(1),
}


def check_server(info: Implementation, given: Mapping[str, Any]) -> None:
    """Raises DefinitionError for what a server can't be made with."""
    name: Any = info.name
    if not isinstance(name, str) or not name:
        raise DefinitionError(f'A server needs a name: write Server("weather"), not Server({name!r})')
    check_values(given, SERVER)
    listed(info, f"Server({name!r})")
    if info.website_url is not None and not is_uri(info.website_url):
        raise DefinitionError(f"website_url={shorten(repr(info.website_url))} is no address: write https://…")


# ---------------------------------------------------------------- over HTTP

_ENDPOINT = Allowed(lambda value: isinstance(value, str) and value.startswith("/"), 'write a path like "/mcp"')
#: One text is a mistake that is told with the list that was meant.
_NAMES = TEXTS._replace(test=lambda value: isinstance(value, str) or TEXTS.test(value))

#: What HTTP takes, however it is served.
HTTP: dict[str, Allowed] = {
    "path": _ENDPOINT,
    "sse_path": or_none(TEXT._replace(words='write a path like "/sse"')),
    "sessions": FLAG,
    "allowed_hosts": _NAMES,
    "allowed_origins": _NAMES,
    "guard": Allowed(lambda value: value is None or hasattr(value, "check"), "write guard=Guard.for_bind(…), or None"),
    "authenticate": or_none(function("`async def authenticate(scope, headers)`")),
    "routes": or_none(instance(Mapping, 'routes={"/metrics": app} with an ASGI app')),
    "headers": whole(1),
    "header_bytes": whole(1),
    "body_wait": Allowed(lambda value: is_number(value) and value > 0, "use seconds, more than 0"),
    "requests": whole(1),
    "retry": Allowed(lambda value: is_whole(value, 0), "use milliseconds, a whole number"),
}
#: What besides an app takes that somebody else serves.
APP: dict[str, Allowed] = {"bind": or_none(TEXT._replace(words="write the address that the server listens on"))}
#: What an HTTP app gets from its server, and how to say it there.
OF_THE_SERVER = {
    "eras": "Server(eras=…)",
    "limits": "Server(limits=…)",
    "on_start": "the server's lifespan",
    "on_drain": "the server's lifespan",
    "on_stop": "the server's lifespan",
}


def check_http(given: Mapping[str, Any], besides: Mapping[str, Allowed] = APP) -> None:
    """Raises DefinitionError for options that there aren't, of HTTP or `besides`, or not with this value."""
    known = {**HTTP, **besides}
    for name in given.keys() - known.keys():
        if name in OF_THE_SERVER:
            raise DefinitionError(f"{name} is no option of HTTP: use {OF_THE_SERVER[name]}")
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(sorted(known))}"
        raise DefinitionError(f"HTTP has no option {name!r}: {hint}")
    check_values(given, known)


# ---------------------------------------------------------------- running

_PORT = Allowed(lambda value: is_whole(value, 0, 65535), "use a number from 0 to 65535")
_ANNOUNCE = or_none(function("`def announce(url)`"))

#: What `run` takes for each transport, besides what an HTTP app takes.
RUN: dict[str, dict[str, Allowed]] = {
    "stdio": {},
    "socket": {"path": or_none(PATH), "host": TEXT, "port": or_none(_PORT)},
    "http": {
        "host": TEXT,
        "port": _PORT,
        "workers": whole(1),
        "uds": or_none(PATH),
        "tls": Allowed(lambda value: value is None or hasattr(value, "wrap_bio"), "write an ssl.SSLContext, or None"),
        "announce": _ANNOUNCE,
    },
}


def check_run(transport: Any, given: Mapping[str, Any]) -> None:
    """Raises StartError for a transport that there isn't, and for options that it hasn't."""
    table = RUN.get(transport) if isinstance(transport, str) else None
    if table is None:
        raise StartError(f'There is no transport {transport!r}: use "stdio", "http" or "socket"')
    try:
        if transport == "http":
            if "bind" in given:
                raise StartError("run binds to host=…; bind is for apps that somebody else serves")
            check_http(given, table)
        elif unknown := given.keys() - table.keys():
            raise StartError(f"run({transport!r}) has no option {', '.join(sorted(unknown))}")
        else:
            check_values(given, table)
    except DefinitionError as exc:
        raise StartError(str(exc)) from None
