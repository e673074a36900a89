"""Asking from inside a handler: one handler, both eras; what was answered or done before is never asked or done again."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Annotated, Any

import msgspec
import pytest

from gemel import (
    Client,
    Context,
    Declined,
    ElicitFormParams,
    ElicitResult,
    GemelError,
    InvalidParams,
    Limits,
    PeerError,
    SamplingMessage,
    SamplingRejected,
    Server,
    TextContent,
    Titled,
    ToolCallError,
    ToolResultContent,
    ToolUseContent,
)
from gemel.server.elicitation.elicit import check_tool_results
from tests.jumping_clock import in_no_time
from tests.server.bare_end import BareEnd
from tests.transports.http_rig import serving
from tests.wire import routes
from tests.wire.talk import Talk

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])


class Ticket(msgspec.Struct):
    number: int


def buy() -> Ticket:
    return Ticket(7)


class Answers:
    """A user who answers by the text of the question, and keeps count."""

    def __init__(self, **by_text: Any) -> None:
        self.by_text = by_text
        self.asked: list[str] = []

    def __call__(self, request: ElicitFormParams) -> Any:
        self.asked.append(request.message)
        answer = self.by_text[request.message]
        return answer if isinstance(answer, dict | None | ElicitResult) else {"value": answer}


def serves(tool: Any) -> Server[Any]:
    server: Server[Any] = Server("asks")
    server.tool("it")(tool)
    return server


async def run(tool: Any, era: Any, user: Answers, **options: Any) -> str:
    """What the tool says in the end."""
    async with Client(serves(tool), era=era, on_elicit=user, **options) as client:
        return (await client.call_tool("it")).text


@both_eras
async def test_answers_come_back_in_the_place_of_their_questions(era: Any) -> None:
    async def tool(ctx: Context[Any]) -> str:
        names = [await ctx.elicit(text, str) for text in ("a", "b", "c")]
        return "".join(names)

    user = Answers(a="A", b="B", c="C")
    assert await run(tool, era, user) == "ABC"
    assert user.asked == ["a", "b", "c"]


@both_eras
async def test_the_same_question_twice_is_two_questions(era: Any) -> None:
    """Numbered by how often it was asked."""
    numbers = itertools.count(1)

    async def tool(ctx: Context[Any]) -> str:
        return str([await ctx.elicit("again", int), await ctx.elicit("again", int)])

    async with Client(serves(tool), era=era, on_elicit=lambda request: {"value": next(numbers)}) as client:
        assert (await client.call_tool("it")).text == "[1, 2]"


@both_eras
@pytest.mark.parametrize("together", ["gather", "group"])
async def test_questions_asked_together_go_out_together(era: Any, together: str) -> None:
    """MRTR-04, MRTR-06: one round, also out of a task group."""
    runs: list[int] = []

    async def tool(ctx: Context[Any]) -> str:
        runs.append(1)
        if together == "gather":
            return "".join(await asyncio.gather(*(ctx.elicit(text, str) for text in "abc")))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ctx.elicit(text, str)) for text in "abc"]
        return "".join(task.result() for task in tasks)

    user = Answers(a="A", b="B", c="C")
    assert await run(tool, era, user) == "ABC"
    assert sorted(user.asked) == ["a", "b", "c"]
    assert len(runs) == (1 if era == "2025" else 2)


@both_eras
async def test_a_step_runs_once_over_all_rounds(era: Any) -> None:
    """Also one that is async, has arguments, or runs several times with different ones."""
    ran: list[Any] = []

    def charge(amount: int) -> dict[str, int]:
        ran.append(amount)
        return {"paid": amount}

    async def fetch(*, name: str) -> str:
        ran.append(name)
        return name.upper()

    async def tool(ctx: Context[Any]) -> str:
        first = await ctx.step(charge, 5)
        await ctx.elicit("a", str)
        again = [await ctx.step(charge, 5), await ctx.step(charge, 7), await ctx.step(fetch, name="x")]
        await ctx.elicit("b", str)
        return str([first, *again])

    assert await run(tool, era, Answers(a="A", b="B")) == str([{"paid": 5}, {"paid": 5}, {"paid": 7}, "X"])
    assert ran == [5, 5, 7, "x"]


@both_eras
async def test_a_step_gives_back_its_functions_type(era: Any) -> None:
    async def tool(ctx: Context[Any]) -> str:
        ticket = await ctx.step(buy)
        await ctx.elicit("a", str)
        return f"{type(ticket).__name__} {ticket.number}"

    assert await run(tool, era, Answers(a="A")) == "Ticket 7"


@both_eras
async def test_what_a_user_declined_can_be_caught(era: Any) -> None:
    """ELIC-10, ELIC-17."""

    async def tool(ctx: Context[Any]) -> str:
        try:
            await ctx.elicit("a", str)
        except Declined as exc:
            return f"then not: {exc.action}"
        return "done"

    assert await run(tool, era, Answers(a=None)) == "then not: decline"
    assert await run(tool, era, Answers(a=ElicitResult(action="cancel"))) == "then not: cancel"


@both_eras
async def test_a_handler_that_catches_exceptions_still_asks(era: Any) -> None:
    """The end of a round is no Exception."""
    cleaned: list[str] = []

    async def tool(ctx: Context[Any]) -> str:
        try:
            return await ctx.elicit("a", str)
        except Exception:
            return "swallowed"
        finally:
            await asyncio.sleep(0)
            cleaned.append("up")

    assert await run(tool, era, Answers(a="A")) == "A"
    assert len(cleaned) == (1 if era == "2025" else 2)


async def test_a_question_that_varies_is_an_error_that_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """Never a wrong answer."""
    numbers = itertools.count()

    async def tool(ctx: Context[Any]) -> str:
        return await ctx.elicit(f"number {next(numbers)}", str)

    async with Client(serves(tool), era="2026", on_elicit=lambda request: {"value": "x"}) as client:
        with pytest.raises((ToolCallError, PeerError)):
            await client.call_tool("it")
    assert "a handler must request the same in every round" in caplog.text


@both_eras
async def test_a_named_question_may_vary_in_its_words(era: Any) -> None:
    numbers = itertools.count()

    async def tool(ctx: Context[Any]) -> str:
        return await ctx.elicit(f"number {next(numbers)}", str, key="which")

    async with Client(serves(tool), era=era, on_elicit=lambda request: {"value": "x"}) as client:
        assert (await client.call_tool("it")).text == "x"


async def test_two_questions_of_one_name_are_an_error_and_no_mix_up(caplog: pytest.LogCaptureFixture) -> None:
    """MRTR-04: a key is unique in its request."""

    async def tool(ctx: Context[Any]) -> str:
        return str([await ctx.elicit("first", str, key="k"), await ctx.elicit("second", str, key="k")])

    async with Client(serves(tool), era="2026", on_elicit=lambda request: {"value": request.message}) as client:
        with pytest.raises((ToolCallError, PeerError)):
            await client.call_tool("it")
    assert "'k'" in caplog.text


async def test_two_questions_of_one_name_in_one_round_are_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """MRTR-04: a key is unique in its request."""

    async def tool(ctx: Context[Any]) -> str:
        first, second = ctx.elicit("first", str, key="k"), ctx.elicit("second", str, key="k")
        return str([await first, await second])

    async with Client(serves(tool), era="2026", on_elicit=lambda request: {"value": request.message}) as client:
        with pytest.raises((ToolCallError, PeerError)):
            await client.call_tool("it")
    assert "input with the key 'k' is requested already" in caplog.text


@both_eras
async def test_prompts_ask_too(era: Any) -> None:
    server: Server[Any] = Server("asks")

    @server.prompt
    async def greet(ctx: Context[Any]) -> str:
        return f"Hello {await ctx.elicit('name', str)}"

    async with Client(server, era=era, on_elicit=Answers(name="Ann")) as client:
        messages = (await client.get_prompt("greet")).messages
    assert isinstance(messages[0].content, TextContent)
    assert messages[0].content.text == "Hello Ann"


@both_eras
async def test_a_form_given_as_a_schema_gives_a_dict_that_fits(era: Any) -> None:
    """ELIC-24."""
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}

    async def tool(ctx: Context[Any]) -> str:
        return str(await ctx.elicit("form", schema))

    assert await run(tool, era, Answers(form={"n": 3})) == "{'n': 3}"
    with pytest.raises((PeerError, ToolCallError, GemelError)):
        await run(tool, era, Answers(form=ElicitResult(action="accept", content={"n": 0})))


@pytest.mark.parametrize(
    ("schema", "content", "answer"),
    [
        ({"n": {"type": "integer", "minimum": 1}}, {"content": {"n": 0}}, "doesn't fit the form: n: "),
        ({"n": {"type": "integer"}}, {"content": {}}, "{}"),
        ({"n": {"type": "integer"}}, {}, "{}"),
    ],
    ids=["wrong", "empty", "left out"],
)
async def test_a_client_that_does_not_check_an_answer_is_checked(
    schema: dict[str, Any], content: dict[str, Any], answer: str
) -> None:
    """ELIC-24."""

    async def tool(ctx: Context[Any]) -> str:
        try:
            return str(await ctx.elicit("form", {"type": "object", "properties": schema}))
        except InvalidParams as exc:
            return str(exc)

    async with BareEnd(
        serves(tool),
        "2025",
        capabilities={"elicitation": {}},
        answer=lambda method, params: {"action": "accept", **content},
    ) as end:
        assert answer in await end.text("it")


@pytest.mark.parametrize(
    ("revision", "field"),
    [
        ("2025-06-18", {"type": "string", "enum": ["s", "l"], "enumNames": ["Small", "Large"]}),
        (
            "2025-11-25",
            {"type": "string", "oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]},
        ),
    ],
)
async def test_a_question_has_the_shape_of_the_revision(revision: str, field: dict[str, Any]) -> None:
    """ELIC-07."""
    asked: list[Any] = []

    async def tool(ctx: Context[Any]) -> str:
        size: Any = Annotated[str, Titled(s="Small", l="Large")]
        return str(await ctx.elicit("Which size?", size))

    def answer(method: str, params: Any) -> Any:
        asked.append(params)
        return {"action": "accept", "content": {"value": "s"}}

    async with BareEnd(serves(tool), "2025", revision=revision, capabilities={"elicitation": {}}, answer=answer) as end:
        assert await end.text("it") == "s"
    (params,) = asked
    assert params["requestedSchema"]["properties"]["value"] == field


@in_no_time
async def test_a_question_that_is_never_answered_ends_in_time() -> None:
    """LIFE-14: in the handshake era the handler waits, but not for ever."""

    async def tool(ctx: Context[Any]) -> str:
        return await ctx.elicit("a", str)

    async def late(request: ElicitFormParams) -> Any:
        await asyncio.sleep(10_000)
        return {"value": "too late"}

    server: Server[Any] = Server("asks", limits=Limits(input_wait=30.0))
    server.tool("it")(tool)
    async with Client(server, era="2025", on_elicit=late) as client:
        with pytest.raises(ToolCallError):
            await client.call_tool("it", idle=None, total=None)


@pytest.mark.parametrize("finishes", [True, False])
@in_no_time
async def test_a_question_waits_until_the_client_has_finished_its_handshake(finishes: bool) -> None:
    """LIFE-09. Clients that never do so are asked after five seconds; then as others."""

    async def tool(ctx: Context[Any]) -> str:
        return await ctx.elicit("a", str)

    loop = asyncio.get_running_loop()
    async with routes.memory(serves(tool)) as route:
        talk = Talk(route, "2025")
        params = {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": talk.info}
        await talk.say({"id": 0, "method": "initialize", "params": params})
        await talk.answer_to(0)
        begun = loop.time()
        for number in range(2):
            call = await talk.begin("tools/call", name="it", arguments={})
            if finishes and not number:
                await asyncio.sleep(3)
                assert talk.heard() == []
                await talk.say({"method": "notifications/initialized"})
            question = json.loads(await route.next(lambda data: b"elicitation/create" in data))
            assert loop.time() - begun == pytest.approx(3 if finishes else 5, abs=0.1)
            await talk.say({"id": question["id"], "result": {"action": "accept", "content": {"value": "x"}}})
            assert (await talk.answer_to(call))["result"]["content"][0]["text"] == "x"


async def test_an_answer_that_can_not_be_read_fails_the_tool() -> None:
    async def tool(ctx: Context[Any]) -> str:
        return await ctx.elicit("a", str)

    answered: dict[str, Any] = {"action": "accept", "content": 5}
    async with BareEnd(
        serves(tool), "2025", capabilities={"elicitation": {}}, answer=lambda method, params: answered
    ) as end:
        result = await end.call_tool("it")
    assert result["isError"]
    assert "The client's answer to elicitation/create can't be read" in result["content"][0]["text"]


async def test_a_notification_cannot_ask_a_stateless_client(caplog: pytest.LogCaptureFixture) -> None:
    server: Server[Any] = Server("asks")

    @server.notification("notifications/acme")
    async def noted(ctx: Context[Any], params: Any) -> None:
        await ctx.list_roots()

    @server.tool
    async def nothing() -> None: ...

    async with routes.memory(server) as route:
        talk = Talk(route, "2026")
        talk.capabilities = {"roots": {}}
        await talk.open()
        await talk.say({"method": "notifications/acme"})
        await talk.call("nothing")
        assert talk.heard() == []
    assert "is a notification: its handler can't request input" in caplog.text


async def test_a_state_belongs_to_whom_it_was_given() -> None:
    """MRTR-12, SEC-02, ELIC-25: another principal can't go on with it."""

    async def tool(ctx: Context[Any]) -> str:
        return f"{ctx.principal} is {await ctx.elicit('a', str)}"

    async def who(scope: Any, headers: Any) -> str:
        return str(headers["authorization"])

    async with serving(serves(tool), authenticate=who) as site:

        async def ask(principal: str, **more: Any) -> Any:
            from tests.transports.http_rig import modern

            headers, body = modern("tools/call", {"name": "it", **more})
            capabilities: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
            body["params"]["_meta"].update(capabilities)
            reply = await site.ask({**headers, "Mcp-Name": "it", "Authorization": principal}, body)
            return reply.json()

        asked = (await ask("ann"))["result"]
        (key,) = asked["inputRequests"]
        answers = {key: {"action": "accept", "content": {"value": "A"}}}
        answered = {"requestState": asked["requestState"], "inputResponses": answers}
        assert (await ask("bob", **answered))["error"][
            "message"
        ] == "Invalid requestState: it belongs to another request"
        assert (await ask("ann", **answered))["result"]["content"][0]["text"] == "ann is A"


def use(*ids: str) -> SamplingMessage:
    return SamplingMessage(role="assistant", content=[ToolUseContent(id=one, name="t", input={}) for one in ids])


def results(*ids: str, more: bool = False) -> SamplingMessage:
    blocks: list[Any] = [ToolResultContent(tool_use_id=one, content=[]) for one in ids]
    return SamplingMessage(role="user", content=[*blocks, *([TextContent(text="x")] if more else [])])


@pytest.mark.parametrize(
    ("revision", "declared", "said"),
    [
        ("2025-06-18", {}, "thisServer"),
        ("2025-11-25", {}, None),
        ("2025-11-25", {"context": {}}, "thisServer"),
        ("2026-07-28", {"tools": {}}, None),
        ("2026-07-28", {"context": {}}, "thisServer"),
    ],
)
async def test_a_model_is_given_other_servers_words_where_the_client_offers_that(
    revision: str, declared: dict[str, Any], said: str | None
) -> None:
    """SAMP-09: before there was a capability for it, everybody may be asked."""
    server: Server[Any] = Server("s")

    @server.tool
    async def think(ctx: Context[Any]) -> str:
        return (await ctx.sample("hello", include_context="thisServer")).text

    async with routes.memory(server) as route:
        talk = Talk(route, revision[:4])
        talk.capabilities = {"sampling": declared}
        if revision < "2026":
            params = {"protocolVersion": revision, "capabilities": talk.capabilities, "clientInfo": talk.info}
            await talk.ask("initialize", **params)
            await talk.say({"method": "notifications/initialized"})
            call = await talk.begin("tools/call", name="think")
            asked = await talk.hear("sampling/createMessage")
            await talk.route.cancel(call, "2025")
        else:
            result = (await talk.ask("tools/call", name="think"))["result"]
            (asked,) = [question["params"] for question in result["inputRequests"].values()]
        assert asked.get("includeContext") == said


def test_tool_uses_and_results_balance() -> None:
    """SAMP-06, SAMP-07."""
    hello = SamplingMessage(role="user", content=TextContent(text="hello"))
    check_tool_results([hello, use("a", "b"), results("b", "a"), hello])
    for wrong in (
        [use("a")],
        [results("a")],
        [use("a"), results("b")],
        [use("a", "b"), results("a")],
        [use("a"), hello, results("a")],
        [use("a"), results("a", more=True)],
    ):
        with pytest.raises(GemelError):
            check_tool_results(wrong)


async def test_a_client_that_answers_with_an_error_fails_the_tool_in_its_own_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """SAMP-12: users refuse; that is no crash of the server."""
    server = Server("asks")

    @server.tool
    async def think(ctx: Context, catching: bool = False) -> str:
        try:
            return str(await ctx.sample("Think"))
        except PeerError as error:
            if not catching:
                raise
            return f"caught {error.code}: {error.message}"

    async def refuse(params: Any) -> Any:
        raise SamplingRejected("not today")

    async with Client(server, era="2025", on_sample=refuse) as client:
        result = await client.call_tool("think", raise_on_error=False)
        assert result.is_error
        assert result.text == "The client did not answer sampling/createMessage: not today (-1)"
        assert (await client.call_tool("think", {"catching": True})).text == "caught -1: not today"
    assert not [record for record in caplog.records if record.exc_info]
