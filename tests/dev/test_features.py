"""What `gemel dev` shows besides calls: changes, findings, figures, spans; copies and recordings of what was sent."""

from __future__ import annotations

import ast
import asyncio
import shlex
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from gemel import Changed, Client, Context, Server, ToolError
from gemel.testing import Recording
from tests.dev.program import Program, inspecting, target_of
from tests.programs import require
from tests.serving import running

ERAS = ("2025", "2026")


def make_server() -> Server[Any]:
    server: Server[Any] = Server("shop", version="3")

    @server.tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    def fail(why: str) -> str:
        raise ToolError(why)

    @server.tool
    def repeat(text: str, times: int = 2) -> str:
        return text * times

    @server.tool
    async def change(ctx: Context) -> str:
        """Change things."""
        server.notify(Changed("tools"))
        server.notify(Changed("resource", "shop://menu"))
        return "done"

    @server.tool
    async def count(ctx: Context) -> str:
        await ctx.report_progress(1, 2)
        return "counted"

    @server.tool
    async def ask(ctx: Context) -> str:
        return await ctx.elicit("Which?")

    @server.resource("shop://menu")
    def menu() -> str:
        return "tea"

    @server.prompt
    def greet(name: str) -> str:
        return f"Hello {name}"

    return server


@pytest.fixture
async def program() -> AsyncIterator[Program]:
    async with inspecting(target_of(make_server(), is_own=True)) as program:
        await program.ready()
        yield program


@pytest.mark.parametrize("era", ERAS)
async def test_changes_are_shown_live_and_lists_read_again(program: Program, era: str) -> None:
    await program.do("listen", era=era, uris=["shop://menu"])
    listening = await program.event("listening", era=era, on=True)
    assert listening["uris"] == ["shop://menu"]
    program.seen = program.seen[-1:]
    await program.result(era, "tools/call", {"name": "change"})
    await program.event("change", era=era, what="tools")
    changed = await program.event("change", era=era, what="resource")
    assert changed["uri"] == "shop://menu"
    await program.event("offers", era=era, section="tools")
    await program.do("unlisten", era=era)
    await program.event("listening", era=era, on=False)


async def test_a_subscription_ends_with_its_connection(program: Program) -> None:
    await program.do("listen", era="2026")
    await program.event("listening", era="2026", on=True)
    await program.do("disconnect", era="2026")
    await program.event("listening", era="2026", on=False)


async def test_findings_say_what_hosts_cannot_take() -> None:
    server: Server[Any] = Server("shop")

    @server.tool("x" * 100)
    def long() -> str:
        return ""

    async with inspecting(target_of(server)) as program:
        findings = await program.event("findings", era="2026")
        item = next(item for item in findings["items"] if "x" * 20 in item["place"])
        assert set(item) == {"host", "severity", "place", "message", "effect", "source"}
        assert item["source"].startswith("https://")


async def test_measures_count_the_calls_of_each_tool(program: Program) -> None:
    for number in range(3):
        await program.result("2025", "tools/call", {"name": "add", "arguments": {"a": number, "b": 1}})
    await program.result("2026", "tools/call", {"name": "fail", "arguments": {"why": "no tea"}})
    figures = await program.until(lambda event: event["kind"] == "measures" and set(event["tools"]) == {"add", "fail"})
    add, fail = figures["tools"]["add"], figures["tools"]["fail"]
    assert (add["count"], add["errors"]) == (3, 0)
    assert (fail["count"], fail["errors"]) == (1, 1)
    assert 0 < add["p50"] <= add["p95"] <= add["max"]
    assert sum(count for _, count in add["histogram"]) == 3
    assert add["histogram"][-1][0] is None


@pytest.mark.parametrize("era", ERAS)
async def test_spans_show_a_call_and_its_rounds(program: Program, era: str) -> None:
    call = await program.call(era, "tools/call", {"name": "ask"})
    question = await program.event("question", call=call, state="open")
    await program.do("answer", question=question["question"], action="accept", content={"value": "tea"})
    await program.ended(call)
    root = await program.event("span", span=call)
    assert root["trace"] == call
    assert root["name"] == "tools/call ask"
    assert root["status"] == "ok"
    assert "parent" not in root
    inner = [event for event in program.seen if event["kind"] == "span" and event.get("parent") == call]
    names = ["elicitation/create", "round 1"] if era == "2025" else ["round 1", "round 2"]
    assert [span["name"] for span in inner] == names
    for span in inner:
        assert root["start"] - 1 <= span["start"]
        assert span["start"] + span["ms"] <= root["start"] + root["ms"] + 1


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_without_progress_sends_no_token(program: Program, era: str) -> None:
    await program.do("as_client", era=era, without=["progress"])
    await program.event("connection", era=era, state="ready", without=["progress"])
    call = await program.call(era, "tools/call", {"name": "count"})
    await program.ended(call)
    sent = await program.event("message", call=call, sender="client")
    assert "progressToken" not in sent["data"]["params"].get("_meta", {})
    assert not [event for event in program.seen if event.get("method") == "notifications/progress"]


@pytest.mark.parametrize(
    ("without", "gone"),
    [
        ("elicitation", lambda capabilities: capabilities.get("elicitation")),
        ("sampling", lambda capabilities: capabilities.get("sampling")),
        ("roots", lambda capabilities: capabilities.get("roots")),
        (
            "tasks",
            lambda capabilities: (
                capabilities.get("tasks") or capabilities["extensions"].get("io.modelcontextprotocol/tasks")
            ),
        ),
    ],
)
async def test_capabilities_are_declared_unless_left_out(
    program: Program, without: str, gone: Callable[[dict[str, Any]], object]
) -> None:
    def declared() -> list[dict[str, Any]]:
        inits = [event for event in program.seen if event.get("method") == "initialize"]
        return [event["data"]["params"]["capabilities"] for event in inits]

    await program.do("as_client", era="2025", without=[without])
    await program.event("connection", era="2025", state="ready", without=[without])
    before, after = declared()
    assert gone(before) is not None
    assert gone(after) is None


async def test_a_call_is_copied_as_a_command(program: Program) -> None:
    params = {"name": "repeat", "arguments": {"text": "it's $HOME", "times": 3}}
    call = await program.call("2026", "tools/call", params)
    await program.ended(call)
    text = (await program.do("copy", **{"as": "gemel"}, call=call))["text"]
    assert shlex.split(text) == [
        *["gemel", "call", "test.py", "--era", "2026"],
        *["repeat", "text=it's $HOME", "times:=3"],
    ]
    described = {"era": "2025", "method": "prompts/get", "params": {"name": "greet", "arguments": {"name": "Ada"}}}
    text = (await program.do("copy", **{"as": "gemel"}, **described))["text"]
    assert shlex.split(text) == ["gemel", "prompt", "test.py", "--era", "2025", "greet", "name=Ada"]
    described = {"era": "2025", "method": "resources/read", "params": {"uri": "shop://menu"}}
    assert "gemel read test.py" in (await program.do("copy", **{"as": "gemel"}, **described))["text"]
    reply = await program.post({"do": "copy", "as": "gemel", "era": "2025", "method": "shop/unknown"})
    assert reply.status == 409


@pytest.mark.parametrize("era", ERAS)
async def test_a_copied_test_passes_against_the_server(program: Program, era: str) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}),
        ("tools/call", {"name": "repeat", "arguments": {"text": '"""\\ é\n'}}),
        ("tools/call", {"name": "fail", "arguments": {"why": "no tea"}}),
        ("resources/read", {"uri": "shop://menu"}),
        ("prompts/get", {"name": "greet", "arguments": {"name": "Ada"}}),
    ]
    for method, params in calls:
        call = await program.call(era, method, params)
        await program.ended(call)
        text = (await program.do("copy", **{"as": "pytest"}, call=call))["text"]
        names: dict[str, Any] = {}
        place = next(node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.With)).items[0].context_expr
        assert isinstance(place, ast.Call)
        exec(text.replace("Client(''", "Client(server"), names)
        (test,) = [value for name, value in names.items() if name.startswith("test_")]
        names["server"] = make_server()
        await asyncio.to_thread(test)


async def test_a_call_is_copied_for_curl() -> None:
    require("curl")
    async with running(make_server(), "http", port=0) as url:
        target = target_of(url, headers={"Authorization": "Bearer hidden"})
        async with inspecting(target) as program:
            await program.ready()
            call = await program.call("2026", "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
            await program.ended(call)
            text = (await program.do("copy", **{"as": "curl"}, call=call))["text"]
            assert "hidden" not in text
            assert "$TOKEN" in text
            process = await asyncio.create_subprocess_exec(
                *("/bin/sh", "-c", f"TOKEN='Bearer hidden'; {text}"),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
            output, _ = await process.communicate()
            assert b'"structuredContent":3' in output
            described = {
                "era": "2026",
                "method": "tools/call",
                "params": {"name": "add", "arguments": {"a": 4, "b": 5}},
            }
            text = (await program.do("copy", **{"as": "curl"}, **described))["text"]
            process = await asyncio.create_subprocess_exec(
                *("/bin/sh", "-c", text), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
            )
            output, _ = await process.communicate()
            assert b'"structuredContent":9' in output


async def test_messages_are_exported_as_a_recording_that_replays(program: Program, tmp_path: Path) -> None:
    params: dict[str, Any] = {"name": "add", "arguments": {"a": 1, "b": 2}}
    for era in ERAS:
        await program.result(era, "tools/call", params)
        await program.result(era, "tools/call", {"name": "repeat", "arguments": {"text": "x" * 50_000}})
    assert (await program.get("/api/export?era=1999")).status == 400
    replies = {era: await program.get(f"/api/export?era={era}") for era in ERAS}
    assert (await program.get("/api/export")).body == replies["2026"].body
    for era, reply in replies.items():
        assert reply.headers["content-disposition"] == f'attachment; filename="test-{era}.jsonl"'
        file = tmp_path / f"{era}.jsonl"
        file.write_bytes(reply.body)
        recording = Recording(file, record="never")
        async with Client(recording, era="2025" if era == "2025" else "2026") as client:
            assert (await client.call_tool("add", params["arguments"])).text == "3"
            long = await client.call_tool("repeat", {"text": "x" * 50_000})
            assert len(long.text) == 100_000


async def test_long_lists_come_in_pieces() -> None:
    server: Server[Any] = Server("large")

    def make(number: int) -> Callable[[], str]:
        def tool() -> str:
            return str(number)

        return tool

    for number in range(450):
        server.tool(f"tool{number}")(make(number))
    async with inspecting(target_of(server), era="2025") as program:
        await program.ready("2025")
        parts = [event for event in program.seen if event["kind"] == "offers" and event["section"] == "tools"]
        assert [(part["part"], part["parts"], len(part["items"])) for part in parts] == [
            (0, 3, 200),
            (1, 3, 200),
            (2, 3, 50),
        ]
        names = [item["name"] for part in parts for item in part["items"]]
        assert names == [f"tool{number}" for number in range(450)]
