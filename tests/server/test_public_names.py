"""What handlers and editors see: the members of a Context, and the signature and help text of every public object."""

from __future__ import annotations

import inspect
import pydoc
import re
import typing
from typing import Any

import gemel
from gemel import Client, Context, Server
from tests.source import ROOT

TABLE = re.compile(r"^\| `ctx\.(\w+)(?:\(\))?` \|", re.MULTILINE)


async def test_the_members_of_a_context_are_the_documented_ones() -> None:
    server: Server[Any] = Server("names")
    seen: list[set[str]] = []

    @server.tool
    async def tool(ctx: Context[Any]) -> None:
        seen.append({name for name in dir(ctx) if not name.startswith("_")})

    async with Client(server) as client:
        await client.call_tool("tool")
    assert seen[0] == set(TABLE.findall((ROOT / "docs" / "servers" / "context.md").read_text()))


def signed() -> list[str]:
    """The public names that can be called: type aliases and TypedDicts have no signature."""
    found = {name: getattr(gemel, name) for name in gemel.__all__}
    return [name for name, value in found.items() if callable(value) and typing.get_origin(value) is None]


def test_every_public_object_has_a_signature_and_a_help_text() -> None:
    for name in signed():
        value = getattr(gemel, name)
        if not typing.is_typeddict(value):
            inspect.signature(value)
        assert name in pydoc.render_doc(value), name


def test_the_package_has_a_help_text() -> None:
    text = pydoc.plain(pydoc.render_doc(gemel))
    assert "NAME\n    gemel" in text
    assert "class Server" in text
