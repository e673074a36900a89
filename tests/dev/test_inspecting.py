"""A server of both eras, looked at through the HTTP interface of `gemel dev`."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator

import pytest

from gemel import Context, Server, ToolError
from tests.dev.program import Program, inspecting, target_of
from tests.serving import running

ERAS = ("2025", "2026")


def make_server() -> Server:
    server = Server("shop", version="3", instructions="Ask for tea.")

    @server.tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    def fail() -> str:
        """Fail."""
        raise ToolError("no tea")

    @server.tool
    async def count(ctx: Context, to: int) -> str:
        """Count with progress."""
        for number in range(to):
            await ctx.report_progress(number + 1, to, f"step {number + 1}")
        return "done"

    @server.tool
    async def forever() -> str:
        """Never end."""
        await asyncio.Event().wait()
        return "never"

    @server.tool
    def large(size: int) -> str:
        """Return a long text."""
        return "é" * size

    @server.tool
    async def order(ctx: Context) -> str:
        """Order after two questions."""
        tea = await ctx.elicit("Which tea?", {"type": "object", "properties": {"tea": {"type": "string"}}})
        milk = await ctx.elicit("Milk?", {"type": "object", "properties": {"milk": {"type": "boolean"}}})
        return f"{tea} {milk}"

    @server.tool
    async def think(ctx: Context) -> str:
        """Ask a model."""
        result = await ctx.sample("Say hello", max_tokens=10)
        return str(result.content)

    @server.tool
    async def where(ctx: Context) -> str:
        """Ask for the roots."""
        return " ".join(str(root.uri) for root in await ctx.list_roots())

    @server.tool
    async def talk(ctx: Context) -> str:
        """Write a log message."""
        await ctx.info("hello log")
        return "ok"

    @server.resource("shop://menu")
    def menu() -> str:
        return "tea"

    @server.resource("shop://{item}/price")
    def price(item: str) -> str:
        return item

    @server.prompt
    def greet(name: str) -> str:
        return f"Hello {name}"

    return server


@pytest.fixture
async def program() -> AsyncIterator[Program]:
    async with inspecting(target_of(make_server())) as program:
        await program.ready()
        yield program


async def test_state_describes_both_connections(program: Program) -> None:
    state = (await program.get("/api/state")).json
    assert state["target"] == "test"
    assert set(state["eras"]) == {"2025", "2026"}
    for era, revision in (("2025", "2025-11-25"), ("2026", "2026-07-28")):
        connection = state["eras"][era]
        assert connection["state"] == "ready"
        assert connection["server"]["name"] == "shop"
        assert connection["server"]["version"] == "3"
        assert connection["revision"] == revision
        assert connection["instructions"] == "Ask for tea."
        assert "tools" in connection["capabilities"]
        assert connection["without"] == []
    assert state["first"] == 1
    assert state["next"] > 1


@pytest.mark.parametrize("era", ERAS)
async def test_offers_are_the_items_as_they_came_with_their_weight(program: Program, era: str) -> None:
    tools = await program.event("offers", era=era, section="tools")
    add = next(tool for tool in tools["items"] if tool["name"] == "add")
    assert add["description"] == "Add two numbers."
    assert add["inputSchema"]["required"] == ["a", "b"]
    assert 20 < add["weight"] < 80
    resources = await program.event("offers", era=era, section="resources")
    assert [item["uri"] for item in resources["items"]] == ["shop://menu"]
    templates = await program.event("offers", era=era, section="templates")
    assert [item["uriTemplate"] for item in templates["items"]] == ["shop://{item}/price"]
    prompts = await program.event("offers", era=era, section="prompts")
    assert prompts["items"][0]["arguments"] == [{"name": "name", "required": True}]


@pytest.mark.parametrize("era", ERAS)
async def test_calls_end_with_the_result_as_it_came(program: Program, era: str) -> None:
    call = await program.call(era, "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
    began = await program.event("call", call=call, state="running")
    assert began["method"] == "tools/call"
    assert began["params"] == {"name": "add", "arguments": {"a": 1, "b": 2}}
    ended = await program.ended(call)
    assert ended["result"]["structuredContent"] == ({"result": 3} if era == "2025" else 3)
    assert ended["ms"] > 0
    read = await program.result(era, "resources/read", {"uri": "shop://menu"})
    assert read["contents"][0]["text"] == "tea"
    prompt = await program.result(era, "prompts/get", {"name": "greet", "arguments": {"name": "Ada"}})
    assert prompt["messages"][0]["content"]["text"] == "Hello Ada"


@pytest.mark.foreign_words("a name that is a number is what a person may try")
@pytest.mark.parametrize("era", ERAS)
async def test_params_are_sent_unchecked_and_errors_of_the_server_shown(program: Program, era: str) -> None:
    ended = await program.ended(await program.call(era, "tools/call", {"name": 7}))
    assert ended["state"] == "failed"
    assert ended["error"]["code"] == -32602
    ended = await program.ended(await program.call(era, "shop/unknown", {"any": ["thing"]}))
    assert ended["error"]["code"] == -32601
    result = await program.result(era, "tools/call", {"name": "fail"})
    assert result["isError"] is True
    assert "no tea" in result["content"][0]["text"]


async def test_messages_carry_the_call_and_the_round(program: Program) -> None:
    for era in ERAS:
        call = await program.call(era, "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
        await program.ended(call)
        mine = [event for event in program.seen if event["kind"] == "message" and event.get("call") == call]
        assert [(message["sender"], message.get("method")) for message in mine] == [
            ("client", "tools/call"),
            ("server", None),
        ]
        assert mine[0]["id"] == mine[1]["id"]
        assert mine[1]["answers"] == "tools/call"
        assert mine[0]["data"]["params"]["arguments"] == {"a": 1, "b": 2}
        assert mine[0]["round"] == 1
        assert mine[0]["size"] > 50
        whole = await program.get(f"/api/messages/{mine[0]['n']}")
        assert whole.json == mine[0]["data"]


async def test_both_eras_are_called_at_once(program: Program) -> None:
    params = {"name": "add", "arguments": {"a": 2, "b": 2}}
    calls = (await program.do("call", both=True, method="tools/call", params=params))["calls"]
    ends = [await program.ended(call) for call in calls]
    assert [end["era"] for end in ends] == ["2025", "2026"]
    assert [end["result"]["structuredContent"] for end in ends] == [{"result": 4}, 4]


@pytest.mark.parametrize("era", ERAS)
async def test_progress_is_shown_with_its_call(program: Program, era: str) -> None:
    call = await program.call(era, "tools/call", {"name": "count", "arguments": {"to": 3}})
    await program.ended(call)
    reports = [event["progress"] for event in program.seen if event.get("call") == call and "progress" in event]
    assert reports[-1] == {"progress": 3, "total": 3, "message": "step 3"}
    messages = [event for event in program.seen if event.get("method") == "notifications/progress"]
    assert messages[-1]["call"] == call


@pytest.mark.parametrize("era", ERAS)
async def test_calls_can_be_cancelled(program: Program, era: str) -> None:
    call = await program.call(era, "tools/call", {"name": "forever"})
    await program.event("message", era=era, call=call, method="tools/call")
    await program.do("cancel", call=call)
    assert (await program.ended(call))["state"] == "cancelled"
    cancelled = await program.event("message", era=era, method="notifications/cancelled")
    assert cancelled["call"] == call
    assert (await program.post({"do": "cancel", "call": call})).status == 409


@pytest.mark.parametrize("era", ERAS)
async def test_results_too_large_for_an_event_are_fetched_as_messages(program: Program, era: str) -> None:
    call = await program.call(era, "tools/call", {"name": "large", "arguments": {"size": 200_000}})
    ended = await program.ended(call)
    assert "result" not in ended
    whole = await program.get(f"/api/messages/{ended['message']}")
    assert whole.headers["content-type"] == "application/json"
    assert whole.json["result"]["content"][0]["text"] == "é" * 200_000
    message = await program.event("message", n=ended["message"])
    assert "data" not in message
    assert len(message["preview"]) == 500
    assert message["size"] > 400_000


@pytest.mark.parametrize("era", ERAS)
async def test_forms_are_answered_round_by_round(program: Program, era: str) -> None:
    call = await program.call(era, "tools/call", {"name": "order"})
    first = await program.event("question", call=call, state="open")
    assert first["type"] == "form"
    assert first["message"] == "Which tea?"
    assert first["schema"]["properties"] == {"tea": {"type": "string"}}
    waiting = await program.event("call", call=call, state="waiting")
    assert waiting["question"] == first["question"]
    await program.do("answer", question=first["question"], action="accept", content={"tea": "green"})
    second = await program.event("question", call=call, state="open", message="Milk?")
    await program.do("answer", question=second["question"], action="accept", content={"milk": True})
    ended = await program.ended(call)
    assert ended["result"]["content"][0]["text"] == "{'tea': 'green'} {'milk': True}"
    answered = await program.event("question", question=first["question"], state="answered")
    assert answered["answer"] == {"action": "accept", "content": {"tea": "green"}}
    assert ended["rounds"] == (1 if era == "2025" else 3)
    again = await program.post({"do": "answer", "question": first["question"], "action": "accept"})
    assert again.status == 409


@pytest.mark.parametrize("era", ERAS)
async def test_forms_are_declined(program: Program, era: str) -> None:
    call = await program.call(era, "tools/call", {"name": "order"})
    question = await program.event("question", call=call, state="open")
    await program.do("answer", question=question["question"], action="decline")
    result = (await program.ended(call))["result"]
    assert result["isError"] is True
    assert "decline" in result["content"][0]["text"]


@pytest.mark.parametrize("era", ERAS)
async def test_sampling_and_roots_are_answered(program: Program, era: str) -> None:
    call = await program.call(era, "tools/call", {"name": "think"})
    question = await program.event("question", call=call, state="open", type="sampling")
    assert question["params"]["messages"][0]["content"]["text"] == "Say hello"
    wrong = await program.post({"do": "answer", "question": question["question"], "result": {"role": 7}})
    assert wrong.status == 409
    content = {"type": "text", "text": "hello there"}
    result = {"role": "assistant", "content": content, "model": "me"}
    await program.do("answer", question=question["question"], result=result)
    assert "hello there" in (await program.ended(call))["result"]["content"][0]["text"]
    call = await program.call(era, "tools/call", {"name": "where"})
    question = await program.event("question", call=call, state="open", type="roots")
    await program.do("answer", question=question["question"], result={"roots": [{"uri": "file:///home/ada"}]})
    assert (await program.ended(call))["result"]["content"][0]["text"] == "file:///home/ada"


@pytest.mark.parametrize("era", ERAS)
async def test_questions_of_a_cancelled_call_are_gone(program: Program, era: str) -> None:
    call = await program.call(era, "tools/call", {"name": "order"})
    question = await program.event("question", call=call, state="open")
    await program.do("cancel", call=call)
    await program.event("question", question=question["question"], state="gone")


@pytest.mark.parametrize("command", ["restart", "connect", "disconnect"])
@pytest.mark.parametrize("era", ERAS)
async def test_calls_end_with_their_connection(program: Program, era: str, command: str) -> None:
    waiting = await program.call(era, "tools/call", {"name": "order"})
    question = await program.event("question", call=waiting, state="open")
    running = await program.call(era, "tools/call", {"name": "forever"})
    await program.event("message", era=era, call=running, method="tools/call")
    await program.do(command, **({} if command == "restart" else {"era": era}))
    for call in (waiting, running):
        ended = await program.ended(call)
        assert ended["state"] == "failed"
        assert ended["error"]["message"]
    await program.event("question", question=question["question"], state="gone")


@pytest.mark.parametrize("era", ERAS)
async def test_log_messages_are_shown(program: Program, era: str) -> None:
    await program.result(era, "tools/call", {"name": "talk"})
    log = await program.event("log", era=era)
    assert log["level"] == "info"
    assert log["data"] == "hello log"
    await program.do("log_level", era=era, level="error")
    await program.result(era, "tools/call", {"name": "talk"})
    await program.result(era, "ping" if era == "2025" else "tools/list")
    assert len([event for event in program.seen if event["kind"] == "log"]) == 1


async def test_a_client_can_lack_capabilities(program: Program) -> None:
    await program.do("as_client", without=["elicitation"])
    for era in ERAS:
        await program.event("connection", era=era, state="ready", without=["elicitation"])
        ended = await program.ended(await program.call(era, "tools/call", {"name": "order"}))
        assert ended.get("result", {}).get("isError") or ended["state"] == "failed"
    assert not [event for event in program.seen if event["kind"] == "question"]


async def test_connections_end_and_begin_on_command(program: Program) -> None:
    await program.do("disconnect", era="2025")
    await program.event("connection", era="2025", state="off", without=[])
    reply = await program.post({"do": "call", "era": "2025", "method": "ping"})
    assert reply.status == 409
    assert "2025" in reply.json["error"]
    program.seen.clear()
    await program.do("connect", era="2025")
    await program.until(lambda event: event["kind"] == "connection" and event["state"] == "ready")
    assert await program.result("2025", "ping") == {}


async def test_only_one_era_is_connected_if_asked() -> None:
    async with inspecting(target_of(make_server()), era="2026") as program:
        await program.ready("2026")
        state = (await program.get("/api/state")).json
        assert state["eras"]["2025"]["state"] == "off"


async def test_a_server_that_cannot_be_reached_is_shown_as_failed() -> None:
    async with inspecting(target_of("http://127.0.0.1:9/mcp")) as program:
        for era in ERAS:
            failed = await program.event("connection", era=era, state="failed")
            assert "127.0.0.1" in failed["error"]


async def test_headers_of_http_requests_are_shown_without_secrets() -> None:
    server = make_server()

    @server.tool
    def greet_all(names: str) -> str:
        """Greet."""
        return names

    async with running(server, "http", port=0) as url:
        target = target_of(url, headers={"Authorization": "Bearer hidden", "X-Color": "blue"})
        async with inspecting(target) as program:
            await program.ready()
            for era in ERAS:
                call = await program.call(era, "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
                await program.ended(call)
                sent = await program.event("message", era=era, call=call, sender="client")
                headers = {name.lower(): value for name, value in sent["headers"].items()}
                assert headers["authorization"] == "…"
                assert headers["x-color"] == "blue"
                if era == "2026":
                    assert headers["mcp-method"] == "tools/call"
                    assert headers["mcp-name"] == "add"
            ended = await program.ended(await program.call("2026", "tools/call", {"name": "größe"}))
            assert ended["state"] == "failed"
            sent = await program.event("message", call=ended["call"], sender="client")
            assert list(sent["decoded"].values()) == ["größe"]
            encoded = base64.b64encode("größe".encode()).decode()
            assert f"=?base64?{encoded}?=" in sent["headers"].values()
            question = await program.call("2025", "tools/call", {"name": "order"})
            asked = await program.event("question", call=question, state="open")
            await program.do("answer", question=asked["question"], action="decline")
            await program.ended(question)
            replies = [
                event
                for event in program.seen
                if event["kind"] == "message" and event.get("call") == question and event["sender"] == "client"
            ]
            assert len(replies) == 2
            assert replies[1]["data"]["result"] == {"action": "decline"}
            assert "hidden" not in str(program.seen)


async def test_the_transport_before_streamable_http_is_observed_as_well() -> None:
    async with (
        running(make_server(), "http", port=0, sse_path="/sse") as url,
        inspecting(target_of(url.replace("/mcp", "/sse")), era="2025") as program,
    ):
        await program.ready("2025")
        connected = await program.event("connection", state="ready")
        assert connected["transport"] == "http"
        call = await program.call("2025", "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
        await program.ended(call)
        mine = [event for event in program.seen if event["kind"] == "message" and event.get("call") == call]
        assert [message["sender"] for message in mine] == ["client", "server"]
        assert mine[0]["headers"]
