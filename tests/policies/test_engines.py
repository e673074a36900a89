"""The functions of the how-to that ask an engine, with the real engines."""

from __future__ import annotations

from typing import Any

import pytest

from gemel import Client
from gemel.policies import Policy
from tests.docs.documents import blocks
from tests.policies.places import make_server
from tests.source import ROOT


def shown(name: str) -> Any:
    """The function `decide` of a program that the how-to shows."""
    (block,) = (one for one in blocks(ROOT / "docs/how-to/policies.md") if one.text.startswith(f"# {name}.py"))
    module: dict[str, Any] = {}
    exec(compile(block.text, name, "exec"), module)
    return module["decide"]


async def test_cel_decides_by_arguments() -> None:
    pytest.importorskip("cel", reason="needs common-expression-language")
    server, ran = make_server()
    server.add_middleware(Policy(shown("cel_policy")))
    async with Client(server) as client:
        assert len(await client.list_tools()) == 4
        await client.call_tool("read", {"path": "/tmp/a"})
        assert (await client.call_tool("read", {"path": "/etc/a"}, raise_on_error=False)).is_error
        assert (await client.call_tool("delete", {"path": "/tmp/a"}, raise_on_error=False)).is_error
    assert ran == ["read /tmp/a"]


async def test_cedar_decides_by_principal() -> None:
    pytest.importorskip("cedarpy")
    server, ran = make_server()
    server.add_middleware(Policy(shown("cedar_policy")))
    for principal, tools in (("anna", ["read"]), ("bob", []), (None, []), ('anna" ', [])):
        async with Client(server, principal=principal) as client:
            assert [tool.name for tool in await client.list_tools()] == tools
            await client.call_tool("read", {"path": str(principal)}, raise_on_error=False)
    assert ran == ["read anna"]
