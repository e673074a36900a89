"""The panel of a call lists the calls inside of it, what policies decided about each, and their receipts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed: make browser")

from playwright.sync_api import expect

from tests.browser.conftest import AXE, inspecting, load_axe
from tests.browser.steps import fill, go, look_at, run, violations

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SERVER = """
from gemel import Context, Server, ToolError
from gemel.policies import Policy
from gemel.receipts import Receipts

rules = [
    {"name": "<b>no secrets</b>", "tool": "read", "arguments": {"path": "/etc/*"}, "effect": "deny"},
    {"name": "payments", "tool": "pay", "effect": "ask"},
]
policy = Policy({"default": "allow", "rule": rules})
server = Server("desk", middleware=[Receipts("receipts.jsonl"), policy])

@server.tool
def read(path: str) -> str:
    return f"content of {path}"

@server.tool
def pay(to: str) -> str:
    return f"paid {to}"

@server.tool
async def copy(ctx: Context, path: str) -> str:
    try:
        return (await ctx.call_tool("read", {"path": path})).text
    except ToolError as exc:
        return str(exc)
"""


@pytest.mark.parametrize("era", ["2026", "2025"])
def test_inner_calls_decisions_and_receipts_are_in_the_panel_of_the_call(
    browser: Browser, tmp_path: Path, era: str
) -> None:
    (tmp_path / "desk.py").write_text(SERVER)
    with inspecting(browser, tmp_path / "desk.py", "--no-reload", "--cwd", str(tmp_path)) as inspected:
        page = inspected.open("#/tools/copy", bypass_csp=AXE.exists())
        look_at(page, era)
        fill(page, path="/etc/passwd")
        call = run(page, f"Run in {era}")
        inside = call.get_by_role("list", name="Calls inside").get_by_role("listitem")
        expect(inside).to_have_count(2)
        expect(inside.nth(0)).to_contain_text("copy")
        expect(inside.nth(0)).to_contain_text("allow: default")
        expect(inside.nth(0)).to_contain_text("ok")
        expect(inside.nth(1)).to_contain_text("read")
        expect(inside.nth(1)).to_contain_text("deny: <b>no secrets</b>")
        expect(inside.nth(1)).to_contain_text("tool error")
        inside.nth(1).locator("summary").click()
        expect(inside.nth(1)).to_contain_text("gemel.receipt.outcome")
        if AXE.exists():
            load_axe(page)
            assert violations(page, "call") == []
        go(page, "#/tools/pay")
        fill(page, to="Ann")
        call = run(page, f"Run in {era}")
        call.get_by_role("combobox").select_option(label="true")
        call.get_by_role("button", name="Accept", exact=True).click()
        inside = call.get_by_role("list", name="Calls inside").get_by_role("listitem")
        expect(inside.last).to_contain_text("ask: payments")
        expect(inside.last).to_contain_text("approved by the user")
        assert not inspected.problems
