"""The page of a question: on a phone, by keyboard alone, with what is wrong, and what axe-core finds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed: make browser")

from playwright.sync_api import Browser, Page, expect

import gemel.sync
from gemel import Context, Server
from gemel.ask_by_page import AskByPage
from tests.browser.conftest import PATIENCE, load_axe

FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "traveller": {"type": "string", "description": "As in the passport", "minLength": 2},
        "mail": {"type": "string", "format": "email", "title": "E-mail"},
        "day": {"type": "string", "format": "date"},
        "bags": {"type": "integer", "minimum": 0, "maximum": 9},
        "seat": {"type": "string", "oneOf": [{"const": "w", "title": "Window"}, {"const": "a", "title": "Aisle"}]},
        "extras": {"type": "array", "items": {"type": "string", "enum": ["wifi", "lounge"]}, "maxItems": 1},
        "meal": {"type": "boolean", "default": True},
    },
    "required": ["traveller", "bags", "seat", "meal"],
}


class Desk:
    """A tool that asks on a page, its client, and the answer that it got."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.answers: list[Any] = []
        server: Server[Any] = Server("travel", title="Travel desk", ask=AskByPage(open_url=self._open))
        server.tool(self.book)
        self.client = gemel.sync.Client(server)

    def _open(self, url: str) -> bool:
        self.opened.append(url)
        return True

    async def book(self, ctx: Context, city: str) -> str:
        """Book a trip."""
        self.answers.append(await ctx.elicit(f"Who travels to {city}?", FORM))
        return "booked"

    def call(self) -> Any:
        city = "Llanfairpwllgwyngyllgogerychwyrndrobwllllantysiliogogogoch" * 3
        return self.client.call_tool("book", {"city": city}, raise_on_error=False)


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    with desk.client:
        desk.call()
        yield desk


@pytest.fixture
def page(desk: Desk, browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """The page on a phone. Errors of the Content-Security-Policy fail the test."""
    options = {"viewport": {"width": 390, "height": 800}, **getattr(request, "param", {})}
    context = browser.new_context(**options)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    problems: list[str] = []
    page.on("console", lambda line: problems.append(line.text) if "Content Security" in line.text else None)
    page.goto(desk.opened[-1])
    yield page
    context.close()
    assert not problems


def test_nothing_is_wider_than_a_phone(page: Page, desk: Desk) -> None:
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    heights = page.evaluate(
        "[...document.querySelectorAll('input:not([type=hidden]):not([type=checkbox]),select,button,label.choice')]"
        ".map(one => one.getBoundingClientRect().height)"
    )
    assert len(heights) >= 10
    assert min(heights) >= 44  # what a finger hits
    expect(page.get_by_text("Who travels to Llanfair")).to_be_visible()


def test_a_form_is_filled_in_by_keyboard_alone(page: Page, desk: Desk) -> None:
    keys = page.keyboard

    def to(selector: str) -> None:
        for _ in range(40):
            keys.press("Tab")
            if page.evaluate(f"document.activeElement.matches({selector!r})"):
                return
        raise AssertionError(f"{selector} can't be reached by keyboard")

    to("#f0")
    keys.type("Ada")
    to("[type=number]")
    keys.type("2")
    to("select")
    keys.type("Aisle")
    to("[type=checkbox][value='1']")
    keys.press("Space")
    to("#f6")
    keys.press("Space")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"
    to("button[value=accept]")
    keys.press("Enter")
    expect(page.get_by_role("heading", name="Thank you")).to_be_visible()
    assert desk.call().text == "booked"
    assert desk.answers == [{"traveller": "Ada", "bags": 2, "seat": "a", "extras": ["lounge"], "meal": False}]


def test_what_is_wrong_is_shown_and_what_was_written_kept(page: Page, desk: Desk) -> None:
    """The browser checks what HTML can say; the server says the rest."""
    page.get_by_label("traveller").fill("Ada")
    page.get_by_label("bags").fill("2")
    page.get_by_label("seat").select_option(label="Window")
    page.get_by_label("wifi").check()
    page.get_by_label("lounge").check()
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.get_by_role("group", name="extras")).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_label("traveller")).to_have_value("Ada")
    expect(page.get_by_label("seat")).to_have_value("0")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_label("wifi").uncheck()
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("heading", name="Thank you")).to_be_visible()


def test_the_browser_asks_for_what_is_missing_but_declining_needs_nothing(page: Page, desk: Desk) -> None:
    page.get_by_role("button", name="Send").click()
    assert page.evaluate("document.querySelector(':invalid') !== null")
    expect(page.get_by_role("heading", name="Your assistant has a question")).to_be_visible()
    page.get_by_role("button", name="Decline").click()
    expect(page.get_by_role("heading", name="You declined")).to_be_visible()
    assert "declined" in desk.call().text


@pytest.mark.parametrize(
    "page", [{"bypass_csp": True}, {"bypass_csp": True, "color_scheme": "dark"}], indirect=True, ids=["light", "dark"]
)
def test_axe_finds_nothing(page: Page, desk: Desk) -> None:
    load_axe(page)
    found = page.evaluate("axe.run().then(found => found.violations.map(one => `${one.id}: ${one.nodes[0].html}`))")
    assert found == []


def test_without_scripts_the_page_is_the_same(desk: Desk, browser: Browser) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(desk.opened[-1])
    page.get_by_role("button", name="Decline").click()
    expect(page.get_by_role("heading", name="You declined")).to_be_visible()
    context.close()
