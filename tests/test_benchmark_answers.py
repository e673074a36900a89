"""Who is measured answers rightly: anything else ends the measurement."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.traffic import CLIENTS, calls
from benchmarks.wire import LINES, TOOLS, WrongAnswer, check_http

NUMBER = 3
JSON_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json"
EVENTS_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream"
RIGHT: dict[str, dict[str, Any]] = {
    "add": {"structuredContent": {"result": 10}},
    "steps": {"structuredContent": 10},
    "order": {"structuredContent": {"id": NUMBER, "customer": "Ada Lovelace", "lines": LINES, "total": 137.5}},
    "text": {"content": [{"type": "text", "text": "x" * 1_000_000}]},
    "report": {"content": [{"type": "text", "text": "x" * 100_000}]},
}
WRONG: dict[str, dict[str, Any]] = {
    "add": {"structuredContent": {"result": 11}},
    "steps": {"structuredContent": 11},
    "order": {"structuredContent": {"id": NUMBER, "customer": "Ada Lovelace", "lines": [], "total": 137.5}},
    "text": {"content": [{"type": "text", "text": "x"}]},
    "report": {"content": [{"type": "text", "text": "x" * 1_000_000}]},
}


def answer(name: str, result: dict[str, Any], steps: int) -> tuple[bytes, bytes]:
    """Head and body of a response with so many notifications of progress before the result."""
    response = json.dumps({"jsonrpc": "2.0", "id": NUMBER, "result": result})
    if not TOOLS[name].steps:
        return JSON_HEAD, response.encode()
    progress = json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}})
    return EVENTS_HEAD, "".join(f"data: {each}\n\n" for each in [progress] * steps + [response]).encode()


@pytest.mark.parametrize("name", TOOLS)
def test_the_right_answer_of_each_tool_counts(name: str) -> None:
    check_http(*answer(name, RIGHT[name], TOOLS[name].steps), NUMBER, TOOLS[name])


@pytest.mark.parametrize("name", TOOLS)
@pytest.mark.parametrize("failed", [False, True])
def test_a_wrong_or_failed_answer_does_not_count(name: str, failed: bool) -> None:
    result = {**RIGHT[name], "isError": True} if failed else WRONG[name]
    with pytest.raises(WrongAnswer):
        check_http(*answer(name, result, TOOLS[name].steps), NUMBER, TOOLS[name])


def test_an_answer_without_all_notifications_of_progress_does_not_count() -> None:
    with pytest.raises(WrongAnswer, match="19 of 20"):
        check_http(*answer("steps", RIGHT["steps"], 19), NUMBER, TOOLS["steps"])


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("name", TOOLS)
def test_calls_vary_and_name_their_tool(client: str, name: str) -> None:
    made = calls(client, 20, 8000, tool=name, prefix="notes_")
    assert len({each.request for each in made}) == len(made)
    for each in made:
        head, _, body = each.request.partition(b"\r\n\r\n")
        params = json.loads(body)["params"]
        assert (params["name"], params["arguments"]) == (f"notes_{name}", TOOLS[name].arguments(each.number))
        assert f"mcp-name: notes_{name}" in head.decode().lower()
        assert "progressToken" in params["_meta"] or not TOOLS[name].steps
