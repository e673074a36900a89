"""The page meets every answer, request, opening and HTTP response of the hostile corpus, and goes on."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed: make browser")

from playwright.sync_api import expect

from tests.browser.conftest import in_thread, inspecting
from tests.browser.steps import go_to, is_unharmed, options, run
from tests.hostile.client_cases import ask_cases, client_cases, http_response, response_cases
from tests.hostile.clients import serve_posts

if TYPE_CHECKING:
    from playwright.sync_api import Browser

#: Makes calls one after another. Those without an end are cancelled. Returns the state of each and the text of its result.
CALLS = """async ([era, requests]) => {
  const { store, isFinal } = await import("/page/store.js");
  const { command: send } = await import("/page/inspector.js");
  const ended = (call) => new Promise((resolve) => {
    const timer = setTimeout(() => send({ do: "cancel", call }), 3000);
    const stop = store.watch(["calls"], () => {
      if (!isFinal(store.calls.get(call))) return;
      clearTimeout(timer);
      stop();
      resolve();
    });
    store.changed("calls");
  });
  const shown = [];
  for (const [method, params] of requests) {
    const { call } = await send({ do: "call", era, method, params });
    await ended(call);
    location.hash = `#/history/${call}`;
    for (let frames = 0; frames < 2; frames++) await new Promise(requestAnimationFrame);
    shown.push([store.calls.get(call).state, document.querySelector("gemel-history .call-result")?.innerText ?? ""]);
  }
  return shown;
}"""
#: Connects again until that succeeds. Returns what stands in the card of the era after each failure.
OPENINGS = """async (era) => {
  const { store } = await import("/page/store.js");
  const { command } = await import("/page/inspector.js");
  const ended = (before) => new Promise((resolve) => {
    const stop = store.watch(["connection"], () => {
      const { connection } = store.eras[era];
      if (connection === before || !["failed", "ready"].includes(connection.state)) return;
      stop();
      resolve(connection);
    });
    store.changed("connection");
  });
  const shown = [];
  for (let connection = await ended(); connection.state === "failed"; connection = await ended(connection)) {
    for (let frames = 0; frames < 2; frames++) await new Promise(requestAnimationFrame);
    shown.push(document.querySelector(`[aria-label="Era ${era}"] .bad:not(.chip)`).innerText);
    await command({ do: "connect", era });
  }
  return shown;
}"""
#: Shows every message on the wire, as a tree and as text.
MESSAGES = """async () => {
  const { store } = await import("/page/store.js");
  const empty = [];
  for (const { n } of store.messages) {
    location.hash = `#/wire/${n}`;
    await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    if (!document.querySelector("gemel-wire .message-body").innerText) empty.push(n);
  }
  return [store.messages.length, empty];
}"""


@pytest.mark.timeout(300)  # some 250 calls and 600 messages, each of them drawn
@pytest.mark.foreign_words("requests name their case, and answers are wrong")
@pytest.mark.parametrize("era", ["2025", "2026"])
def test_the_page_shows_every_hostile_answer_and_stands(browser: Browser, era: str) -> None:
    openings = ("initialize", "server/discover")
    requests: list[tuple[str, dict[str, Any]]] = [
        (
            case.method,
            {"name": "add", "arguments": {"case": number}} if case.method == "tools/call" else {"case": number},
        )
        for number, case in enumerate(client_cases())
        if case.era == era and case.method not in openings and case.tool is None
    ]
    if era == "2025":
        requests += [("tools/call", {"name": "add", "arguments": {"ask": ask}}) for ask in range(len(ask_cases()))]
    with inspecting(browser, f"{sys.executable} -m tests.browser.servers.corpus", "--era", era) as inspected:
        page = inspected.open("#/history", eras=1)
        shown = page.evaluate(CALLS, [era, requests])
        assert len(shown) == len(requests)
        assert {state for state, _ in shown} <= {"done", "failed", "cancelled"}
        assert not [requests[index] for index, (_, text) in enumerate(shown) if not text]
        go_to(page, "Wire")
        count, empty = page.evaluate(MESSAGES)
        assert count >= 2 * len(requests)
        assert not empty
        go_to(page, "Tools")
        expect(options(page, "Tools")).to_contain_text("add")
        expect(run(page, f"Run in {era}")).to_contain_text("Done")
        assert not inspected.problems


def chosen_response(message: dict[str, Any]) -> bytes | None:
    """The response of the case that a request names."""
    params = message.get("params") or {}
    return response_cases()[params["case"]].response if "case" in params else None


@pytest.mark.foreign_words("requests name their case, and answers are wrong")
def test_the_page_says_what_is_wrong_with_each_response_of_http(browser: Browser) -> None:
    cases = response_cases()
    with in_thread(serve_posts(chosen_response)) as url, inspecting(browser, url, "--era", "2026") as inspected:
        page = inspected.open("#/history", eras=1)
        shown = page.evaluate(CALLS, ["2026", [("tools/list", {"case": number}) for number in range(len(cases))]])
        states = {True: {"done", "failed"}, False: {"failed"}}
        assert not [
            (case.name, state, text)
            for case, (state, text) in zip(cases, shown, strict=True)
            if state not in states["ok" in case.ends] or (state == "failed" and not re.match("Error .{10}", text))
        ]
        go_to(page, "Wire")
        assert not page.evaluate(MESSAGES)[1]
        is_unharmed(page, inspected)


@pytest.mark.parametrize("era", ["2025", "2026"])
def test_the_page_says_why_each_hostile_opening_fails_and_connects_at_last(browser: Browser, era: str) -> None:
    method = "server/discover" if era == "2026" else "initialize"
    openings = [
        case.answers[0] for case in client_cases() if (case.era, case.method) == (era, method) and "ok" not in case.ends
    ]
    left = iter(openings)

    def next_opening(message: dict[str, Any]) -> bytes | None:
        opening = next(left, None) if message["method"] == method else None
        return opening and http_response(opening)

    with in_thread(serve_posts(next_opening)) as url, inspecting(browser, url, "--era", era) as inspected:
        page = inspected.open("#/connection", eras=0)
        shown = page.evaluate(OPENINGS, era)
        assert len(shown) == len(openings)
        assert all(shown)
        expect(page.get_by_role("region", name=f"Era {era}")).to_contain_text("Connected")
        is_unharmed(page, inspected)
