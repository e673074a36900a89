"""The pictures of the documentation: with PICTURES=1 they are taken again, else the page must still look roughly like them."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed: make browser")

from playwright.sync_api import expect

from tests.browser.conftest import ROOT, SERVERS, WEATHER, Inspected, inspecting
from tests.browser.steps import fill, go, run
from tests.docs.documents import blocks

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PICTURES = ROOT / "docs" / "pictures"
#: The mean difference of two pictures, of 255, above which they don't look alike.
TOLERANCE = 8.0
COMPARE = """async (pictures) => {
  const pixels = [];
  for (const data of pictures) {
    const image = new Image();
    image.src = `data:image/webp;base64,${data}`;
    await image.decode();
    const canvas = new OffscreenCanvas(64, 40);
    const context = canvas.getContext("2d");
    context.drawImage(image, 0, 0, 64, 40);
    pixels.push(context.getImageData(0, 0, 64, 40).data);
  }
  return pixels[0].reduce((sum, value, index) => sum + Math.abs(value - pixels[1][index]), 0) / pixels[0].length;
}"""


@pytest.fixture(scope="module")
def station(browser: Browser) -> Iterator[Inspected]:
    """`gemel dev` on the weather station with some calls behind it."""
    with inspecting(browser, WEATHER, "--no-reload") as inspected:
        page = inspected.open("#/tools/forecast")
        for city in ("Oslo", "Bergen", "Atlantis", "Lisbon"):
            fill(page, city=city)
            run_to_end(page)
        go(page, "#/tools/measure")
        run_to_end(page)
        inspected.contexts.pop().close()
        yield inspected


def run_to_end(page: Page) -> None:
    """Run what is shown, to its end."""
    run(page)
    expect(page.locator(".call .chip.good, .call .chip.bad").locator("visible=true").first).to_be_visible()


def tools(page: Page) -> None:
    go(page, "#/tools/forecast")
    fill(page, city="Oslo", days="4")
    run_to_end(page)
    expect(page.get_by_role("row").filter(has_text="Thursday")).to_be_visible()


def question(page: Page) -> None:
    go(page, "#/tools/book")
    fill(page, city="Lisbon")
    run(page)
    expect(page.get_by_role("heading", name="The server asks")).to_be_visible()


def answered(page: Page) -> None:
    question(page)
    for name, answer in (("seat", "window"), ("value", "true")):
        page.get_by_label(name).locator("visible=true").last.select_option(label=answer)
        page.get_by_role("button", name="Accept").click()
    expect(page.locator(".call-result").locator("visible=true")).to_contain_text("ooked")


def wire(page: Page) -> None:
    answered(page)
    page.get_by_role("link", name="Messages", exact=True).click()
    expect(page.get_by_text("Round 3", exact=True)).to_be_visible()
    page.locator(".bubble summary").nth(1).click()
    page.mouse.move(0, 0)


def compare(page: Page) -> None:
    go(page, "#/tools/measure")
    page.get_by_role("button", name="Run in both eras").locator("visible=true").click()
    expect(page.get_by_text("Same result")).to_be_visible()


def measures(page: Page) -> None:
    go(page, "#/measures")
    expect(page.get_by_role("row").filter(has_text="forecast")).to_be_visible()


TALL = {"viewport": {"width": 1280, "height": 960}}
NARROW = {"viewport": {"width": 390, "height": 780}}
SMALL: dict[str, Any] = {"viewport": {"width": 1000, "height": 700}}
TUTORIAL = ROOT / "docs" / "tutorial.md"


@pytest.mark.parametrize(
    ("name", "prepare", "look"),
    [
        ("dev-tools", tools, TALL),
        ("dev-tools-dark", tools, {**TALL, "color_scheme": "dark"}),
        ("dev-wire-dark", wire, {"color_scheme": "dark"}),
        ("dev-compare", compare, {}),
        ("dev-measures", measures, {}),
        ("dev-narrow", wire, NARROW),
        ("dev-question", question, {}),
    ],
)
def test_the_page_looks_as_in_the_documentation(
    station: Inspected, name: str, prepare: Any, look: dict[str, Any]
) -> None:
    page = station.open("#/contract", **look)
    prepare(page)
    assert difference_from(station, page, name) < TOLERANCE


def test_a_failure_looks_as_in_the_documentation(browser: Browser) -> None:
    with inspecting(browser, SERVERS / "broken.py", "--no-reload") as broken:
        page = broken.open("#/tools/count")
        expect(run(page)).to_contain_text("fit its output schema")
        assert difference_from(broken, page, "dev-failed") < TOLERANCE


def test_the_tutorial_looks_as_it_shows(browser: Browser, tmp_path: Path) -> None:
    first, second = (block.text for block in blocks(TUTORIAL) if block.module == "notes.py")
    (tmp_path / "notes.py").write_text(first, encoding="utf-8")
    with inspecting(browser, tmp_path / "notes.py", "--no-reload") as inspected:
        page = inspected.open("#/tools/add_note", **SMALL)
        fill(page, title="Milk", text="Two litres")
        run_to_end(page)
        assert difference_from(inspected, page, "tutorial-tool") < TOLERANCE
    (tmp_path / "notes.py").write_text(second, encoding="utf-8")
    with inspecting(browser, tmp_path / "notes.py", "--no-reload") as inspected:
        page = inspected.open("#/tools/add_note", **SMALL)
        fill(page, title="Milk", text="Two litres")
        run_to_end(page)
        inspected.contexts.pop().close()
        page = inspected.open("#/tools/delete_note", **SMALL)
        fill(page, title="Milk")
        run(page)
        expect(page.get_by_role("heading", name="The server asks")).to_be_visible()
        assert difference_from(inspected, page, "tutorial-question") < TOLERANCE


def difference_from(inspected: Inspected, page: Page, name: str) -> float:
    """How much a page differs from a picture of the documentation. Closes the page."""
    page.locator("#toasts:empty").wait_for(state="attached")
    session = page.context.new_cdp_session(page)
    taken = session.send("Page.captureScreenshot", {"format": "webp", "quality": 82})["data"]
    file = PICTURES / f"{name}.webp"
    if os.environ.get("PICTURES"):
        file.write_bytes(base64.b64decode(taken))
    kept = base64.b64encode(file.read_bytes()).decode()
    judge = inspected.browser.new_page()
    difference: float = judge.evaluate(COMPARE, [kept, taken])
    judge.close()
    inspected.contexts.pop().close()
    return difference
