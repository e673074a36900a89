"""Servers that do what they must not: everything is shown, nothing breaks."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from gemel import Context, Server
from gemel.dev.target import DevTarget
from tests.dev.program import Program, inspecting, target_of
from tests.hostile.client_cases import INITIALIZED, client_cases

#: A handshake server that answers from a table of methods; a text is written as it is.
SCRIPT = """
import json, sys

ANSWERS = json.loads(sys.argv[1])
START = {"protocolVersion": "2025-11-25", "serverInfo": {"name": "wrong", "version": "0"},
         "capabilities": {"tools": {}, "resources": {}, "prompts": {}}}
for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if "id" not in message or method is None:
        continue
    answer = ANSWERS.get(method, START if method == "initialize" else {"tools": [], "resources": [], "prompts": [],
                         "resourceTemplates": []})
    for text in answer if isinstance(answer, list) else [answer]:
        if isinstance(text, dict):
            text = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": text})
        sys.stdout.buffer.write(text.encode("latin-1") + b"\\n")
        sys.stdout.flush()
"""


def misbehaving(folder: Path, **answers: Any) -> DevTarget:
    """A server with wrong answers, by method; `_` in place of `/`."""
    file = folder / "wrong.py"
    file.write_text(SCRIPT)
    table = json.dumps({method.replace("_", "/"): answer for method, answer in answers.items()})
    command = [sys.executable, str(file), table]
    return DevTarget(name="wrong", words=["wrong"], open=lambda show: (command, {"stderr": show}))


async def test_what_is_not_json_is_shown_as_bytes(tmp_path: Path) -> None:
    good = {"content": [{"type": "text", "text": "ok"}]}
    target = misbehaving(tmp_path, tools_call=["not json <b>", "\xff\xfe\x00", good])
    async with inspecting(target, era="2025") as program:
        await program.ready("2025")
        result = await program.result("2025", "tools/call", {"name": "any"})
        assert result == good
        texts = [event["preview"] for event in program.seen if event["kind"] == "bytes"]
        assert texts == ["not json <b>", "\ufffd\ufffd\x00"]
        shown = await program.event("bytes")
        whole = await program.get(f"/api/messages/{shown['n']}")
        assert whole.headers["content-type"] == "text/plain; charset=utf-8"
        assert whole.headers["x-content-type-options"] == "nosniff"
        assert whole.body == b"not json <b>"


@pytest.mark.parametrize(
    "tools",
    [
        [{"name": 7, "inputSchema": {"type": "object"}}],
        [{"name": "no schema"}],
        [{"name": "odd", "inputSchema": "text"}],
        [{"name": "deep", "inputSchema": {"type": "object", "properties": {"a": [1]}}}],
        [
            {"name": "same", "inputSchema": {"type": "object"}},
            {"name": "same", "inputSchema": {"type": "object", "title": "x"}},
        ],
    ],
)
async def test_wrong_tools_are_listed_as_they_came(tmp_path: Path, tools: list[Any]) -> None:
    target = misbehaving(tmp_path, tools_list={"tools": tools})
    async with inspecting(target, era="2025") as program:
        await program.ready("2025")
        offers = await program.event("offers", section="tools")
        assert [{**tool, "weight": 0} for tool in tools] == [{**item, "weight": 0} for item in offers["items"]]


def wrong_openings() -> list[dict[str, Any]]:
    """The objects of the hostile corpus that answer `initialize`, and can't be understood."""
    answers = [
        json.loads(case.answers[0].replace(b"@ID@", b"1"))
        for case in client_cases()
        if case.method == "initialize" and "ok" not in case.ends
    ]
    return [answer["result"] for answer in answers if isinstance(answer.get("result"), dict)]


async def test_a_wrong_opening_is_a_failed_connection_that_can_be_tried_again(tmp_path: Path) -> None:
    openings = wrong_openings()
    assert len(openings) > 10
    answers = iter([*openings, INITIALIZED])
    target = misbehaving(tmp_path)
    # Each connection starts a program, which gets the next answer.
    target = dataclasses.replace(target, open=lambda show: misbehaving(tmp_path, initialize=next(answers)).open(show))
    async with inspecting(target, era="2025") as program:
        for _ in openings:
            failed = await program.event("connection", era="2025", state="failed")
            assert failed["error"]
            assert (await program.get("/api/state")).json["eras"]["2025"]["state"] == "failed"
            program.seen = [{"n": failed["n"], "kind": "seen"}]
            await program.do("connect", era="2025")
        await program.event("connection", era="2025", state="ready")


async def test_lists_of_anything_are_shown_as_empty_with_the_reason(tmp_path: Path) -> None:
    target = misbehaving(tmp_path, tools_list={"tools": ["text", None, 7]}, prompts_list={"prompts": "many"})
    async with inspecting(target, era="2025") as program:
        await program.ready("2025")
        for section in ("tools", "prompts"):
            offers = await program.event("offers", section=section)
            assert offers["items"] == []
            assert offers["error"]


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        ({"content": [], "structuredContent": {"days": [1, "two"]}}, "days.1"),
        ({"content": [{"type": "text", "text": "two days"}]}, "no structured content"),
        ({"content": "two days"}, "$.content"),
        ({"content": [], "structuredContent": {"days": [1, 2]}}, None),
        ({"content": [{"type": "text", "text": "no station"}], "isError": True}, None),
    ],
)
async def test_a_result_that_clients_refuse_comes_with_the_reason(
    tmp_path: Path, result: dict[str, Any], problem: str | None
) -> None:
    days = {"type": "array", "items": {"type": "integer"}}
    schema = {"type": "object", "properties": {"days": days}, "required": ["days"]}
    tool = {"name": "forecast", "inputSchema": {"type": "object"}, "outputSchema": schema}
    async with inspecting(
        misbehaving(tmp_path, tools_list={"tools": [tool]}, tools_call=result), era="2025"
    ) as program:
        await program.ready("2025")
        ended = await program.ended(await program.call("2025", "tools/call", {"name": "forecast"}))
        assert ended["state"] == "done"
        assert ended["result"] == result
        assert (problem in ended["problem"]) if problem else ("problem" not in ended)


async def test_a_list_whose_cursor_comes_again_ends_there(tmp_path: Path) -> None:
    page = {"tools": [{"name": "again", "inputSchema": {"type": "object"}}], "nextCursor": "same"}
    async with inspecting(misbehaving(tmp_path, tools_list=page), era="2025") as program:
        await program.ready("2025")
        offers = await program.event("offers", section="tools")
        assert [tool["name"] for tool in offers["items"]] == [
            "again",
            "again",
        ]  # the page before that cursor, and its own


async def test_deep_messages_break_nothing(tmp_path: Path) -> None:
    deep = "[" * 30_000 + "]" * 30_000
    answer = f'{{"jsonrpc": "2.0", "id": 99, "result": {deep}}}'
    good: dict[str, Any] = {"content": []}
    async with inspecting(misbehaving(tmp_path, tools_call=[answer, good]), era="2025") as program:
        await program.ready("2025")
        ended = await program.ended(await program.call("2025", "tools/call", {"name": "any"}))
        assert ended["state"] in ("failed", "done")  # Python 3.14 reads so many levels
        events = (await program.get("/api/events?wait=0")).json
        large = next(event for event in events if event.get("size", 0) > 50_000)
        whole = await program.get(f"/api/messages/{large['n']}")
        assert whole.status == 200
        assert len(whole.body) == len(answer)


async def test_a_server_that_never_answers_can_be_given_up(tmp_path: Path) -> None:
    async with inspecting(misbehaving(tmp_path, initialize=[]), era="2025") as program:
        await program.event("message", method="initialize")
        await program.do("disconnect", era="2025")
        program.seen = program.seen[-1:]
        await program.event("connection", era="2025", state="off")
        await program.do("connect", era="2025")
        await program.event("message", method="initialize", channel=2)
        await program.do("connect", era="2025")
        await program.event("message", method="initialize", channel=3)


async def test_ten_thousand_messages_arrive_in_order() -> None:
    server: Server[Any] = Server("loud")

    @server.tool
    async def shout(ctx: Context, times: int) -> str:
        for number in range(times):
            await ctx.info(f"line {number}")
        return "done"

    async with inspecting(target_of(server), era="2026") as program:
        await program.ready("2026")
        call = await program.call("2026", "tools/call", {"name": "shout", "arguments": {"times": 10_000}})
        await program.ended(call)
        numbers = [event["n"] for event in program.seen if "n" in event]
        assert numbers == list(range(1, len(numbers) + 1))
        logs = [event for event in program.seen if event["kind"] == "log"]
        assert [log["data"] for log in logs] == [f"line {number}" for number in range(10_000)]


async def test_a_reader_that_stops_reading_delays_nobody() -> None:
    server: Server[Any] = Server("loud")

    @server.tool
    async def shout(ctx: Context, times: int) -> str:
        for _ in range(times):
            await ctx.info("x" * 1000)
        return "done"

    async with inspecting(target_of(server), era="2026") as program:
        await program.ready("2026")
        reader, writer = await asyncio.open_connection("127.0.0.1", program.port, limit=1024)
        head = f"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1:{program.port}\r\nAuthorization: Bearer {program.token}\r\n\r\n"
        writer.write(head.encode())
        assert b"200" in await reader.readline()
        other = Program(program.address)
        call = await other.call("2026", "tools/call", {"name": "shout", "arguments": {"times": 5000}})
        assert (await other.ended(call))["state"] == "done"
        await other.wire.close()
        writer.close()


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_links_are_shown_before_they_are_opened(era: str) -> None:
    server: Server[Any] = Server("shop")

    @server.tool
    async def pay(ctx: Context) -> str:
        await ctx.elicit_url("Please pay", "https://pay.example/1")
        return "paid"

    async with inspecting(target_of(server)) as program:
        await program.ready()
        call = await program.call(era, "tools/call", {"name": "pay"})
        question = await program.event("question", call=call, state="open")
        assert question["type"] == "url"
        assert question["url"] == "https://pay.example/1"
        assert question["message"] == "Please pay"
        await program.do("answer", question=question["question"], action="accept")
        assert (await program.ended(call))["result"]["content"][0]["text"] == "paid"
