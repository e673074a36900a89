"""Other targets than a file that stays as it is: an edited program, HTTP, and pages of apps."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed: make browser")

from playwright.sync_api import expect

from tests.auth.double import AuthDouble
from tests.browser.conftest import SERVERS, WEATHER, in_thread, inspecting, serving
from tests.browser.steps import fill, go, run

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def test_a_saved_edit_reloads_the_server_and_says_whom_it_breaks(browser: Browser, tmp_path: Path) -> None:
    shutil.copy(SERVERS / "chart.html", tmp_path)
    file = tmp_path / "weather.py"
    text = WEATHER.read_text(encoding="utf-8")
    file.write_text(text, encoding="utf-8")
    with inspecting(browser, file) as inspected:
        page = inspected.open("#/tools/forecast")
        fill(page, city="Oslo")
        file.write_text(text.replace("def siren(", "def foghorn("), encoding="utf-8")
        expect(page.get_by_role("option").filter(has_text="foghorn")).to_be_visible()
        expect(page.get_by_text("Reloaded")).to_be_visible()
        expect(page.get_by_label("city", exact=True)).to_have_value("Oslo")  # what was typed stays
        expect(page.get_by_label("city", exact=True)).to_be_focused()
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
        fill(page, region="Île-de-France")
        run(page)
        expect(page.locator(".call-result")).to_contain_text("Served in Île-de-France.")
        page.get_by_role("region", name="Call", exact=True).get_by_role("link", name="Messages").click()
        page.locator("gemel-wire .row").filter(has_text="route_to").click()
        headers = page.get_by_role("region", name="HTTP headers")
        row = headers.get_by_role("row").filter(has_text="mcp-param-region")
        expect(row).to_contain_text("=?base64?")
        expect(row).to_contain_text("Île-de-France")
        expect(headers.get_by_role("row").filter(has_text="mcp-protocol-version")).to_contain_text("2026-07-28")


def test_a_page_of_an_app_is_shown_and_asks_before_it_calls(browser: Browser) -> None:
    with inspecting(browser, WEATHER, "--no-reload") as inspected:
        page = inspected.open("#/apps/show_chart")
        fill(page, city="Oslo")
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
        state = f"fetch({inspected.base + 'api/state'!r}, {{ credentials: 'include' }})"
        assert frame.evaluate(f"{state}.then(() => 'read', () => 'refused')") == "refused"


def test_a_person_logs_in_and_out_from_the_page(browser: Browser, tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
    with in_thread(AuthDouble()) as double, inspecting(browser, double.url, "--era", "2026", **home) as inspected:
        page = inspected.open("#/connection", eras=0)
        card = page.get_by_role("region", name="Era 2026")
        expect(card).to_contain_text("Failed")
        card.get_by_role("button", name="Log in").click()
        with page.expect_popup() as opened:
            card.get_by_role("link", name="Open the login page").click()
        expect(opened.value.locator("body")).to_contain_text("You may close this page")
        expect(card).to_contain_text("Connected")
        expect(card).to_contain_text("Logged in to")
        go(page, "#/tools")
        expect(page.locator("gemel-tools .row").filter(has_text="read")).to_be_visible()
        go(page, "#/connection")
        card.get_by_role("button", name="Log out").click()
        expect(card).to_contain_text("Logged out")
        expect(card).to_contain_text("Failed")
