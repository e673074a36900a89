"""What a person sees and does in each view of `gemel dev`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed: make browser")

from playwright.sync_api import expect

from tests.browser.steps import Open, fill, go, go_to, look_at, options, panel, run

if TYPE_CHECKING:
    pass


# ---------------------------------------------------------------- tools


def test_the_list_of_tools_shows_names_descriptions_and_weights(open_page: Open) -> None:
    page = open_page("#/tools")
    row = options(page, "Tools").first
    expect(row).to_contain_text("forecast")
    expect(row).to_contain_text("The weather of the coming days")
    expect(row).to_contain_text(re.compile(r"\d+ tok"))
    expect(page.get_by_role("heading", name="Tools")).to_contain_text("tokens")


def test_the_filter_finds_tools_by_name_and_description(open_page: Open) -> None:
    page = open_page("#/tools")
    page.get_by_label("Filter tools").fill("storm warning")
    rows = options(page, "Tools")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("siren")
    page.get_by_label("Filter tools").fill("no such thing")
    expect(page.get_by_text("Nothing matches the filter.")).to_be_visible()


def test_a_tool_is_called_by_its_form(open_page: Open) -> None:
    page = open_page("#/tools/forecast")
    fill(page, city="Oslo", days="2")
    page.get_by_label("units", exact=True).select_option("imperial")
    result = run(page)
    expect(result).to_contain_text("Done")
    table = result.get_by_role("table")
    expect(table.get_by_role("row")).to_have_count(3)
    expect(table.get_by_role("columnheader")).to_have_text(["day", "sky", "low", "high", "wind"])
    expect(table).to_contain_text("Tuesday")


def test_the_form_says_what_looks_wrong_and_sends_it_nevertheless(open_page: Open) -> None:
    page = open_page("#/tools/forecast")
    fill(page, city="Oslo", days="soon")
    page.get_by_label("days", exact=True).press("Tab")
    expect(page.get_by_text("This is not a number; it is sent as text.")).to_be_visible()
    expect(run(page)).to_contain_text("expected integer")


def test_a_click_runs_what_was_just_typed_also_if_it_looks_wrong(open_page: Open) -> None:
    page = open_page("#/tools/forecast")
    fill(page, city="Oslo", days="soon")
    expect(run(page)).to_contain_text("expected integer")  # the hint that appears does not move the button away
    expect(page.get_by_text("This is not a number; it is sent as text.")).to_be_visible()


def test_arguments_can_be_written_as_json(open_page: Open) -> None:
    page = open_page("#/tools/forecast")
    fill(page, city="Oslo")
    page.get_by_role("button", name="JSON", exact=True).click()
    text = page.get_by_label("Text of the JSON")
    expect(text).to_have_value(re.compile('"city": "Oslo"'))
    text.fill('{"city": "Bergen", "days": 1, "unknown"')
    expect(page.get_by_text("Not JSON:")).to_be_visible()
    text.fill('{"city": "Bergen", "days": 1}')
    expect(run(page)).to_contain_text("Monday")
    page.get_by_role("button", name="Form", exact=True).click()
    expect(page.get_by_label("city", exact=True)).to_have_value("Bergen")


def test_nested_arguments_have_forms(open_page: Open) -> None:
    page = open_page("#/tools/add_alert")
    fill(page, title="Storm at the coast")
    page.get_by_role("group", name="places").get_by_role("button", name="Add item").click()
    fill(page, name="Bergen", latitude="60.4")
    page.get_by_label("storm").check()
    page.get_by_label("frost").check()
    result = run(page)
    expect(result).to_contain_text('"Storm at the coast"')
    expect(result).to_contain_text('"frost"')


def test_errors_of_tools_are_marked(open_page: Open) -> None:
    page = open_page("#/tools/forecast")
    fill(page, city="Atlantis")
    result = run(page)
    expect(result).to_contain_text("Tool error")
    expect(result).to_contain_text("There is no station in Atlantis")


def test_pictures_are_shown(open_page: Open) -> None:
    page = open_page("#/tools/radar")
    fill(page, city="Oslo")
    picture = run(page).get_by_role("img")
    expect(picture).to_be_visible()
    expect(picture).to_have_js_property("naturalWidth", 180)


def test_sounds_can_be_played(open_page: Open) -> None:
    page = open_page("#/tools/siren")
    sound = run(page).get_by_label("Sound of the result")
    expect(sound).to_be_visible()
    expect(sound).to_have_js_property("duration", 0.5)


def test_progress_is_a_bar_and_a_call_can_be_cancelled(open_page: Open) -> None:
    page = open_page("#/tools/watch_storm")
    call = run(page)
    bar = call.get_by_role("progressbar", name="Progress")
    expect(bar).to_have_js_property("value", 1)
    expect(call).to_contain_text("watching")
    call.get_by_role("button", name="Cancel").click()
    expect(call).to_contain_text("Cancelled")
    expect(bar).to_be_hidden()


def test_earlier_calls_can_be_made_again_and_edited(open_page: Open) -> None:
    page = open_page("#/tools/radar")
    fill(page, city="Osaka")
    expect(run(page)).to_contain_text("Done")
    fill(page, city="")
    recent = page.get_by_role("listitem").filter(has_text="Osaka").first
    recent.get_by_role("button", name="Edit").click()
    expect(page.get_by_label("city", exact=True)).to_have_value("Osaka")
    recent.get_by_role("button", name="Again").click()
    expect(page.get_by_role("listitem").filter(has_text="Osaka")).to_have_count(2)


@pytest.mark.parametrize(
    ("form", "words"),
    [("gemel call", "gemel call"), ("curl", "curl"), ("pytest", "def test_")],
)
def test_a_call_can_be_copied(open_page: Open, form: str, words: str) -> None:
    page = open_page("#/tools/forecast")
    fill(page, city="Oslo")
    run(page).get_by_role("button", name="Copy as…").click()
    dialog = page.get_by_role("dialog", name="Copy this call")
    dialog.get_by_role("button", name=form, exact=True).click()
    expect(dialog.locator("pre")).to_contain_text(words)
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()


# ---------------------------------------------------------------- questions


@pytest.mark.parametrize("era", ["2025", "2026"])
def test_questions_are_answered_in_the_page_in_rounds(open_page: Open, era: str) -> None:
    page = open_page("#/tools/book")
    look_at(page, era)
    fill(page, city="Lisbon")
    call = run(page, f"Run in {era}")
    question = call.get_by_role("region", name="The server asks")
    expect(question).to_contain_text("Which seat to Lisbon?")
    question.get_by_label("seat").select_option("aisle")
    question.get_by_role("button", name="Accept").click()
    expect(call).to_contain_text("Book a seat at the aisle to Lisbon for 120 €?")
    question.last.get_by_label("value").select_option(label="true")
    question.last.get_by_role("button", name="Accept").click()
    expect(call).to_contain_text("Booked to Lisbon: aisle.")
    call.get_by_role("link", name="Messages").click()
    talk = page.get_by_role("region", name="Message", exact=True)
    expect(talk).to_contain_text("Book a seat at the aisle" if era == "2025" else "Round 3")


def test_a_question_can_be_declined(open_page: Open) -> None:
    page = open_page("#/tools/book")
    fill(page, city="Oslo")
    call = run(page)
    call.get_by_role("button", name="Decline").click()
    expect(call).to_contain_text("Not booked.")


def test_a_link_shows_where_it_leads(open_page: Open) -> None:
    page = open_page("#/tools/pay")
    call = run(page)
    expect(call.get_by_text("https://bank.example/pay?invoice=7")).to_be_visible()
    link = call.get_by_role("link", name="Open the page")
    expect(link).to_have_attribute("href", "https://bank.example/pay?invoice=7")
    expect(link).to_have_attribute("rel", "noopener noreferrer")
    call.get_by_role("button", name="I opened it").click()
    expect(call).to_contain_text("Paid.")


def test_a_request_for_a_model_is_answered_by_hand(open_page: Open) -> None:
    page = open_page("#/tools/haiku")
    fill(page, city="Osaka")
    call = run(page)
    expect(call).to_contain_text("A haiku about rain in Osaka")
    call.get_by_label("text", exact=True).fill("Rain on the old roof")
    call.get_by_role("button", name="Send").click()
    expect(call.locator(".call-result")).to_contain_text("Rain on the old roof")


def test_roots_are_named_by_hand(open_page: Open) -> None:
    page = open_page("#/tools/list_folders")
    call = run(page)
    call.get_by_label("uri", exact=True).fill("file:///srv/maps")
    call.get_by_role("button", name="Send").click()
    expect(call.locator(".call-result")).to_contain_text("file:///srv/maps")


def test_a_question_elsewhere_is_announced_above_all_views(open_page: Open) -> None:
    page = open_page("#/tools/pay")
    run(page)
    page.get_by_role("link", name="Measures").click()
    banner = page.get_by_text("A question waits:")
    expect(banner).to_contain_text("Please pay at your bank")
    page.get_by_role("link", name="Answer").click()
    panel(page).get_by_role("button", name="Decline").click()
    expect(banner).to_be_hidden()


# ---------------------------------------------------------------- resources and prompts


def test_a_resource_is_read(open_page: Open) -> None:
    page = open_page("#/resources")
    page.get_by_role("option").filter(has_text="Note of today").click()
    expect(run(page, "Read")).to_contain_text("Light wind from the north-east.")


def test_a_template_is_filled_in_with_suggestions(open_page: Open) -> None:
    page = open_page("#/resources")
    page.get_by_role("option").filter(has_text="archive:///{city}/{year}").click()
    page.get_by_label("city", exact=True).press_sequentially("os")
    page.get_by_role("button", name="Oslo").click()
    fill(page, year="1999")
    expect(run(page, "Read")).to_contain_text("Oslo in 1999: 80 days of sun.")


def test_changes_of_a_resource_are_reported(open_page: Open) -> None:
    page = open_page("#/resources")
    page.get_by_role("option").filter(has_text="Note of today").click()
    page.get_by_role("button", name="Watch for changes").click()
    page.get_by_role("link", name="Connection").click()
    expect(page.get_by_text("Listening", exact=True)).to_be_visible()
    page.get_by_role("link", name="Tools").click()
    page.get_by_role("option").filter(has_text="write_note").click()
    fill(page, text="Fog.")
    expect(run(page)).to_contain_text("Written.")
    page.get_by_role("link", name="Logs").click()
    expect(page.get_by_role("option").filter(has_text="changed: resource note:///today").first).to_be_visible()


def test_a_prompt_is_shown_as_messages(open_page: Open) -> None:
    page = open_page("#/prompts")
    page.get_by_role("option").filter(has_text="report").click()
    page.get_by_label("city", exact=True).press_sequentially("to")
    page.get_by_role("button", name="Tokyo").click()
    result = run(page, "Get the messages")
    expect(result).to_contain_text("Write a plain weather report for Tokyo.")
    expect(result).to_contain_text("assistant")


# ---------------------------------------------------------------- wire and compare


def test_messages_appear_on_the_wire_and_are_filtered(open_page: Open) -> None:
    page = open_page("#/tools/siren")
    expect(run(page)).to_contain_text("Done")
    go_to(page, "Wire")
    wire = page.get_by_role("listbox", name="Messages")
    page.get_by_label("Method").select_option("tools/call")
    expect(wire.get_by_role("option").filter(has_text="siren").first).to_be_visible()
    page.get_by_label("Method").select_option("")
    page.get_by_label("Era", exact=True).select_option("2025")
    page.get_by_label("Direction").select_option("client")
    page.get_by_label("Filter messages").fill("INITIALIZE")
    expect(wire.get_by_role("option")).to_have_count(2)
    wire.get_by_role("option").first.click()
    expect(page.get_by_role("region", name="Message", exact=True)).to_contain_text('"2025-11-25"')


def test_the_wire_stays_at_its_end_when_a_question_appears_above_it(open_page: Open) -> None:
    page = open_page("#/tools/measure")
    fill(page, stations="20")
    expect(run(page)).to_contain_text("Done")
    for count in (1, 2):
        go(page, "#/tools/book")
        fill(page, city="Oslo")
        expect(run(page)).to_contain_text("Waits for an answer")
        go_to(page, "Wire")
        expect(page.get_by_text("A question waits:")).to_be_visible()
        expect(options(page, "Messages").filter(has_text="input required").nth(count - 1)).to_be_in_viewport(ratio=0.9)
        page.get_by_role("link", name="Answer").click()
        panel(page).get_by_role("button", name="Decline").click()


def test_one_call_runs_in_both_eras_side_by_side(open_page: Open) -> None:
    page = open_page("#/tools/forecast")
    fill(page, city="Oslo")
    page.get_by_role("button", name="Run in both eras").click()
    expect(page.get_by_text("Same result")).to_be_visible()
    for era in ("2025", "2026"):
        side = page.get_by_role("region", name=f"Era {era}")
        expect(side).to_contain_text("Done")
        expect(side.get_by_text("tools/call").first).to_be_visible()
    first = page.url
    page.get_by_role("button", name="Again in both eras").click()
    page.wait_for_url(lambda url: url != first)
    expect(page.get_by_text("Same result")).to_be_visible()
    page.get_by_role("listitem").filter(has_text="forecast").last.get_by_role("link").click()
    page.wait_for_url(first)


def test_differences_between_the_eras_are_named(open_page: Open) -> None:
    page = open_page("#/tools/book")
    fill(page, city="Oslo")
    page.get_by_role("button", name="Run in both eras").click()
    page.get_by_role("region", name="Era 2025").get_by_role("button", name="Decline").click()
    other = page.get_by_role("region", name="Era 2026")
    other.get_by_label("seat").select_option("window")
    other.get_by_role("button", name="Accept").click()
    expect(other).to_contain_text("Book a seat at the window")
    other.get_by_role("region", name="The server asks").last.get_by_label("value").select_option(label="true")
    other.get_by_role("button", name="Accept").click()
    expect(page.get_by_role("region", name="Differences")).to_contain_text("Booked to Oslo")
    expect(other).to_contain_text("Round 2")


# ---------------------------------------------------------------- history, logs, measures, findings


def test_the_history_has_all_calls(open_page: Open) -> None:
    page = open_page("#/tools/measure")
    fill(page, stations="3")
    expect(run(page)).to_contain_text("3 stations answered.")
    go_to(page, "History")
    page.get_by_label("Filter calls").fill("measure")
    options(page, "Calls").first.click()
    expect(panel(page)).to_contain_text("3 stations answered.")
    panel(page).get_by_role("link", name="Edit").click()
    expect(page.get_by_label("stations", exact=True)).to_have_value("3")


def test_logs_have_standard_error_and_log_messages(open_page: Open) -> None:
    page = open_page("#/tools/calibrate")
    expect(run(page)).to_contain_text("Calibrated.")
    go_to(page, "Logs")
    lines = page.get_by_role("listbox", name="Log lines")
    expect(lines.get_by_role("option").filter(has_text="calibrating sensor 7").first).to_be_visible()
    page.get_by_label("Least level").select_option("error")
    expect(lines.get_by_role("option").filter(has_text="A sensor is off")).to_have_count(0)
    page.get_by_label("Least level").select_option("warning")
    expect(lines.get_by_role("option").filter(has_text="A sensor is off by 0.4 degrees").first).to_be_visible()


def test_latencies_are_measured_for_each_tool(open_page: Open) -> None:
    page = open_page("#/tools/siren")
    expect(run(page)).to_contain_text("Done")
    go_to(page, "Measures")
    row = page.get_by_role("row").filter(has_text="siren")
    expect(row).to_contain_text("ms")
    expect(row.get_by_role("img", name="Latencies")).to_be_visible()
    expect(page.get_by_role("img", name=re.compile(r"Memory: now [\d.]+ MiB"))).to_be_visible()
    expect(page.get_by_role("img", name=re.compile(r"CPU: now [\d.]+ %"))).to_be_visible()


def test_spans_of_a_call_are_a_waterfall(open_page: Open) -> None:
    page = open_page("#/tools/book")
    fill(page, city="Oslo")
    call = run(page)
    for name, answer in (("seat", "window"), ("value", "true")):
        call.get_by_label(name).last.select_option(label=answer)
        call.get_by_role("button", name="Accept").last.click()
    expect(call.locator(".call-result")).to_contain_text("ooked")
    go_to(page, "Measures")
    expect(page.get_by_label("Trace")).to_contain_text("book")
    bars = page.locator(".waterfall li")
    expect(bars).to_have_count(7)  # the call, and its three rounds on both sides
    expect(bars.nth(5)).to_contain_text("round 3")
    expect(bars.nth(6)).to_contain_text("tools/call book")


def test_findings_name_hosts_and_sources(open_page: Open) -> None:
    page = open_page("#/findings")
    page.get_by_label("Severity").select_option("note")
    expect(page.get_by_role("heading", name="zed")).to_be_visible()
    expect(page.get_by_role("link", name="https://zed.dev/docs/ai/mcp").first).to_be_visible()


# ---------------------------------------------------------------- connection


def test_a_client_that_cannot_answer_questions(open_page: Open) -> None:
    page = open_page("#/connection")
    page.get_by_label("answer questions (elicitation)").check()
    page.get_by_role("button", name="Reconnect", exact=True).click()
    card = page.get_by_role("region", name="Era 2026")
    expect(card).to_contain_text("Client without")
    expect(card).to_contain_text("Connected")
    go_to(page, "Tools")
    page.get_by_role("option").filter(has_text="book").click()
    fill(page, city="Oslo")
    expect(run(page)).to_contain_text(re.compile("elicitation", re.IGNORECASE))
    go_to(page, "Connection")
    page.get_by_label("answer questions (elicitation)").uncheck()
    page.get_by_role("button", name="Reconnect", exact=True).click()
    expect(card).not_to_contain_text("Client without")
    expect(card).to_contain_text("Connected")


def test_an_era_is_disconnected_and_connected_again(open_page: Open) -> None:
    page = open_page("#/connection")
    card = page.get_by_role("region", name="Era 2025")
    card.get_by_role("button", name="Disconnect").click()
    card.get_by_role("button", name="Connect", exact=True).click()
    expect(card).to_contain_text("2025-11-25")


def test_any_request_can_be_sent(open_page: Open) -> None:
    page = open_page("#/connection")
    page.get_by_label("Method").fill("no/such/method")
    page.get_by_role("button", name="Send").click()
    expect(panel(page)).to_contain_text("-32601")


# ---------------------------------------------------------------- the page itself


def test_a_reload_keeps_the_view_and_what_was_typed(open_page: Open) -> None:
    page = open_page("#/tools/forecast")
    fill(page, city="Lisbon")
    expect(run(page)).to_contain_text("Done")
    page.reload()
    expect(page.get_by_label("city", exact=True)).to_have_value("Lisbon")
    expect(panel(page)).to_contain_text("Done")


def test_the_token_does_not_stay_in_the_address(open_page: Open) -> None:
    page = open_page()
    assert "token" not in page.url


def test_a_narrow_window_has_a_menu(open_page: Open) -> None:
    page = open_page("#/tools", viewport={"width": 390, "height": 800})
    page.get_by_role("option").filter(has_text="forecast").click()
    expect(page.get_by_role("listbox", name="Tools")).to_be_hidden()
    expect(page.get_by_label("city", exact=True)).to_be_visible()
    page.get_by_role("link", name="← Tools").click()
    expect(page.get_by_role("listbox", name="Tools")).to_be_visible()
    page.get_by_role("button", name="Views").click()
    page.get_by_role("link", name="Findings").click()
    expect(page.get_by_role("heading", name="Findings")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    menu = page.get_by_role("navigation")
    page.get_by_role("button", name="Views").click()
    page.go_back()
    expect(menu).to_be_hidden()
    page.get_by_role("button", name="Views").click()
    expect(menu).to_be_visible()
    page.get_by_role("main").click(position={"x": 10, "y": 700})
    expect(menu).to_be_hidden()
