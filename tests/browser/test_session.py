"""What happens to a session while a page shows it: recordings, clearing, levels of logs, changes, restarts."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed: make browser")

from playwright.sync_api import expect

from tests.browser.conftest import SERVERS, inspecting
from tests.browser.steps import Open, fill, go, go_to, look_at, options, panel, run

if TYPE_CHECKING:
    from playwright.sync_api import Browser

#: Asks twice as soon as it is connected, outside of any call.
CURIOUS = """
import json, sys

def send(**members):
    print(json.dumps({"jsonrpc": "2.0", **members}), flush=True)

for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "initialize":
        info = {"name": "curious", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        send(id=message["id"], result=result)
    elif message.get("method") == "tools/list":
        send(id=message["id"], result={"tools": [{"name": "look", "inputSchema": {"type": "object"}}]})
        send(id=1, method="roots/list")
        send(id=2, method="roots/list")
"""


def test_an_exported_recording_answers_the_same_call(open_page: Open, tmp_path: Path) -> None:
    page = open_page("#/tools/forecast")
    fill(page, city="Oslo")
    expect(run(page)).to_contain_text("Done")
    go_to(page, "Wire")
    with page.expect_download() as download:
        page.get_by_role("link", name="Export").click()
    assert download.value.suggested_filename == "weather-2026.jsonl"
    file = tmp_path / "weather.jsonl"
    download.value.save_as(file)
    gemel = [sys.executable, "-m", "gemel"]
    replay = f"{sys.executable} -m gemel replay {file}"
    command = [*gemel, "call", "--era", "2026", replay, "forecast", "city=Oslo"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert answer.returncode == 0, answer.stderr
    assert "Monday" in answer.stdout


def test_clearing_removes_messages_and_keeps_the_connection(open_page: Open) -> None:
    page = open_page("#/wire")
    rows = options(page, "Messages")
    expect(rows.first).to_be_visible()
    page.get_by_role("button", name="Clear", exact=True).click()
    expect(page.get_by_text("No message yet.")).to_be_visible()
    page.reload()
    expect(page.locator("#states .chip.good")).to_have_count(2)
    expect(page.get_by_text("No message yet.")).to_be_visible()
    go_to(page, "Tools")
    expect(options(page, "Tools").first).to_be_visible()


@pytest.mark.parametrize("era", ["2025", "2026"])
def test_the_server_logs_from_the_chosen_level_on(open_page: Open, era: str) -> None:
    page = open_page("#/logs")
    look_at(page, era)
    page.get_by_label("Level of the server").select_option("error")
    expect(page.get_by_text("The server logs from error on.")).to_be_visible()
    go(page, "#/tools/calibrate")
    for level in ("warning", "error"):
        page.get_by_label("level", exact=True).select_option(level)
        expect(run(page, f"Run in {era}")).to_contain_text("Calibrated.")
    go_to(page, "Logs")
    page.get_by_label("Source").select_option("log")
    lines = options(page, "Log lines").filter(has_text=era)
    expect(lines).to_have_count(1)  # of the two messages, the latter
    expect(lines).to_contain_text("error")


def test_a_call_that_waits_ends_when_its_server_restarts(open_page: Open) -> None:
    page = open_page("#/tools/pay")
    call = run(page)
    expect(call).to_contain_text("Waits for an answer")
    go_to(page, "Connection")
    page.get_by_role("button", name="Restart the program").click()
    go_to(page, "Tools")
    expect(panel(page)).to_contain_text("Failed")
    expect(panel(page).get_by_text("not answered")).to_be_visible()
    expect(panel(page).get_by_role("button", name="I opened it")).to_have_count(0)


@pytest.mark.parametrize("era", ["2025", "2026"])
def test_a_list_of_tools_that_changes_is_shown_anew(browser: Browser, era: str) -> None:
    with inspecting(browser, SERVERS / "changing.py", "--no-reload") as inspected:
        page = inspected.open("#/connection")
        page.get_by_role("button", name=f"Listen in {era}").click()
        expect(page.get_by_text("Listening", exact=True)).to_be_visible()
        look_at(page, era)
        go(page, "#/tools/begin_winter")
        tools = options(page, "Tools")
        expect(tools).to_have_count(1)
        expect(run(page, f"Run in {era}")).to_contain_text("Winter.")
        expect(tools).to_have_count(2)
        tools.filter(has_text="snow").click()
        expect(run(page, f"Run in {era}")).to_contain_text("It snows.")
        go_to(page, "Logs")
        expect(page.get_by_role("option").filter(has_text="changed: tools").first).to_be_visible()
        assert not inspected.problems


def test_questions_outside_of_a_call_leave_room_for_the_view(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "curious.py").write_text(CURIOUS)
    command = shlex.join([sys.executable, str(tmp_path / "curious.py")])
    with inspecting(browser, command, "--era", "2025") as inspected:
        page = inspected.open("#/tools", eras=1, viewport={"width": 390, "height": 844})
        questions = page.get_by_role("region", name="The server asks for roots")
        expect(questions).to_have_count(2)
        expect(options(page, "Tools").filter(has_text="look")).to_be_in_viewport(ratio=0.9)
        for left in (1, 0):
            questions.first.get_by_role("button", name="Decline").click()
            expect(questions).to_have_count(left)
        assert not inspected.problems
