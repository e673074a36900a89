"""Notices at start that another server has the same name on the same store, where each would take what the other stored."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from gemel.backends.keys import make_key
from gemel.backends.server_backend import ServerBackend
from gemel.errors import shorten

logger = logging.getLogger("gemel")

_KEY: Final = make_key("server")
#: Seconds that the start of a server waits for its store.
_WAIT: Final = 1.0
#: Names of what a server offers that are stored.
_MOST: Final = 1000


class _StoredServer(msgspec.Struct, array_like=True):
    """What is stored of a server: the version of the format, who authorizes its callers, and the names of what it offers."""

    format: int
    users: str
    offers: list[str]


_FORMAT: Final = 1
_decode = msgspec.msgpack.Decoder(_StoredServer).decode


async def warn_of_namesake(backend: ServerBackend, name: str, users: str, offers: Sequence[str]) -> None:
    """Log a warning if what another server of this name stored last says that it is a different one.

    That is so if other parties authorize its callers, or it offers nothing that this one offers. Replicas and versions of one
    server differ less. A store that fails says nothing.

    Args:
        backend: What the server stores.
        name: Its name.
        users: Who authorizes its callers; "" if that is not known.
        offers: The names of what it offers.
    """
    mine = _StoredServer(_FORMAT, users, sorted(offers)[:_MOST])
    try:
        async with asyncio.timeout(_WAIT):
            stored = await backend.get(_KEY)
            while (data := msgspec.msgpack.encode(mine)) != stored:
                if await backend.replace(_KEY, stored, data):
                    break
                stored = await backend.get(_KEY)  # another process has started at the same time
        other = mine if stored is None else _decode(stored)
    except Exception as exc:
        logger.debug("It can't be told whether another server is called %r: %s", name, exc)
        return
    if difference := _difference(mine, other):
        logger.warning(
            "Another server named %r keeps its state in the same store: %s. Each sees sessions, tasks and changes of the other: "
            "give them different names, or different stores. A new version of one server can ignore this",
            name,
            difference,
        )


def _difference(mine: _StoredServer, other: _StoredServer) -> str:
    """What shows that another server is not this one; "" if nothing does."""
    if mine.users != other.users:
        return f"its callers are authorized by {_shown(other.users)}, those of this one by {_shown(mine.users)}"
    if mine.offers and other.offers and not set(mine.offers) & set(other.offers):
        return f"it offers {_shown(', '.join(other.offers))}, this one {_shown(', '.join(mine.offers))}"
    return ""


def _shown(text: str) -> str:
    return shorten(ascii(text)[1:-1], 200) or "nobody"
