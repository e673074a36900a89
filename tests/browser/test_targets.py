"""Other targets than a file that stays as it is: an edited program, HTTP, and pages of apps."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed: make browser")

from playwright.sync_api import expect

from tests.browser.conftest import SERVERS, WEATHER, go, inspecting, serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def test_a_saved_edit_reloads_the_server_and_says_whom_it_breaks(browser: Browser, tmp_path: Path) -> None:
    shutil.copy(SERVERS / "chart.html", tmp_path)
    file = tmp_path / "weather.py"
    text = WEATHER.read_text(encoding="utf-8")
    file.write_text(text, encoding="utf-8")
    with inspecting(browser, file) as inspected:
        page = inspected.open("#/tools/forecast")
        page.get_by_label("city", exact=True).fill("Oslo")
        file.write_text(text.replace("def siren(", "def foghorn(").replace("One row", "Each row"), encoding="utf-8")
        expect(page.get_by_role("option").filter(has_text="foghorn")).to_be_visible()
        expect(page.get_by_text("Reloaded")).to_be_visible()
        expect(page.get_by_label("city", exact=True)).to_have_value("Oslo")  # what was typed stays
        go(page, "#/contract")
        expect(page.get_by_text("breaks clients").first).to_be_visible()
        expect(page.get_by_text("siren").locator("visible=true").first).to_be_visible()
        file.write_text("this is not Python\n", encoding="utf-8")
        expect(page.get_by_text("Reload failed")).to_be_visible()
        file.write_text(text, encoding="utf-8")
        go(page, "#/tools")
        expect(page.get_by_role("option").filter(has_text="siren")).to_be_visible()
        assert not inspected.problems


def test_headers_of_http_requests_are_shown_and_decoded(browser: Browser) -> None:
    with serving(WEATHER) as url, inspecting(browser, url) as inspected:
        page = inspected.open("#/tools/route_to")
        page.get_by_label("region", exact=True).fill("Île-de-France")
        page.get_by_role("button", name="Run in 2026").click()
        expect(page.locator(".call-result")).to_contain_text("Served in Île-de-France.")
        page.get_by_role("region", name="Call", exact=True).get_by_role("link", name="Messages").click()
        page.locator("hinge-wire .row").filter(has_text="route_to").click()
        headers = page.get_by_role("region", name="HTTP headers")
        row = headers.get_by_role("row").filter(has_text="mcp-param-region")
        expect(row).to_contain_text("=?base64?")
        expect(row).to_contain_text("Île-de-France")
        expect(headers.get_by_role("row").filter(has_text="mcp-protocol-version")).to_contain_text("2026-07-28")


def test_a_page_of_an_app_is_shown_and_asks_before_it_calls(browser: Browser) -> None:
    with inspecting(browser, WEATHER, "--no-reload") as inspected:
        page = inspected.open("#/apps/show_chart")
        page.get_by_label("city", exact=True).fill("Oslo")
        page.get_by_role("button", name="Run and show its page").click()
        app = page.frame_locator("iframe")
        expect(app.get_by_role("heading")).to_have_text("Chart of Oslo")
        expect(app.locator("#bars .b")).to_have_count(7)
        app.get_by_role("button", name="Ask for the forecast").click()
        expect(page.get_by_text("The app calls the tool")).to_be_visible()
        page.get_by_role("button", name="Refuse").click()
        expect(app.locator("#answer")).to_contain_text("Refused")
        app.get_by_role("button", name="Ask for the forecast").click()
        page.get_by_role("button", name="Allow").click()
        expect(app.locator("#answer")).to_contain_text("Monday")
        frame = page.frames[1]
        assert frame.evaluate("self.origin") == "null"
        assert (
            frame.evaluate("(() => { try { return parent.document.title; } catch { return 'refused'; } })()")
            == "refused"
        )
        assert not inspected.problems
