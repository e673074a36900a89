"""Forms: what a field says and sends, what is missing, and where Run and the result are."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed: make browser")

from playwright.sync_api import expect

from tests.browser.conftest import SERVERS, Inspected, inspecting, load_axe
from tests.browser.steps import fill, panel, run, violations

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

WIDE = {"viewport": {"width": 1280, "height": 800}}
NARROW = {"viewport": {"width": 390, "height": 844}}
NUMBER = "123e4567-e89b-12d3-a456-426614174000"
REQUIRED = ("number", "day", "due", "total", "customer", "code", "approver")


@pytest.fixture(scope="module")
def forms(browser: Browser) -> Iterator[Inspected]:
    with inspecting(browser, SERVERS / "forms.py", "--no-reload") as inspected:
        yield inspected


@pytest.fixture
def open_form(forms: Inspected) -> Iterator[Callable[..., Page]]:
    """Opens a page with the form of the invoice."""
    yield lambda **look: forms.open("#/tools/file_invoice", **look)
    forms.contexts.pop().close()
    assert not forms.problems


def field(page: Page, name: str) -> Locator:
    """The field of an argument, with its name and its hints."""
    return page.locator(".field").filter(has=page.get_by_label(name, exact=True)).last


def fill_in(page: Page) -> None:
    """Fill in what is required."""
    fill(page, number=NUMBER, day="2026-07-28", due="2026-08-28T12:00:00Z", total="19.90", customer="Ada", code="A1")
    fill(page, approver="Grace")


@pytest.mark.parametrize("look", [WIDE, NARROW])
def test_run_stays_in_sight_and_the_result_comes_into_sight(
    open_form: Callable[..., Page], look: dict[str, Any]
) -> None:
    page = open_form(**look)
    button = page.get_by_role("button", name="Run in 2026")
    assert page.locator(".editor").evaluate("(form) => form.scrollHeight") > look["viewport"]["height"]
    expect(button).to_be_in_viewport(ratio=1)
    fill_in(page)
    page.get_by_label("remarks", exact=True).scroll_into_view_if_needed()
    expect(button).to_be_in_viewport(ratio=1)
    page.get_by_label("number", exact=True).focus()
    call = run(page)
    expect(call.locator(".call-result")).to_be_in_viewport()
    expect(call).to_be_focused()  # what was pressed is out of sight
    expect(page.locator("#announcements")).to_contain_text("file_invoice done")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_field_that_was_left_by_a_key_keeps_the_focus(open_form: Callable[..., Page]) -> None:
    page = open_form()
    fill_in(page)
    page.get_by_label("customer", exact=True).press("Control+Enter")
    expect(panel(page).locator(".call-result")).to_be_in_viewport()
    expect(page.get_by_label("customer", exact=True)).to_be_focused()


def test_a_focused_field_is_not_behind_the_buttons(open_form: Callable[..., Page]) -> None:
    page = open_form(**NARROW)
    page.get_by_label("number", exact=True).focus()
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.closest('.run') !== null"):
            break
        assert page.evaluate(
            "document.activeElement.getBoundingClientRect().bottom"
            " <= document.querySelector('.run').getBoundingClientRect().top"
        )


def test_what_nobody_has_chosen_is_missing(forms: Inspected) -> None:
    page = forms.open("#/tools/stamp")
    expect(field(page, "text")).to_contain_text("at least 1 character")
    expect(field(page, "text")).not_to_contain_text("characters")
    fill(page, text="now")
    run(page)
    for name in ("kind", "urgent"):
        expect(field(page, name)).to_contain_text("This is required.")
    expect(page.get_by_role("region", name="Call", exact=True)).to_have_count(0)
    page.get_by_label("kind", exact=True).select_option(label="open")
    page.get_by_label("urgent", exact=True).select_option(label="false")
    expect(run(page)).to_contain_text("open, False, now, blue")


def test_everything_that_is_missing_is_marked_and_sent_only_on_demand(open_form: Callable[..., Page]) -> None:
    page = open_form()
    run(page)
    for name in REQUIRED:
        expect(field(page, name)).to_contain_text("This is required.")
        expect(page.get_by_label(name, exact=True)).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_label("number", exact=True)).to_be_focused()
    note = page.locator(".run").get_by_text("Not sent, since something is missing: number, day, due,")
    expect(note).to_be_in_viewport(ratio=1)
    expect(page.get_by_role("region", name="Call", exact=True)).to_have_count(0)
    fill_in(page)
    page.get_by_label("day", exact=True).fill("")
    run(page)
    expect(page.get_by_label("day", exact=True)).to_be_focused()
    expect(field(page, "number")).not_to_contain_text("This is required.")
    run(page)  # once more: the server says what it thinks of it
    expect(panel(page)).to_contain_text("day")
    expect(panel(page)).to_contain_text("Tool error")


def test_fields_say_what_they_take(open_form: Callable[..., Page]) -> None:
    page = open_form()
    types = {"number": "uuid", "day": "date", "due": "date-time", "total": "decimal", "discount": "decimal"}
    for name, text in {**types, "paid": "date", "reminder": "time", "customer": "string"}.items():
        expect(field(page, name).locator(".field-type")).to_have_text(text)
    expect(page.get_by_label("day", exact=True)).to_have_attribute("type", "date")
    expect(page.get_by_label("number", exact=True)).to_have_attribute("placeholder", f"such as {NUMBER}")
    for name, wrong in {"number": "7", "due": "tomorrow", "total": "much", "reminder": "noon"}.items():
        fill(page, **{name: wrong})
        page.get_by_label(name, exact=True).press("Tab")
        expect(field(page, name)).to_contain_text(f"Expected: {field(page, name).locator('.field-type').inner_text()}")


def test_decimals_are_sent_with_all_their_digits(open_form: Callable[..., Page]) -> None:
    page = open_form()
    fill_in(page)
    fill(page, total="19.90", discount="0.10000000000000000001")
    result = run(page)
    expect(result).to_contain_text('"19.90"')
    expect(result).to_contain_text('"0.10000000000000000001"')


def test_an_optional_argument_is_one_control(open_form: Callable[..., Page]) -> None:
    page = open_form()
    assert "default null" not in page.locator(".editor").inner_text()
    for name in ("discount", "paid", "remarks"):
        expect(field(page, name).locator("input, select, textarea")).to_have_count(1)
        expect(page.get_by_label(name, exact=True)).not_to_have_attribute("placeholder", "null")
    expect(page.get_by_label("kind", exact=True).locator("option")).to_have_text(["not sent", "paper", "mail"])
    expect(page.get_by_label("copies", exact=True)).to_have_attribute("placeholder", "default 1")
    # Null is something else than nothing where it is not the default, and where something is required.
    expect(page.get_by_label("send null")).to_have_count(2)
    fill_in(page)
    expect(run(page).get_by_text('"copies":1', exact=False)).to_be_visible()
    page.get_by_label("send null").last.check()
    expect(run(page).get_by_text('"copies":null', exact=False)).to_be_visible()


def test_null_is_offered_only_where_it_differs_from_nothing(browser: Browser) -> None:
    """Schemas as pydantic writes them, of a server that is not made with Gemel."""
    with inspecting(browser, f"{sys.executable} {SERVERS / 'unfit.py'}") as unfit:
        page = unfit.open("#/tools/search", eras=1)
        expect(field(page, "depth")).to_be_visible()
        assert "default null" not in page.locator(".editor").inner_text()
        for name, text in {"limit": "integer", "price": "decimal", "word": "string", "depth": "integer"}.items():
            expect(field(page, name).locator(".field-type")).to_have_text(text)
            expect(field(page, name).locator("input, select, textarea")).to_have_count(1)
        expect(page.get_by_label("kind", exact=True).locator("option")).to_have_text(["not sent", "new", "old"])
        expect(page.get_by_label("send null")).to_have_count(1)
        page.get_by_label("send null").check()
        fill(page, price="0.10")
        run(page, "Run in 2025")
        expect(page.get_by_role("listitem").get_by_text('{"price":"0.10","depth":null}')).to_be_visible()
        assert not unfit.problems


def test_an_item_is_removed_where_its_name_stands(open_form: Callable[..., Page]) -> None:
    page = open_form()
    fill_in(page)
    lines = page.get_by_role("group", name="lines")
    for amount in ("1.10", "2.20", "3.30"):
        lines.get_by_role("button", name="Add item").click()
        fill(lines.get_by_role("group", name=f"item {int(amount[0])}"), text="tea", amount=amount)
    item = lines.get_by_role("group", name="item 2")
    remove = item.get_by_role("button", name="Remove this item")
    title, button = item.get_by_text("item 2").bounding_box(), remove.bounding_box()
    assert title is not None
    assert button is not None
    assert abs(title["y"] + title["height"] / 2 - button["y"] - button["height"] / 2) < 8
    assert button["x"] - title["x"] - title["width"] < 150
    remove.click()
    expect(lines.get_by_role("group", name="item 2")).to_be_visible()
    result = run(page)
    expect(result).to_contain_text('"1.10"')
    expect(result).to_contain_text('"3.30"')
    expect(result).not_to_contain_text('"2.20"')


def test_long_text_grows_and_short_text_is_one_line(open_form: Callable[..., Page]) -> None:
    page = open_form()
    assert page.get_by_label("code", exact=True).evaluate("(field) => field.localName") == "input"
    remarks = page.get_by_label("remarks", exact=True)
    before = remarks.evaluate("(field) => field.offsetHeight")
    assert before < 40
    assert remarks.evaluate("(field) => getComputedStyle(field).resize") == "none"
    remarks.fill("one\ntwo\nthree\nfour")
    assert remarks.evaluate("(field) => field.offsetHeight") > before + 40


def test_empty_views_step_back_and_stay_reachable(open_form: Callable[..., Page]) -> None:
    page = open_form()
    views = page.get_by_role("navigation")
    weight = "(link) => Number(getComputedStyle(link).fontWeight)"
    full, empty = views.get_by_role("link", name="Tools"), views.get_by_role("link", name="Prompts")
    expect(empty).to_have_class("bare")
    assert full.evaluate(weight) > empty.evaluate(weight)
    empty.click()
    expect(page.get_by_text("The server has no prompts.")).to_be_visible()


def test_the_version_of_a_server_is_called_so(open_form: Callable[..., Page]) -> None:
    expect(open_form().locator("#version")).to_have_text("version 2.1")


def test_a_chosen_variant_is_sent_with_its_tag_and_stays_chosen(forms: Inspected) -> None:
    page = forms.open("#/tools/settle")
    page.get_by_label("payment", exact=True).select_option(label="Transfer")
    fill(page, iban="DE02")
    page.get_by_role("button", name="JSON").click()
    page.get_by_role("button", name="Form").click()
    expect(page.get_by_label("iban", exact=True)).to_have_value("DE02")
    page.reload()
    expect(page.get_by_label("iban", exact=True)).to_have_value("DE02")
    fill(page, day="2026-07-28")
    expect(run(page)).to_contain_text("by transfer")
    forms.contexts.pop().close()
    assert not forms.problems


@pytest.mark.parametrize("look", [WIDE, {**WIDE, "color_scheme": "dark"}, NARROW, {**NARROW, "color_scheme": "dark"}])
def test_axe_finds_nothing_in_a_form_with_marks_and_items(open_form: Callable[..., Page], look: dict[str, Any]) -> None:
    page = open_form(**look, bypass_csp=True)
    load_axe(page)
    page.get_by_role("group", name="lines").get_by_role("button", name="Add item").click()
    run(page)
    expect(field(page, "approver")).to_contain_text("This is required.")
    assert not violations(page, "form")


def test_a_form_is_filled_in_and_sent_by_keyboard_alone(open_form: Callable[..., Page]) -> None:
    page = open_form()
    keys = page.keyboard
    page.get_by_role("listbox", name="Tools").focus()
    keys.press("Enter")
    keys.press("Tab")  # to the form or JSON
    while not page.evaluate("document.activeElement.matches('.field input')"):
        keys.press("Tab")
    for text in (NUMBER, "07282026", "2026-08-28T12:00:00Z", "19.90", "Ada", "A1", "Grace"):
        keys.type(text)
        name = page.evaluate("document.activeElement.labels[0].textContent")
        while page.evaluate("document.activeElement.labels?.[0]?.textContent") in (name, "send null"):
            keys.press("Tab")
    while page.evaluate("document.activeElement.textContent") != "Run in 2026":
        keys.press("Tab")
    keys.press("Enter")
    expect(panel(page)).to_contain_text("Done")
    expect(panel(page)).to_be_focused()
    keys.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Again"
