"""The page on servers of others: the official SDKs for Python and TypeScript, and FastMCP."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed: make browser")

from playwright.sync_api import expect

from tests.browser.conftest import inspecting, missing
from tests.browser.steps import go
from tests.interop.peers import FOREIGN, locate

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PEERS = locate()
SERVERS = {
    "everything": [*PEERS.everything, "stdio"],
    "python": [str(PEERS.peers_python), str(FOREIGN / "server_python.py"), "stdio"],
    "fastmcp": [str(PEERS.python("fastmcp")), str(FOREIGN / "server_fastmcp.py"), "stdio"],
}
CALLS = {"everything": ("echo", "message"), "python": ("echo", "text"), "fastmcp": ("echo", "text")}


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_of_others_is_inspected(browser: Browser, name: str) -> None:
    command = SERVERS[name]
    if not all(Path(part).exists() for part in command if os.sep in part):
        missing(f"{name} is not installed: python -m tests.interop.peers node peers fastmcp")
    tool, argument = CALLS[name]
    with inspecting(browser, shlex.join(command)) as inspected:
        page = inspected.open(f"#/tools/{tool}", eras=1)
        expect(page.locator("#states")).not_to_contain_text("Connecting")  # the era to look at is settled
        page.get_by_label(argument, exact=True).fill("Grüße")
        page.get_by_role("button", name="Run in").locator("visible=true").first.click()
        expect(page.locator(".call-result")).to_contain_text("Grüße")
        go(page, "#/wire")
        expect(page.locator("gemel-wire .row").filter(has_text="tools/call").first).to_be_visible()
        go(page, "#/findings")
        expect(page.get_by_role("heading", name="Findings")).to_be_visible()
        assert not inspected.problems
