"""A proxied server is the same server: features, questions, progress, logs, changes, errors, in all pairs of eras."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from gemel import (
    CallNext,
    CallToolResult,
    Changed,
    Client,
    Context,
    DefinitionError,
    ElicitUrlParams,
    Implementation,
    Limits,
    LogParams,
    MethodNotFound,
    PeerError,
    ProgressParams,
    ProtocolError,
    Server,
    ToolCallError,
    UrlElicitationRequired,
)
from gemel.schema.lifecycle import ServerCapabilities
from gemel.server.context import served_call
from tests.jumping_clock import in_no_time
from tests.proxy.rig import ANSWERING, Behind, all_eras, each_behind, each_front, fill_in
from tests.support import FIRST, V2025_03, V2025_06, V2025_11
from tests.transports.http_rig import serving
from tests.wire.talk import Refusal, talking

# ---------------------------------------------------------------- features


@all_eras
async def test_everything_that_is_offered_shows(behind: Any, front: Any) -> None:
    async with Client(Behind().proxy(behind), era=front) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
        assert list(tools) == ["add", "fail", "tell", "wait", "book", "both", "page"]
        assert (tools["add"].title, tools["add"].description) == ("Add", "Add two numbers.")
        assert tools["add"].output_schema is not None
        assert [one.uri for one in await client.list_resources()] == ["city://all"]
        assert [one.uri_template for one in await client.list_resource_templates()] == ["city://{name}/now"]
        assert [one.name for one in await client.list_prompts()] == ["ask", "brief"]


@all_eras
async def test_calls_reads_prompts_and_completion_pass(behind: Any, front: Any) -> None:
    async with Client(Behind().proxy(behind), era=front) as client:
        called = await client.call_tool("add", {"a": 2, "b": 3})
        assert (called.structured_content, called.text) == ({"sum": 5}, '{"sum":5}')
        failed = await client.call_tool("add", {"a": "x"}, raise_on_error=False)
        assert failed.is_error
        assert (await client.read_resource("city://oslo/now")).contents[0].text == "mild in oslo"
        got = await client.get_prompt("brief", {"city": "Oslo"})
        assert got.messages[0].content.text == "the weather in Oslo"  # type: ignore[union-attr]  # it is a text
        found = await client.complete(resource="city://{name}/now", argument="name", value="o")
        assert found.values == ["oslo"]


@all_eras
async def test_it_introduces_itself_as_the_server_behind_unless_it_has_a_name(behind: Any, front: Any) -> None:
    for options, expected in (({}, ("behind", "7")), ({"name": "front"}, ("front", "0"))):
        async with Client(Behind().proxy(behind, **options), era=front) as client:
            assert client.server_info is not None
            assert (client.server_info.name, client.server_info.version) == expected
            assert client.instructions == "Be kind."
            result = await client.call_tool("add", {"a": 1, "b": 1})
            signed: Any = (result.meta or {}).get("io.modelcontextprotocol/serverInfo")
            assert signed is None if front == "2025" else signed["name"] == expected[0]


@all_eras
async def test_only_what_is_behind_is_offered(behind: Any, front: Any) -> None:
    """ERR-03."""
    server: Server[Any] = Server("small", log_level=None)
    server.tool("hello")(lambda: "hello")

    @server.add_middleware
    async def without_prompts(ctx: Context[Any], call_next: CallNext) -> Any:
        if ctx.method.startswith(("prompts/", "resources/")):
            raise MethodNotFound(ctx.method)
        result = await call_next(ctx)
        if ctx.method in ("initialize", "server/discover"):
            result.capabilities = ServerCapabilities(tools=result.capabilities.tools)
        return result

    async with Client(Server.from_client(Client(server, era=behind)), era=front) as client:
        found = client.server_capabilities
        assert found.tools is not None
        assert (found.prompts, found.resources, found.completions, found.logging) == (None, None, None, None)
        for method, params in (("prompts/list", {}), ("resources/read", {"uri": "a:b"})):
            with pytest.raises(PeerError) as refused:
                await client.request(method, params)
            assert refused.value.code == -32601


@all_eras
async def test_pages_pass_one_by_one(behind: Any, front: Any) -> None:
    """PAGE-01, PAGE-02, PAGE-03: cursors are the server's own."""
    server: Server[Any] = Server("pages", page_size=2)
    for number in range(5):
        server.tool(f"t{number}")(lambda: "")
    async with Client(Server.from_client(Client(server, era=behind)), era=front) as client:
        first = await client.request("tools/list", {})
        assert [tool["name"] for tool in first["tools"]] == ["t0", "t1"]
        assert [tool.name for tool in await client.list_tools()] == [f"t{number}" for number in range(5)]
        with pytest.raises(PeerError) as refused:
            await client.request("tools/list", {"cursor": "nonsense"})
        assert refused.value.code == -32602


@pytest.mark.parametrize("shared", [False, True])
@each_behind
async def test_each_caller_has_a_session_unless_they_are_told_to_share_one(behind: Any, shared: bool) -> None:
    opened: list[str] = []

    async def count(ctx: Context[Any], call_next: CallNext) -> Any:
        opened.append(ctx.method)
        return await call_next(ctx)

    server = Behind(middleware=[count]).proxy(behind, shared=shared)
    async with Client(server, era="2025") as one, Client(server, era="2026") as two:
        for client in (one, two, one, two):
            await client.call_tool("add", {"a": 1, "b": 1})
    assert opened.count("tools/call") == 4
    assert opened.count("initialize") == (behind == "2025") * (1 if shared else 2)
    assert opened.count("server/discover") == (behind == "2026")


# ---------------------------------------------------------------- questions


@all_eras
async def test_questions_reach_the_caller_and_the_call_goes_on(behind: Any, front: Any) -> None:
    """MRTR-01, MRTR-07: a handshake server's call is made once, however many rounds its caller needs."""
    rig = Behind()
    told: list[ProgressParams] = []
    async with Client(rig.proxy(behind), era=front, **ANSWERING) as client:
        result = await client.call_tool("book", {"city": "Oslo"}, on_progress=told.append)
        assert result.text == "Oslo which sampled file:///r"
        assert (await client.get_prompt("ask", {"topic": "tea"})).messages[0].content.text == "tea: really"  # type: ignore[union-attr]  # it is a text
        assert (await client.call_tool("page")).text == "seen"
    if behind == "2025":
        assert rig.runs == ["Oslo", "tea", "page"]
    assert [one.progress for one in told].count(1) >= 1


@all_eras
async def test_questions_asked_together_are_all_answered(behind: Any, front: Any) -> None:
    async with Client(Behind().proxy(behind), era=front, **ANSWERING) as client:
        assert (await client.call_tool("both")).text == "one two"


@all_eras
async def test_a_refusal_passes(behind: Any, front: Any) -> None:
    """ELIC-10, ELIC-17."""
    answering = {**ANSWERING, "on_elicit": lambda form: None, "on_elicit_url": lambda page: False}
    async with Client(Behind().proxy(behind), era=front, **answering) as client:
        for name, arguments in (("book", {"city": "Oslo"}), ("page", {})):
            failed = await client.call_tool(name, arguments, raise_on_error=False)
            assert failed.is_error
            assert "declined" in failed.text


@all_eras
async def test_who_can_not_be_asked_is_not_asked(behind: Any, front: Any) -> None:
    """MRTR-05: a stateless server is told on each request; a handshake server hears of it when it asks."""
    rig = Behind()
    async with Client(rig.proxy(behind), era=front) as client:
        assert (await client.call_tool("book", {"city": "Oslo"}, raise_on_error=False)).is_error
        if behind == front == "2026":
            with pytest.raises(PeerError) as refused:
                await client.call_tool("book", {"city": "Oslo"})
            assert refused.value.code == -32021
            assert refused.value.data == {"requiredCapabilities": {"elicitation": {"form": {}}}}


@all_eras
async def test_a_client_that_can_only_fill_in_forms_is_shown_no_page(behind: Any, front: Any) -> None:
    """ELIC-02."""
    async with Client(Behind().proxy(behind), era=front, on_elicit=fill_in) as client:
        assert (await client.call_tool("page", raise_on_error=False)).is_error


@all_eras
async def test_what_the_client_of_the_proxy_answers_itself_is_not_passed_on(behind: Any, front: Any) -> None:
    asked: list[str] = []

    def own(params: Any) -> str:
        asked.append("own")
        return "own model"

    server = Server.from_client(Client(Behind().server, era=behind, on_sample=own))
    answering = {key: value for key, value in ANSWERING.items() if key != "on_sample"}
    async with Client(server, era=front, **answering) as client:
        assert (await client.call_tool("book", {"city": "Oslo"})).text == "Oslo which own model file:///r"
    assert asked == ["own"]


async def test_answers_of_both_in_one_round_come_together() -> None:
    """The next server asks two things at once: one of the proxy's own client, one of the caller."""
    server: Server[Any] = Server("two")

    @server.tool
    async def two(ctx: Context[Any]) -> str:
        model, day = await asyncio.gather(ctx.sample("Model?"), ctx.elicit("Day?", str))
        return f"{model.content.text} {day}"  # type: ignore[union-attr]  # it is a text

    proxied = Server.from_client(Client(server, era="2026", on_sample=lambda params: "own"))
    async with Client(proxied, era="2026", on_elicit=fill_in) as client:
        assert (await client.call_tool("two")).text == "own day"


@each_front
async def test_a_question_of_a_handshake_server_is_refused_while_it_could_be_anybodys(front: Any) -> None:
    """One caller must never answer for another one in a session that they share."""
    rig = Behind()
    server = rig.proxy("2025", shared=True)
    asked: list[str] = []

    def answer(form: Any) -> dict[str, str]:
        asked.append(form.message)
        return {"value": "x"}

    async with Client(server, era=front, on_elicit=answer) as one, Client(server, era=front, on_elicit=answer) as other:
        waiting = asyncio.create_task(other.call_tool("wait"))
        await rig.started.wait()
        failed = await one.call_tool("both", raise_on_error=False)
        assert failed.is_error
        assert not asked
        waiting.cancel()
        await asyncio.wait([waiting])
        assert (await one.call_tool("both")).text == "x x"


@each_front
async def test_one_caller_with_several_calls_is_asked_for_all_of_them(front: Any) -> None:
    rig = Behind()
    async with Client(rig.proxy("2025"), era=front, **ANSWERING) as client:
        cities = [f"c{number}" for number in range(8)]
        found = await asyncio.gather(*(client.call_tool("book", {"city": city}) for city in cities))
        assert [one.text for one in found] == [f"{city} which sampled file:///r" for city in cities]
        assert sorted(rig.runs) == cities


async def test_roots_that_a_handshake_server_asks_for_by_itself_are_those_of_the_one_client() -> None:
    """It may ask before there is a client: then again when there is one."""
    found: list[str] = []
    server: Server[Any] = Server("roots")
    server.tool("none")(lambda: "")

    async def ask(ctx: Context[Any], params: Any) -> None:
        async def later() -> None:
            try:
                raw = await served_call(ctx).session.request("roots/list")
                found.append(bytes(raw).decode())
            except PeerError as exc:
                found.append(exc.message)

        tasks.add(asyncio.create_task(later()))

    tasks: set[asyncio.Task[None]] = set()
    server.notification("notifications/initialized")(ask)
    server.notification("notifications/roots/list_changed")(ask)
    async with Client(Server.from_client(Client(server, era="2025")), era="2025", on_roots=["file:///mine"]):
        await until(lambda: len(found) == 2)
    assert found[0] == "No client is connected to this proxy"
    assert "file:///mine" in found[1]


async def test_who_was_shown_a_page_hears_that_it_is_finished() -> None:
    """ELIC-13."""
    server: Server[Any] = Server("pages")

    @server.tool
    async def sign_in(ctx: Context[Any]) -> str:
        page = {"mode": "url", "message": "Sign in", "url": "https://example.com/x", "elicitationId": "e1"}
        await served_call(ctx).session.request("elicitation/create", page, about=served_call(ctx).call)
        for identity in ("e1", "e2", "e1"):
            await ctx.notify("notifications/elicitation/complete", {"elicitationId": identity})
        return ""

    heard: list[tuple[str, Any]] = []
    proxied = Server.from_client(Client(server, era="2025"))
    async with (
        Client(proxied, era="2025", on_notification=lambda *said: heard.append(("other", said))),
        Client(
            proxied,
            era="2025",
            on_elicit_url=lambda page: page.elicitation_id == "e1",
            on_notification=lambda *said: heard.append(("one", said)),
        ) as client,
    ):
        await client.call_tool("sign_in")
        await until(lambda: bool(heard))
    assert heard == [("one", ("notifications/elicitation/complete", {"elicitationId": "e1"}))]


# ---------------------------------------------------------------- cancelling


@all_eras
async def test_cancelling_at_one_end_stops_the_handler_at_the_other(behind: Any, front: Any) -> None:
    """CANC-06."""
    rig = Behind()
    async with Client(rig.proxy(behind), era=front) as client:
        call = asyncio.create_task(client.call_tool("wait"))
        await rig.started.wait()
        call.cancel()
        await until(lambda: rig.stopped == ["wait"])


@all_eras
async def test_cancelling_while_a_question_is_open_stops_the_handler(behind: Any, front: Any) -> None:
    asked = asyncio.Event()
    ended: list[str] = []
    server: Server[Any] = Server("asks")

    @server.tool
    async def ask(ctx: Context[Any]) -> str:
        try:
            return await ctx.elicit("Who?", str)
        finally:
            ended.append("ended")

    async def think(form: Any) -> dict[str, str]:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("question ended")
        return {}

    proxied = Server.from_client(Client(server, era=behind), parked=5)
    async with Client(proxied, era=front, on_elicit=think) as client:
        call = asyncio.create_task(client.call_tool("ask"))
        await asked.wait()
        call.cancel()
        await until(lambda: "question ended" in ended)
        if (behind, front) == ("2025", "2026"):
            assert len(proxied._proxies.here().rounds._parked) == 1  # type: ignore[attr-defined]  # nobody tells: it expires
        else:
            await until(lambda: "ended" in ended)
    await until(lambda: "ended" in ended)


async def test_a_question_that_is_no_longer_asked_is_taken_back_from_the_caller() -> None:
    """CANC-02: the server behind cancels its own question."""
    asked, taken_back = asyncio.Event(), asyncio.Event()
    server: Server[Any] = Server("asks")

    @server.tool
    async def ask(ctx: Context[Any]) -> str:
        question = asyncio.create_task(ctx.elicit("Who?", str))
        await asked.wait()
        question.cancel()
        await taken_back.wait()
        return "never mind"

    async def think(form: Any) -> dict[str, str]:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            taken_back.set()
        return {}

    async with Client(Server.from_client(Client(server, era="2025")), era="2025", on_elicit=think) as client:
        async with asyncio.timeout(5):
            assert (await client.call_tool("ask")).text == "never mind"


@all_eras
async def test_a_client_that_leaves_stops_what_it_began(behind: Any, front: Any) -> None:
    rig = Behind()
    server = rig.proxy(behind)
    async with server.running():
        client = Client(server, era=front)
        await client.connect()
        call = asyncio.create_task(client.call_tool("wait"))
        await rig.started.wait()
        await client.close()
        await until(lambda: rig.stopped == ["wait"])
        await asyncio.wait([call])


async def until(condition: Any) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)


# ---------------------------------------------------------------- progress and logs


@all_eras
async def test_progress_arrives_before_the_result_with_values_and_words(behind: Any, front: Any) -> None:
    """PROG-03, PROG-04, PROG-05."""
    told: list[ProgressParams] = []
    async with Client(Behind().proxy(behind), era=front) as client:
        await client.call_tool("tell", {"count": 3}, on_progress=told.append)
        assert [(one.progress, one.total, one.message) for one in told] == [
            (0.5, 3, "step 0"),
            (1.5, 3, "step 1"),
            (2.5, 3, "step 2"),
        ]


@all_eras
async def test_progress_goes_to_the_call_that_it_is_of(behind: Any, front: Any) -> None:
    async with Client(Behind().proxy(behind), era=front) as client:

        async def call(count: int) -> tuple[int, int]:
            told: list[ProgressParams] = []
            await client.call_tool("tell", {"count": count}, on_progress=told.append)
            return len(told), int(told[-1].total or 0)

        assert await asyncio.gather(*map(call, (1, 2, 3, 4))) == [(n, n) for n in (1, 2, 3, 4)]


@all_eras
async def test_who_asked_for_no_progress_gets_none(behind: Any, front: Any) -> None:
    """PROG-03."""
    async with talking(Behind().proxy(behind), front) as peer:
        await peer.result("tools/call", name="tell", arguments={})
        assert not [one for one in peer.heard() if one["method"] == "notifications/progress"]


@all_eras
async def test_log_messages_pass_by_the_level_that_the_caller_wants(behind: Any, front: Any) -> None:
    """LOG-03, LOG-06."""
    for level, expected in (("debug", ["debug", "info", "error"]), ("info", ["info", "error"]), ("error", ["error"])):
        heard: list[LogParams] = []
        async with Client(Behind().proxy(behind), era=front, on_log=heard.append, log_level=level) as client:  # type: ignore[arg-type]  # one of the levels
            await client.call_tool("tell")
        assert [(one.level, one.data, one.logger) for one in heard] == [(one, {"said": one}, "l") for one in expected]


@each_front
async def test_a_log_message_that_could_be_of_several_callers_goes_to_nobody(front: Any) -> None:
    rig = Behind()
    server = rig.proxy("2025", shared=True)
    heard: list[LogParams] = []
    async with (
        Client(server, era=front, on_log=heard.append) as one,
        Client(server, era=front, on_log=heard.append) as other,
    ):
        waiting = asyncio.create_task(other.call_tool("wait"))
        await rig.started.wait()
        await one.call_tool("tell")
        waiting.cancel()
        await asyncio.wait([waiting])
        assert not heard


# ---------------------------------------------------------------- changes


@all_eras
async def test_changes_of_lists_and_of_watched_resources_pass(behind: Any, front: Any) -> None:
    """SUB-12, SUB-13, SUB-14, SUB-15."""
    rig = Behind()
    uris = ["city://oslo/now", "city://all"]
    client = Client(rig.proxy(behind), era=front)
    async with client, client.listen(tools=True, prompts=True, resources=uris) as changes:
        rig.server.notify(Changed("resource", uris[1]))
        assert await anext(changes) == Changed("resource", uris[1])
        rig.server.tool("later")(lambda: "later")
        assert await anext(changes) == Changed("tools")
        assert (await client.call_tool("later")).text == "later"
        rig.server.remove_prompt("brief")
        assert await anext(changes) == Changed("prompts")


@all_eras
async def test_what_nobody_watches_any_more_is_unsubscribed(behind: Any, front: Any) -> None:
    rig = Behind()
    subscriptions = rig.server.loops.here().subscriptions

    def watched() -> set[str]:
        return {uri for (_, uri), count in subscriptions._watchers.items() if count and uri}

    async with Client(rig.proxy(behind), era=front) as one, Client(one._target, era=front) as other:
        async with other.listen(resources=["city://a/now"]):
            async with one.listen(resources=["city://a/now", "city://b/now"]):
                assert watched() == {"city://a/now", "city://b/now"}
            if behind == "2025":
                await until(lambda: watched() == {"city://a/now"})
        await until(lambda: not watched())


@all_eras
async def test_what_may_not_be_watched_behind_may_not_be_watched_in_front(behind: Any, front: Any) -> None:
    """SUB-04."""
    rig = Behind(authorize_subscription=lambda ctx, uri: uri == "city://all")
    async with talking(rig.proxy(behind), front) as peer:
        if front == "2026":
            await peer.begin("subscriptions/listen", notifications={"resourceSubscriptions": ["city://all", "x:y"]})
            honoured = await peer.hear("notifications/subscriptions/acknowledged")
            assert honoured["notifications"]["resourceSubscriptions"] == ["city://all"]
        else:
            assert await peer.result("resources/subscribe", uri="city://all") == {}
            with pytest.raises(Refusal) as refused:
                await peer.result("resources/subscribe", uri="x:y")
            assert refused.value.code == -32602


# ---------------------------------------------------------------- errors

OWN_CODE = 4711


@all_eras
async def test_an_error_passes_with_code_message_and_data(behind: Any, front: Any) -> None:
    async with Client(Behind().proxy(behind), era=front) as client:
        for code in (OWN_CODE, -32602, -32603, -32601):
            with pytest.raises(PeerError) as failed:
                await client.call_tool("fail", {"code": code, "message": "in their words"})
            assert (failed.value.code, failed.value.message, failed.value.data) == (
                code,
                "in their words",
                {"why": "so"},
            )


@all_eras
async def test_a_missing_resource_has_the_code_of_the_callers_era(behind: Any, front: Any) -> None:
    """RES-05, RES-06, ERR-09."""
    async with Client(Behind().proxy(behind), era=front) as client:
        with pytest.raises(PeerError) as failed:
            await client.read_resource("city://nowhere/at/all")
        assert failed.value.code == (-32602 if front == "2026" else -32002)
        assert failed.value.data == {"uri": "city://nowhere/at/all"}


@pytest.mark.parametrize("code", [-32000, -32001, -32010, -32050, -32042])
@each_front
async def test_codes_that_the_stateless_era_keeps_for_itself_are_not_passed_into_it(front: Any, code: int) -> None:
    """ERR-12, ERR-13, ELIC-15."""
    async with Client(Behind().proxy("2025"), era=front) as client:
        with pytest.raises(PeerError) as failed:
            await client.call_tool("fail", {"code": code, "message": "theirs"})
        assert failed.value.message == "theirs"
        assert failed.value.code == (-32603 if front == "2026" else code)


@each_front
async def test_an_error_about_our_own_request_is_not_the_callers(front: Any) -> None:
    async with Client(Behind().proxy("2026"), era=front) as client:
        with pytest.raises(PeerError) as failed:
            await client.call_tool("fail", {"code": -32022, "message": "theirs"})
        assert failed.value.code == -32603
        assert "theirs" not in failed.value.message


async def test_a_page_that_must_be_opened_first_is_asked_for_in_a_round() -> None:
    """ELIC-14, ELIC-15, ERR-10: what a handshake server says by an error is a question in the stateless era."""
    server: Server[Any] = Server("pages")
    opened: list[str] = []

    @server.tool
    async def need(ctx: Context[Any]) -> str:
        if not opened:
            page = {"mode": "url", "message": "Sign in", "url": "https://example.com/x", "elicitationId": "e1"}
            raise ProtocolError("open it first", {"elicitations": [page]}, code=-32042)
        return "done"

    def open_it(page: Any) -> bool:
        assert page.elicitation_id is None
        opened.append(page.url)
        return True

    proxied = Server.from_client(Client(server, era="2025"))
    async with Client(proxied, era="2026", on_elicit_url=lambda page: False) as client:
        with pytest.raises(ToolCallError, match="declined"):
            await client.call_tool("need")
    async with Client(proxied, era="2026", on_elicit_url=open_it) as client:
        assert (await client.call_tool("need")).text == "done"
        assert opened == ["https://example.com/x"]
    opened.clear()
    async with Client(proxied, era="2026") as client:
        with pytest.raises(PeerError) as failed:
            await client.call_tool("need")
        assert failed.value.code == -32021
    async with Client(proxied, era="2025") as client:
        with pytest.raises(UrlElicitationRequired) as required:
            await client.call_tool("need")
        assert required.value.elicitations[0].elicitation_id == "e1"


@pytest.mark.parametrize("opens", ["caller", "proxy"])
@in_no_time
async def test_a_page_that_must_be_opened_first_is_opened_by_whoever_can_and_the_news_of_it_arrives(opens: str) -> None:
    """ELIC-13, ELIC-14."""
    server: Server[Any] = Server("pages")
    opened: list[str] = []
    waiting: list[Context[Any]] = []

    @server.tool
    async def need(ctx: Context[Any]) -> str:
        if not opened:
            page = {"mode": "url", "message": "Sign in", "url": "https://example.com/x", "elicitationId": "e1"}
            waiting.append(ctx)
            raise ProtocolError("open it first", {"elicitations": [page]}, code=-32042)
        return "done"

    def open_it(page: ElicitUrlParams) -> bool:
        opened.append(page.url)
        session, params = served_call(waiting[0]).session, {"elicitationId": page.elicitation_id}
        session.start_sending(session.notify, "notifications/elicitation/complete", params)
        return True

    inner = Client(server, era="2025", on_elicit_url=open_it if opens == "proxy" else None)
    outer = Client(Server.from_client(inner), era="2025", on_elicit_url=open_it if opens == "caller" else None)
    async with outer as client:
        start = asyncio.get_running_loop().time()
        assert (await client.call_tool("need")).text == "done"
        assert asyncio.get_running_loop().time() == start  # nobody had to ask now and then
    assert opened == ["https://example.com/x"]


@all_eras
async def test_a_server_that_is_gone_is_told_without_its_address(behind: Any, front: Any) -> None:
    """In our own words, and whether the request may have run."""
    async with AsyncExitStack() as stack:
        site = await stack.enter_async_context(serving(Behind().server))
        limits = Limits(reconnects=1, retries=0)
        server = Server.from_client(Client(f"http://127.0.0.1:{site.port}/mcp", era=behind, limits=limits))
        async with Client(server, era=front) as client:
            await client.call_tool("add", {"a": 1, "b": 1})
            await stack.aclose()
            with pytest.raises(PeerError) as failed:
                await client.call_tool("add", {"a": 1, "b": 1})
    assert failed.value.code == -32603
    assert failed.value.data["outcome"] in ("not sent", "unknown")
    assert str(site.port) not in failed.value.message


# ---------------------------------------------------------------- revisions and unknown members


def with_raw_results(results: dict[str, Any]) -> Server[Any]:
    """A server that answers some methods with exactly this JSON."""

    async def raw(ctx: Context[Any], call_next: CallNext) -> Any:
        if ctx.method not in results:
            return await call_next(ctx)
        extra = {"resultType": "complete"} if served_call(ctx).call.era.name == "2026" else {}
        return {**extra, **results[ctx.method]}

    server: Server[Any] = Server("raw", middleware=[raw])
    server.tool("there")(lambda: "")
    return server


@pytest.mark.foreign_words("members that no revision knows")
@all_eras
async def test_members_that_nobody_here_knows_are_kept(behind: Any, front: Any) -> None:
    schema = {"type": "object", "x-any": [1, {"y": None}]}
    tool = {"name": "t", "inputSchema": schema, "x-tool": {"deep": [1]}, "annotations": {"x-hint": 1}}
    block = {"type": "text", "text": "hello", "x-block": True}
    server = with_raw_results(
        {
            "tools/list": {"tools": [tool], "x-list": 1, "_meta": {"acme/list": 2}},
            "tools/call": {"content": [block], "x-result": {"a": 1}, "_meta": {"acme/call": 3}},
        }
    )
    async with talking(Server.from_client(Client(server, era=behind)), front) as peer:
        listed = await peer.result("tools/list")
        assert listed["tools"] == [tool]
        assert (listed["x-list"], listed["_meta"]["acme/list"]) == (1, 2)
        called = await peer.result("tools/call", name="t")
        assert called["content"] == [block]
        assert (called["x-result"], called["_meta"]["acme/call"]) == ({"a": 1}, 3)


@pytest.mark.foreign_words("a kind of content that no revision knows, and items that are none")
@pytest.mark.parametrize("mounted", [False, True])
@all_eras
async def test_blocks_and_items_that_nobody_here_knows_are_kept(behind: Any, front: Any, mounted: bool) -> None:
    """The rest of the result is adapted to the caller all the same."""
    tools: list[Any] = [{"name": "t", "inputSchema": {"type": "object"}}, {"name": 5, "inputSchema": 7}]
    blocks: list[Any] = [
        {"type": "text", "text": "hello"},
        {"type": "hologram", "data": [1, {"y": None}]},
        {"type": "resource_link", "uri": 5, "name": "n"},
        {"type": "resource_link", "uri": "a:b", "name": "n"},
    ]
    message = {"role": "user", "content": {"type": "hologram", "data": 1}}
    server = with_raw_results(
        {
            "tools/list": {"tools": tools},
            "tools/call": {"content": blocks, "structuredContent": [1]},
            "prompts/get": {"messages": [message]},
        }
    )
    proxied = Server.from_client(Client(server, era=behind))
    outer: Server[Any] = Server("outer")
    outer.mount(proxied, "x")
    name, uri = ("x_t", "x+a:b") if mounted else ("t", "a:b")
    async with talking(outer if mounted else proxied, front) as peer:
        assert (await peer.result("tools/list"))["tools"] == [{**tools[0], "name": name}, tools[1]]
        called = await peer.result("tools/call", name=name)
        assert called["content"] == [*blocks[:3], {**blocks[3], "uri": uri}]
        wraps = (behind, front) == ("2026", "2025")
        assert called["structuredContent"] == ({"result": [1]} if wraps else [1])
        assert (await peer.result("prompts/get", name=name))["messages"] == [message]


@pytest.mark.foreign_words("a server behind the proxy that leaves out caching hints")
@all_eras
async def test_a_result_is_dressed_for_its_caller(behind: Any, front: Any) -> None:
    """BASE-15, CACHE-01, REQM-07."""
    server = with_raw_results({"resources/list": {"resources": [{"uri": "a:b", "name": "n"}]}})
    server.resource("a:b", name="b")(lambda: "")
    async with talking(Server.from_client(Client(server, era=behind)), front) as peer:
        listed = await peer.result("resources/list")
        known = {"resources"} if front == "2025" else {"resources", "resultType", "ttlMs", "cacheScope", "_meta"}
        assert listed.keys() == known


async def at(revision: str, server: Server[Any], method: str, **params: Any) -> Any:
    """What a handshake client of this revision is answered."""
    async with talking(server, "2025", revision=revision) as peer:
        return await peer.result(method, **params)


async def test_an_output_schema_that_a_result_may_fit_in_two_ways_is_hidden_from_older_callers() -> None:
    """The proxy doesn't know for which results the schema was wrapped."""
    server: Server[Any] = Server("values")

    @server.tool
    def numbers() -> list[int]:
        return [1]

    @server.tool
    def maybe() -> Point | None:
        return Point(1)

    front = Server.from_client(Client(server, era="2026"))
    listed = {tool["name"]: tool for tool in (await at(V2025_11, front, "tools/list"))["tools"]}
    assert listed["numbers"]["outputSchema"]["x-gemel-wrap-result"] is True
    assert "outputSchema" not in listed["maybe"]
    assert (await at(V2025_11, front, "tools/call", name="numbers"))["structuredContent"] == {"result": [1]}
    assert (await at(V2025_11, front, "tools/call", name="maybe"))["structuredContent"] == {"x": 1}


@dataclass
class Point:
    x: int


@pytest.mark.parametrize("revision", [FIRST, V2025_03, V2025_06, V2025_11])
async def test_what_an_older_caller_does_not_know_is_left_out_or_changed(revision: str) -> None:
    """Table 4.C."""
    result = {
        "content": [
            {"type": "audio", "data": "", "mimeType": "audio/wav"},
            {"type": "resource_link", "uri": "a:b", "name": "n", "icons": [{"src": "https://x"}]},
        ],
        "structuredContent": [1],
    }
    server = with_raw_results({"tools/call": result})
    found = await at(revision, Server.from_client(Client(server, era="2026")), "tools/call", name="t")
    assert found.get("structuredContent") == ({"result": [1]} if revision >= V2025_06 else None)
    kinds = [block["type"] for block in found["content"]]
    assert kinds[0] == ("text" if revision == FIRST else "audio")
    assert kinds[1] == ("text" if revision < V2025_06 else "resource_link")
    if kinds[1] == "resource_link":
        assert ("icons" in found["content"][1]) == (revision >= V2025_11)


# ---------------------------------------------------------------- what is not passed on


@each_front
async def test_the_meta_of_a_request_passes_but_for_what_concerns_this_hop(front: Any) -> None:
    seen: list[dict[str, Any]] = []
    server: Server[Any] = Server("meta")

    @server.tool
    async def look(ctx: Context[Any]) -> str:
        seen.append(ctx.meta)
        return ""

    meta = {"acme/key": [1], "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    caller = Implementation(name="caller", version="1")
    async with Client(Server.from_client(Client(server, era="2026")), era=front, info=caller, on_roots=[]) as client:
        await client.request("tools/call", {"name": "look", "_meta": {**meta, "progressToken": "mine"}})
    (found,) = seen
    assert {key: found[key] for key in meta} == meta
    assert found["progressToken"] != "mine"
    assert found["io.modelcontextprotocol/clientCapabilities"].keys() == {"roots"}
    assert found["io.modelcontextprotocol/clientInfo"]["name"] == "gemel"


@all_eras
async def test_further_methods_pass_if_they_are_named(behind: Any, front: Any) -> None:
    server: Server[Any] = Server("custom")

    @server.request("acme/search")
    async def search(ctx: Context[Any], params: dict[str, Any]) -> dict[str, Any]:
        return {"found": params["what"]}

    @server.request("acme/hidden")
    async def hidden(ctx: Context[Any], params: dict[str, Any]) -> dict[str, Any]:
        return {}

    async with Client(Server.from_client(Client(server, era=behind), methods=["acme/search"]), era=front) as client:
        found = await client.request("acme/search", {"what": "it"})
        assert found["found"] == "it"
        with pytest.raises(PeerError) as refused:
            await client.request("acme/hidden")
        assert refused.value.code == -32601


# ---------------------------------------------------------------- composing


@all_eras
async def test_proxies_are_mounted_side_by_side(behind: Any, front: Any) -> None:
    one, two = Behind(), Behind()
    outer: Server[Any] = Server("outer")
    outer.tool("own")(lambda: "own")
    outer.mount(one.proxy(behind), "one")
    outer.mount(two.proxy(behind), "two")
    async with Client(outer, era=front, **ANSWERING) as client:
        names = [tool.name for tool in await client.list_tools()]
        assert {"own", "one_add", "two_add"} <= set(names)
        assert (await client.call_tool("one_add", {"a": 1, "b": 2})).structured_content == {"sum": 3}
        assert (await client.call_tool("two_book", {"city": "Oslo"})).text == "Oslo which sampled file:///r"
        assert not one.runs
        assert (await client.read_resource("two+city://oslo/now")).contents[0].uri == "two+city://oslo/now"
        with pytest.raises(PeerError) as failed:
            await client.read_resource("one+city://no/where/at/all")
        assert failed.value.data == {"uri": "one+city://no/where/at/all"}
        async with client.listen(tools=True, resources=["one+city://all"]) as changes:
            one.server.notify(Changed("resource", "city://all"))
            assert await anext(changes) == Changed("resource", "one+city://all")
            two.server.tool("later")(lambda: "")
            assert await anext(changes) == Changed("tools")


@all_eras
async def test_a_proxy_without_a_prefix_shares_the_names(behind: Any, front: Any) -> None:
    rig = Behind()
    outer: Server[Any] = Server("outer")
    outer.tool("own")(lambda: "own")
    outer.mount(rig.proxy(behind))
    async with Client(outer, era=front) as client:
        assert (await client.call_tool("own")).text == "own"
        assert (await client.call_tool("add", {"a": 1, "b": 2})).structured_content == {"sum": 3}
        assert (await client.read_resource("city://oslo/now")).contents[0].text == "mild in oslo"
        assert (await client.get_prompt("brief", {"city": "x"})).messages
        rig.server.tool("later")(lambda: "later")
        await until_called(client, "later")
        with pytest.raises(PeerError, match="Unknown tool"):
            await client.call_tool("nowhere")


async def until_called(client: Client, name: str) -> CallToolResult:
    async with asyncio.timeout(5):
        while True:
            try:
                return await client.call_tool(name)
            except PeerError:
                await asyncio.sleep(0.01)


@all_eras
async def test_a_prefix_can_be_given_at_once(behind: Any, front: Any) -> None:
    async with Client(Behind().proxy(behind, prefix="x"), era=front) as client:
        assert (await client.call_tool("x_add", {"a": 1, "b": 2})).structured_content == {"sum": 3}


@all_eras
async def test_proxies_stand_behind_proxies(behind: Any, front: Any) -> None:
    """Each hop of the chain changes the era."""
    rig = Behind()
    server: Any = rig.server
    for hop in (behind, front, behind):
        server = Server.from_client(Client(server, era=hop))
    async with Client(server, era=front, **ANSWERING) as client:
        assert (await client.call_tool("book", {"city": "Oslo"})).text == "Oslo which sampled file:///r"
        if behind == "2025":
            assert rig.runs == ["Oslo"]
        call = asyncio.create_task(client.call_tool("wait"))
        await rig.started.wait()
        call.cancel()
        await until(lambda: rig.stopped == ["wait"])


async def test_a_proxy_takes_what_a_client_takes() -> None:
    async with Client(Server.from_client(Behind().server)) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).structured_content == {"sum": 3}


async def test_what_can_not_work_is_told_at_once() -> None:
    client = Client(Behind().server)
    async with client:
        with pytest.raises(DefinitionError, match="is not connected"):
            Server.from_client(client)
    server = Server.from_client(client)
    for wrong, words in (
        ("X-Tenant", "headers='X-Tenant' is not possible: write a list of texts"),
        (["Mcp-Session-Id"], "can't be forwarded: it belongs to the protocol or the connection"),
        (["User-Agent"], "is a header of the client"),
        (["X Tenant"], "must map header names"),
    ):
        with pytest.raises(DefinitionError, match=words):
            Server.from_client(Behind().server, headers=wrong)
    with pytest.raises(DefinitionError, match="mount it in a Server"):
        server.tool("own")(lambda: "")
    with pytest.raises(DefinitionError, match="mount both in a Server"):
        server.mount(Server("x"), "x")
