"""The names under which the tools and prompts of several servers stand in one list. Pure: names in, names out.

A name that only one server has stays as it is. One that several have is written `server_name` for each of them. What
clashes even then gets a number: `server_name_2`, in the order of the servers. So the same servers with the same names
always give the same list, and no server can take over a name that another one has.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, TypeAlias

#: When names get their server's in front: where several servers have them, or always.
Prefixing: TypeAlias = Literal["collision", "always"]

_UNFIT = re.compile(r"[^A-Za-z0-9_.-]")


class Origin(NamedTuple):
    """Where a merged name comes from: the server, and what it calls it."""

    server: str
    name: str


def prefix_of(server: str) -> str:
    """A server's name with nothing in it but what tool names may have (TOOL-09)."""
    return _UNFIT.sub("_", server)


def merge_names(listings: Mapping[str, Iterable[str]], prefixing: Prefixing = "collision") -> dict[str, Origin]:
    """The merged names of all servers' names, in the order of the servers and of their lists."""
    pairs = [Origin(server, name) for server, names in listings.items() for name in dict.fromkeys(names)]
    servers_of = Counter(origin.name for origin in pairs)
    alone = {name for name, count in servers_of.items() if count == 1 and prefixing == "collision"}
    merged: dict[str, Origin] = {}
    for origin in pairs:
        if origin.name in alone:
            merged[origin.name] = origin
            continue
        wanted = f"{prefix_of(origin.server)}_{origin.name}"
        found, number = wanted, 1
        while found in merged or found in alone:
            number += 1
            found = f"{wanted}_{number}"
        merged[found] = origin
    return merged
