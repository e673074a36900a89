"""The names of tools and prompts of several servers in one list.

A name that only one server has is kept. One that several servers have is written `server_name` for each of them, and with a
number if that is taken, too: `server_name_2`, in the order of the servers. The same servers with the same names always give
the same list, and no server can take over a name of another one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, TypeAlias

#: When the name of the server is put in front: if several servers have the name, or always.
Prefixing: TypeAlias = Literal["collision", "always"]

_UNFIT = re.compile(r"[^A-Za-z0-9_.-]")


class NameOrigin(NamedTuple):
    """The origin of a merged name: the server, and the name that it uses."""

    server: str
    name: str


def prefix_of(server: str) -> str:
    """The name of a server, without characters that tool names must not have."""
    return _UNFIT.sub("_", server)


def merge_names(listings: Mapping[str, Iterable[str]], prefixing: Prefixing = "collision") -> dict[str, NameOrigin]:
    """The merged names of all servers' names, in the order of the servers and of their lists."""
    pairs = [NameOrigin(server, name) for server, names in listings.items() for name in dict.fromkeys(names)]
    servers_of = Counter(origin.name for origin in pairs)
    alone = {name for name, count in servers_of.items() if count == 1 and prefixing == "collision"}
    merged: dict[str, NameOrigin] = {}
    for origin in pairs:
        if origin.name in alone:
            merged[origin.name] = origin
            continue
        preferred = f"{prefix_of(origin.server)}_{origin.name}"
        unique, number = preferred, 1
        while unique in merged or unique in alone:
            number += 1
            unique = f"{preferred}_{number}"
        merged[unique] = origin
    return merged
