"""The page by keyboard alone, and what axe-core finds."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed: make browser")

from playwright.sync_api import expect

from tests.browser.conftest import load_axe
from tests.browser.steps import VIEWS, Open, go, run, violations


def test_a_tool_is_found_run_and_answered_by_keyboard_alone(open_page: Open) -> None:
    page = open_page("#/tools")
    keys = page.keyboard
    keys.press("/")
    expect(page.get_by_label("Filter tools")).to_be_focused()
    keys.type("flight")
    keys.press("ArrowDown")  # from the filter into the list
    keys.press("ArrowDown")
    expect(page.get_by_role("heading", level=2, name="book")).to_be_visible()
    keys.press("Enter")  # into the tool
    keys.press("Tab")
    while not page.evaluate("document.activeElement.matches('textarea')"):
        keys.press("Tab")
    keys.type("Oslo")
    keys.press("Control+Enter")
    call = page.get_by_role("region", name="Call", exact=True)
    expect(call).to_contain_text("Which seat to Oslo?")
    while not page.evaluate("document.activeElement.matches('.question select')"):
        keys.press("Tab")
    keys.press("ArrowDown")
    keys.press("ArrowDown")
    while page.evaluate("document.activeElement.textContent") != "Accept":
        keys.press("Tab")
    keys.press("Enter")
    expect(call).to_contain_text("Book a seat at the aisle")
    expect(call).to_be_focused()
    while page.evaluate("document.activeElement.textContent") != "Decline":
        keys.press("Tab")
    keys.press("Enter")
    expect(call).to_contain_text("Not booked.")
    expect(call).to_be_focused()
    keys.press("Shift+Tab")
    while not page.evaluate("document.activeElement.matches('.detail *')"):
        keys.press("Shift+Tab")
    keys.press("Escape")
    expect(page.get_by_role("listbox", name="Tools")).to_be_focused()


def test_enter_opens_what_the_filter_leaves(open_page: Open) -> None:
    page = open_page("#/tools/forecast")
    page.keyboard.press("/")
    page.keyboard.type("flight")
    expect(page.get_by_role("listbox", name="Tools").get_by_role("option")).to_have_count(1)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=2, name="book")).to_be_visible()


def test_the_focus_stays_at_a_call_that_is_cancelled_by_key(open_page: Open) -> None:
    page = open_page("#/tools/watch_storm")
    call = run(page)
    call.get_by_role("button", name="Cancel", exact=True).press("Enter")
    expect(call).to_contain_text("The call was cancelled.")
    expect(call).to_be_focused()


def test_lists_move_by_arrows_and_say_where_they_are(open_page: Open) -> None:
    page = open_page("#/tools")
    box = page.get_by_role("listbox", name="Tools")
    box.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    selected = box.get_by_role("option", selected=True)
    expect(selected).to_contain_text("radar")
    expect(box).to_have_attribute("aria-activedescendant", str(selected.get_attribute("id")))
    expect(selected).to_have_attribute("aria-posinset", "2")


def test_the_end_of_a_call_is_announced(open_page: Open) -> None:
    page = open_page("#/tools/siren")
    run(page)
    expect(page.locator("#announcements")).to_contain_text("siren done")


@pytest.mark.parametrize(
    "look", [{"color_scheme": "light"}, {"color_scheme": "dark"}, {"viewport": {"width": 400, "height": 800}}]
)
def test_axe_finds_nothing_in_any_view(open_page: Open, look: dict[str, Any]) -> None:
    page = open_page("#/tools/siren", bypass_csp=True, **look)
    load_axe(page)
    page.get_by_role("button", name="Run in both eras").click()
    expect(page.get_by_text("Same result")).to_be_visible()
    go(page, "#/tools/pay")
    run(page)
    panel = page.locator("gemel-tools .call")
    expect(panel).to_contain_text("Please pay at your bank")
    found = violations(page, "tools")
    for view in VIEWS:
        go(page, "#/tools/add_alert" if view == "tools" else f"#/{view}")
        shown = page.locator(f"gemel-{view}")
        expect(shown).to_be_visible()
        if view in ("resources", "prompts", "wire", "history"):
            shown.locator(".row").first.click()
        found += violations(page, view)
    assert not found
    go(page, "#/tools/pay")
    panel.get_by_role("button", name="Decline").click()
    expect(panel).to_contain_text("Tool error")
