"""A policy together with receipts, and with questions by page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gemel import Client, Server
from gemel.policies import Policy
from gemel.receipts import Receipts
from tests.ask_by_page.places import anonymous, authorized, local
from tests.policies.places import Person, make_server
from tests.receipts.written import receipts

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])
RULES: dict[str, Any] = {
    "rule": [
        {"name": "reading", "tool": "read", "effect": "allow"},
        {"name": "careful", "tool": "delete", "effect": "ask"},
    ]
}


@both_eras
@pytest.mark.parametrize("side", ["server", "client"])
async def test_receipts_say_which_rule_decided_and_who_approved(tmp_path: Path, era: Any, side: str) -> None:
    path = tmp_path / "receipts.jsonl"
    middleware: list[Any] = [Receipts(path, sync="written"), Policy(RULES)]
    server, _ = make_server()
    for one in middleware if side == "server" else []:
        server.add_middleware(one)
    of_client = middleware if side == "client" else []
    person = Person()
    async with Client(server, era=era, on_elicit=person, middleware=of_client) as client:
        await client.call_tool("read", {"path": "a"})
        await client.call_tool("delete", {"path": "a"})
        person.allows = False
        await client.call_tool("delete", {"path": "b"}, raise_on_error=False)
        await client.call_tool("add", {"path": "a"}, raise_on_error=False)
    found = [(line["tool"], line["effect"], line["rule"], bool(line["approved_by"])) for line in receipts(path)]
    assert found == [
        ("read", "allow", "reading", False),
        ("delete", "ask", "careful", True),
        ("delete", "ask", "careful", False),
        ("add", "deny", None, False),
    ]


def asking(ran: list[str]) -> Any:
    def make(**options: Any) -> Server[Any]:
        server: Server[Any] = Server("files", middleware=[Policy(RULES)], **options)

        @server.tool
        def delete(path: str) -> str:
            ran.append(path)
            return "deleted"

        return server

    return make


@both_eras
@pytest.mark.parametrize("place", [local, authorized], ids=["stdio", "authorized"])
@pytest.mark.parametrize("allows", [True, False])
async def test_a_client_without_forms_is_asked_on_a_page(era: str, place: Any, allows: bool) -> None:
    ran: list[str] = []
    async with place(asking(ran), era) as here:
        first = await here.call("delete", {"path": "a"})
        assert first.is_error
        assert not ran
        page = await here.browser.open(here.link(first))
        assert "Allow delete of files?" in page.text
        await here.browser.send(page, action="accept" if allows else "decline")
        second = await here.call("delete", {"path": "a"})
        assert second.is_error is not allows
    assert ran == (["a"] if allows else [])


@both_eras
async def test_whoever_has_a_link_can_not_approve(era: str) -> None:
    ran: list[str] = []
    async with anonymous(asking(ran), era) as here:
        result = await here.call("delete", {"path": "a"})
        assert result.is_error
        assert "/ask/" not in result.text
    assert not ran
