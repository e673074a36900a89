"""The page meets every answer and request of the hostile corpus, in both eras, and goes on."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed: make browser")

from playwright.sync_api import expect

from tests.browser.conftest import inspecting
from tests.browser.test_views import go_to
from tests.hostile.client_cases import ask_cases, client_cases

if TYPE_CHECKING:
    from playwright.sync_api import Browser

#: Makes calls one after another. Those without an end are cancelled. Returns the state of each and the text of its result.
CALLS = """async ([era, requests]) => {
  const { store, isFinal } = await import("/page/store.js");
  const send = async (body) => (await fetch("/api/commands", {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  })).json();
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
    shown.push([store.calls.get(call).state, document.querySelector("hinge-history .call-result")?.innerText ?? ""]);
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
    if (!document.querySelector("hinge-wire .message-body").innerText) empty.push(n);
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
        expect(page.get_by_role("listbox", name="Tools").get_by_role("option")).to_contain_text("add")
        page.get_by_role("button", name=f"Run in {era}", exact=True).click()
        expect(page.get_by_role("region", name="Call", exact=True).locator("visible=true")).to_contain_text("Done")
        assert not inspected.problems
