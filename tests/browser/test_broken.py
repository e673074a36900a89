"""A broken server: its page says why, without a look at another view."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed: make browser")

from playwright.sync_api import expect

from tests.browser.conftest import SERVERS, Inspected, inspecting, load_axe
from tests.browser.steps import go, go_to, look_at, options, panel, run, violations

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture
def broken(browser: Browser) -> Iterator[Inspected]:
    with inspecting(browser, SERVERS / "broken.py", "--no-reload") as inspected:
        yield inspected
        assert not inspected.problems


@pytest.fixture
def unfit(browser: Browser) -> Iterator[Inspected]:
    with inspecting(browser, f"{sys.executable} {SERVERS / 'unfit.py'}") as inspected:
        yield inspected
        assert not inspected.problems


@pytest.mark.parametrize(
    ("tool", "reason"),
    [
        ("count", "what it returned doesn't fit its output schema: total"),
        ("divide", "ZeroDivisionError: division by zero"),
    ],
)
def test_what_the_server_wrote_stands_below_the_error(broken: Inspected, tool: str, reason: str) -> None:
    page = broken.open(f"#/tools/{tool}")
    call = run(page)
    expect(call).to_contain_text("Tool error")
    expect(call).to_contain_text(reason)
    go_to(page, "History")
    options(page, "Calls").first.click()
    expect(panel(page)).to_contain_text(reason)


def test_a_call_that_hangs_says_for_how_long_and_what_was_written(broken: Inspected) -> None:
    page = broken.open("#/tools/wait")
    call = run(page)
    expect(call).to_contain_text("waiting for the database at 10.0.0.7:5432")
    expect(call).to_contain_text(re.compile(r"Running.*[1-9] s"))
    call.get_by_role("button", name="Cancel").click()
    expect(call).to_contain_text("Cancelled")
    go(page, "#/tools/count")
    run(page)
    expect(call).to_contain_text("Tool error")
    expect(call).not_to_contain_text("waiting for the database")  # of another call


def test_a_program_that_ends_is_told_above_all_views_and_connected_again(broken: Inspected) -> None:
    page = broken.open("#/tools/leave")
    run(page)
    banner = page.locator("#banner")
    expect(banner).to_contain_text("Not connected in 2026: The connection was lost")
    expect(banner).to_contain_text("exited with code 3")
    expect(banner).to_contain_text("out of licences")
    expect(panel(page)).to_contain_text("out of licences")
    go_to(page, "Measures")
    expect(banner).to_contain_text("out of licences")
    look_at(page, "2025")
    expect(banner).to_be_empty()
    look_at(page, "2026")
    banner.get_by_role("button", name="Connect").click()
    expect(banner).to_be_empty()
    expect(page.locator("#states .chip.good")).to_have_count(2)


def test_an_import_that_fails_is_told_with_its_place(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "storage.py").write_text("import nothing_of_this_name\n", encoding="utf-8")
    file = tmp_path / "shop.py"
    file.write_text("import storage\nfrom gemel import Server\n\nserver = Server('shop')\n", encoding="utf-8")
    with inspecting(browser, file) as inspected:
        page = inspected.open(eras=0)
        banner = page.locator("#banner")
        expect(banner).to_contain_text("shop.py can't be imported: No module named 'nothing_of_this_name'")
        expect(banner).to_contain_text('storage.py", line 1')
        (tmp_path / "storage.py").write_text("", encoding="utf-8")
        expect(banner).to_be_empty()
        expect(page.locator("#states .chip.good")).to_have_count(2)


@pytest.mark.parametrize(
    ("tool", "reason"), [("forecast", "does not fit its output schema: days.1.low"), ("text", "$.content")]
)
def test_a_result_that_clients_refuse_is_marked_with_the_reason(unfit: Inspected, tool: str, reason: str) -> None:
    page = unfit.open(f"#/tools/{tool}", eras=1)
    expect(page.locator("#states")).not_to_contain_text("Connecting")
    call = run(page, "Run in 2025")
    expect(call).to_contain_text("Wrong result")
    expect(call.get_by_role("group", name="Error")).to_contain_text(reason)


@pytest.mark.parametrize("look", ["light", "dark"])
def test_axe_finds_nothing_in_what_failed(broken: Inspected, look: str) -> None:
    page = broken.open("#/tools/divide", bypass_csp=True, color_scheme=look)
    load_axe(page)
    expect(run(page)).to_contain_text("ZeroDivisionError")
    go(page, "#/tools/leave")
    run(page)
    expect(page.locator("#banner")).to_contain_text("out of licences")
    found = violations(page, "leave")
    go(page, "#/tools/divide")
    expect(panel(page)).to_contain_text("ZeroDivisionError")
    assert not found + violations(page, "divide")


def test_what_is_printed_among_the_messages_stands_in_the_logs(unfit: Inspected) -> None:
    page = unfit.open("#/logs", eras=1)
    line = options(page, "Log lines").filter(has_text="Unfit 1.0 is listening").first
    expect(line).to_contain_text("not JSON")
