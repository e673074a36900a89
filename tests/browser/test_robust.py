"""The page with hostile servers, large ones, and many messages."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed: make browser")

from playwright.sync_api import expect

from tests.browser.conftest import SERVERS, Inspected, inspecting
from tests.browser.steps import VIEWS, fill, is_unharmed, run

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

MARKUP = "<img src=x onerror="


FLOOD = """() => fetch("/api/commands", {
  method: "POST", headers: { "Content-Type": "application/json" },
  body: JSON.stringify({ do: "call", era: "2025", method: "tools/call", params: { name: "flood", arguments: { count: 10000 } } }),
})"""
#: Feeds the store of the page with 250,000 messages from a number on; how many it keeps.
FEED = """async (first) => {
  const { store } = await import("/page/store.js");
  const params = (n) => ({ level: "info", data: `line ${n}` });
  const raw = (n) => JSON.stringify({
    n, kind: "message", at: n, era: "2025", channel: 1, sender: "server", method: "notifications/message", size: 90,
    data: { jsonrpc: "2.0", method: "notifications/message", params: params(n) },
  });
  for (let start = first; start < first + 250000; start += 1000) {
    for (let n = start; n < start + 1000; n++) { const text = raw(n); store.apply(JSON.parse(text), text); }
    await new Promise((go) => setTimeout(go));
  }
  return store.messages.length;
}"""


def count(page: Page) -> int:
    """The number of messages beside Wire in the navigation."""
    return int(page.locator("[data-view=wire] .nav-count").inner_text().replace(",", ""))


@pytest.fixture(scope="module")
def hostile(browser: Browser) -> Iterator[Inspected]:
    with inspecting(browser, f"{sys.executable} {SERVERS / 'hostile.py'}", "--era", "2025") as inspected:
        yield inspected


@pytest.fixture(scope="module")
def many(browser: Browser) -> Iterator[Inspected]:
    with inspecting(browser, SERVERS / "many.py", "--no-reload") as inspected:
        yield inspected


def heap(page: Page) -> int:
    """The bytes of memory that the scripts of a page use, without garbage."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    used: int = session.send("Runtime.getHeapUsage")["usedSize"]
    return used


def rows(page: Page) -> Locator:
    """What is drawn of the list on the screen."""
    return page.locator("[role=listbox] [role=option]").locator("visible=true")


def open_hostile(hostile: Inspected, place: str) -> Page:
    hostile.problems.clear()
    return hostile.open(place, eras=1)


# ---------------------------------------------------------------- hostile servers


@pytest.mark.parametrize("view", VIEWS)
def test_each_view_shows_hostile_texts_as_text(hostile: Inspected, view: str) -> None:
    page = open_hostile(hostile, f"#/{view}")
    expect(page.locator(f"gemel-{view}")).to_be_visible()
    expect(page.locator("#server")).to_contain_text(MARKUP)
    is_unharmed(page, hostile)


@pytest.mark.parametrize("tool", range(11))
def test_each_hostile_schema_makes_a_form_that_can_be_sent(hostile: Inspected, tool: int) -> None:
    page = open_hostile(hostile, "#/tools")
    rows(page).nth(tool).click()
    run(page, "Run in 2025")
    call = page.get_by_role("region", name="Call", exact=True)
    expect(call.or_(page.locator(".run .note:not(:empty)"))).to_be_visible()
    if not call.is_visible():  # something that is required is missing
        run(page, "Run in 2025")
    expect(call).to_be_visible()
    if tool == 10:
        expect(call).to_contain_text("javascript:document")
        expect(call.get_by_role("link", name="Open the page")).to_have_count(0)
        call.get_by_role("button", name="Decline").click()
    expect(call).to_contain_text("Done")
    is_unharmed(page, hostile)


def test_invisible_characters_of_names_and_descriptions_are_shown(hostile: Inspected) -> None:
    page = open_hostile(hostile, "#/tools")
    expect(rows(page).nth(1)).to_contain_text("safe\\u202egnp.exe\\u2066\\u200b")
    rows(page).nth(1).click()
    expect(page.locator("p.description").first).to_contain_text("safe\\u202egnp.exe\\u2066\\u200b")
    is_unharmed(page, hostile)


def test_members_named_as_prototypes_are_sent(hostile: Inspected) -> None:
    page = open_hostile(hostile, "#/tools/__proto__")
    fill(page, __proto__="polluted")
    run(page, "Run in 2025")
    expect(page.locator(".call-result")).to_contain_text('{"__proto__": "polluted"}')
    assert page.evaluate("({}).polluted === undefined")
    is_unharmed(page, hostile)


def test_hostile_results_are_text_and_their_pictures_harmless(hostile: Inspected) -> None:
    page = open_hostile(hostile, "#/tools/results")
    run(page, "Run in 2025")
    page.get_by_role("button", name="Load it").click()
    result = page.locator(".call-result")
    expect(result).to_contain_text(MARKUP)
    expect(result.get_by_text("The data is not base64.")).to_be_visible()
    expect(result.get_by_role("button", name="Show all 300,000 characters")).to_be_attached()
    expect(result.get_by_text("The browser can't show this picture.")).to_be_visible()
    assert (
        page.evaluate(
            "document.querySelectorAll('.call-result iframe, .call-result object, .call-result embed').length"
        )
        == 0
    )
    is_unharmed(page, hostile)


# ---------------------------------------------------------------- much


def test_a_thousand_tools_are_filtered_and_scrolled_at_once(many: Inspected) -> None:
    page = many.open("#/tools")
    expect(rows(page).first).to_have_attribute("aria-setsize", "1000")
    assert rows(page).count() < 60  # only what is in sight is drawn
    page.get_by_role("listbox", name="Tools").press("End")
    expect(page.get_by_role("heading", level=2, name="tool_998")).to_be_visible()
    page.get_by_label("Filter tools").fill("tool_77")
    expect(rows(page)).to_have_count(10)
    many.contexts.pop().close()


def test_ten_thousand_messages_come_without_a_long_task(many: Inspected) -> None:
    """No task of the page takes 50 ms of processor time, and what is typed meanwhile takes effect."""
    page = many.open("#/wire")
    expect(rows(page).first).to_be_visible()
    before = count(page)
    many.browser.start_tracing(page=page, categories=["toplevel", "disabled-by-default-lifecycles", "__metadata"])
    page.evaluate(FLOOD)
    end = time.monotonic() + 60
    while count(page) < before + 10_000:
        assert time.monotonic() < end
        page.get_by_label("Filter messages").fill("drop 9")
    expect(rows(page).filter(has_text="drop 9999").first).to_be_visible()
    tasks = tasks_of_page(json.loads(many.browser.stop_tracing())["traceEvents"])
    many.contexts.pop().close()
    assert len(tasks) > 100
    assert max(tasks) < 50


def tasks_of_page(events: list[dict[str, Any]]) -> list[float]:
    """The processor time of each task of the page's main thread, in milliseconds."""
    main = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    return [
        event["tdur"] / 1000
        for event in events
        if event["name"].endswith("RunTask") and (event["pid"], event["tid"]) in main and "tdur" in event
    ]


def test_the_store_of_the_page_is_bounded(many: Inspected) -> None:
    """A page that is fed more than it keeps drops the oldest messages, and says how many are there."""
    page = many.open("#/wire")
    expect(rows(page).first).to_be_visible()
    sizes = []
    for first in (10_000_000, 20_000_000):
        assert 100_000 <= page.evaluate(FEED, first) <= 101_000
        page.get_by_label("Filter messages").fill(f"line {first + 249_999}")
        expect(rows(page).filter(has_text=f"line {first + 249_999}")).to_be_visible()
        page.get_by_label("Filter messages").fill("")
        expect(rows(page).nth(10)).to_be_visible()
        sizes.append((heap(page), page.locator("*").count()))
    (bytes_before, elements_before), (bytes_after, elements_after) = sizes
    assert bytes_after < 1.1 * bytes_before
    assert elements_after <= elements_before + 10
    many.contexts.pop().close()


def test_the_page_is_small(browser: Browser, many: Inspected) -> None:
    """All that a browser loads for the first view, as it is sent."""
    page = many.open()
    sizes = page.evaluate(
        "performance.getEntriesByType('resource').filter((one) => one.name.includes('/page/')).map((one) => one.encodedBodySize)"
    )
    many.contexts.pop().close()
    assert len(sizes) > 10
    assert sum(sizes) < 61_000
