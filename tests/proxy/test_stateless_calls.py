"""Calls that are parked at a handshake server while their stateless callers are away: bounded, bound, once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gemel import Client, Context, ElicitFormParams, Limits, Server, ToolError
from gemel.http1.asgi import Scope
from gemel.schema.input_required import InputRequest, InputRequiredResult
from tests.jumping_clock import in_no_time
from tests.proxy.rig import Behind, each_behind
from tests.support import Headers
from tests.transports.http_rig import META, Site, modern, serving
from tests.wire.talk import Refusal, talking

CAN: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}
YES = {"action": "accept", "content": {"value": "yes"}}


async def ask(peer: Any, **more: Any) -> Any:
    return await peer.result("tools/call", name="both", arguments={}, **more)


@each_behind
async def test_a_round_asks_and_the_next_one_answers(behind: Any) -> None:
    """MRTR-03, MRTR-04, MRTR-07."""
    rig = Behind()
    async with talking(rig.proxy(behind), "2026", **CAN) as peer:
        first = await ask(peer)
        assert first["resultType"] == "input_required"
        requests = first["inputRequests"]
        assert {one["params"]["message"] for one in requests.values()} <= {"One?", "Two?"}
        assert all(one.keys() == {"method", "params"} for one in requests.values())
        state, answers = first["requestState"], dict.fromkeys(requests, YES)
        while True:
            found = await ask(peer, requestState=state, inputResponses=answers)
            if found["resultType"] == "complete":
                break
            state, answers = found["requestState"], dict.fromkeys(found["inputRequests"], YES)
        assert found["content"][0]["text"] == "yes yes"
    assert rig.runs == ["both"] or behind == "2026"


@each_behind
async def test_an_answer_that_is_missing_is_asked_again_and_unknown_ones_are_ignored(behind: Any) -> None:
    """MRTR-16, MRTR-17."""
    rig = Behind()
    async with talking(rig.proxy(behind), "2026", **CAN) as peer:
        first = await ask(peer)
        again = await ask(peer, requestState=first["requestState"], inputResponses={"nobody asked": YES})
        assert again["resultType"] == "input_required"
        messages = {one["params"]["message"] for one in again["inputRequests"].values()}
        assert messages >= {one["params"]["message"] for one in first["inputRequests"].values()}


@each_behind
async def test_a_state_is_bound_to_its_request_and_can_not_be_changed(behind: Any) -> None:
    """MRTR-11, MRTR-12."""
    rig = Behind()
    async with talking(rig.proxy(behind), "2026", **CAN) as peer:
        first = await ask(peer)
        state = first["requestState"]
        other = "A" if state[20] != "A" else "B"
        for wrong in (state[:20] + other + state[21:], state[:-4], "x", ""):
            with pytest.raises(Refusal) as refused:
                await ask(peer, requestState=wrong)
            assert refused.value.code == -32602
        with pytest.raises(Refusal) as refused:
            await peer.result("tools/call", name="book", arguments={"city": "x"}, requestState=state)
        assert refused.value.code == -32602
        with pytest.raises(Refusal) as refused:
            await ask(peer, requestState=state, inputResponses=[1])
        assert refused.value.code == -32602


async def test_a_parked_call_is_continued_once() -> None:
    """MRTR-13."""
    async with talking(Behind().proxy("2025"), "2026", **CAN) as peer:
        first = await ask(peer)
        answers = dict.fromkeys(first["inputRequests"], YES)
        await ask(peer, requestState=first["requestState"], inputResponses=answers)
        with pytest.raises(Refusal) as refused:
            await ask(peer, requestState=first["requestState"], inputResponses=answers)
        assert (refused.value.code, "start it again" in refused.value.message) == (-32602, True)


def waiting_server(ended: list[str]) -> Server[Any]:
    server: Server[Any] = Server("waits")

    @server.tool
    async def ask(ctx: Context[Any]) -> str:
        try:
            return await ctx.elicit("Who?", str)
        finally:
            ended.append("ended")

    return server


async def until(ended: list[str]) -> None:
    async with asyncio.timeout(5):
        while not ended:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)


async def test_what_is_said_while_the_caller_is_asked_is_told_in_its_next_round() -> None:
    """Nothing is lost between two rounds."""
    server: Server[Any] = Server("says")
    asked, said = asyncio.Event(), asyncio.Event()

    @server.tool
    async def work(ctx: Context[Any]) -> str:
        await ctx.report_progress(1, 3)
        question = asyncio.ensure_future(ctx.elicit("Who?", str))
        await asked.wait()
        await ctx.report_progress(2, 3)
        said.set()
        name = await question
        await ctx.report_progress(3, 3)
        return name

    async def on_elicit(form: ElicitFormParams) -> dict[str, str]:
        asked.set()
        await said.wait()
        await behind.ping()  # its answer goes the same way, after what was said
        return {"value": "Ada"}

    told: list[float] = []
    behind = Client(server, era="2025")
    async with Client(Server.from_client(behind), era="2026", on_elicit=on_elicit) as client:
        found = await client.call_tool("work", on_progress=lambda one: told.append(one.progress))
    assert (found.text, told) == ("Ada", [1, 2, 3])


async def test_who_does_not_come_back_in_time_ends_the_call_behind() -> None:
    """MRTR-14."""
    ended: list[str] = []
    server = Server.from_client(Client(waiting_server(ended), era="2025"), limits=Limits(state_ttl=0.05))
    async with talking(server, "2026", **CAN) as peer:
        first = await peer.result("tools/call", name="ask", arguments={})
        await until(ended)
        with pytest.raises(Refusal) as refused:
            await peer.result("tools/call", name="ask", arguments={}, requestState=first["requestState"])
        assert refused.value.code == -32602


async def test_no_more_calls_are_parked_than_allowed() -> None:
    ended: list[str] = []
    server = Server.from_client(Client(waiting_server(ended), era="2025"), parked=1)
    async with talking(server, "2026", **CAN) as peer:
        await peer.result("tools/call", name="ask", arguments={})
        assert not ended
        with pytest.raises(Refusal) as refused:
            await peer.result("tools/call", name="ask", arguments={})
        assert "the limit is 1" in refused.value.message
        await until(ended)


async def test_the_end_of_the_proxy_ends_what_is_parked() -> None:
    ended: list[str] = []
    async with talking(Server.from_client(Client(waiting_server(ended), era="2025")), "2026", **CAN) as peer:
        await peer.result("tools/call", name="ask", arguments={})
    assert ended


@in_no_time
async def test_the_time_in_which_a_person_thinks_does_not_count() -> None:
    """The next server has a second for itself; its caller takes longer."""
    server: Server[Any] = Server("slow")

    @server.tool
    async def slow(ctx: Context[Any]) -> str:
        await asyncio.sleep(0.1)
        answer = await ctx.elicit("Who?", str)
        await asyncio.sleep(0.1)
        return answer

    @server.tool
    async def too_slow() -> str:
        await asyncio.sleep(10)
        return ""

    async def think(form: Any) -> dict[str, str]:
        await asyncio.sleep(1.2)
        return {"value": "me"}

    for front in ("2025", "2026"):
        proxied = Server.from_client(Client(server, era="2025", limits=Limits(call_total=1)))
        async with Client(proxied, era=front, on_elicit=think) as client:
            assert (await client.call_tool("slow")).text == "me"
            with pytest.raises(Exception, match="did not respond in time"):
                await client.call_tool("too_slow")


# ---------------------------------------------------------------- several users over HTTP


async def who(scope: Scope, headers: Headers) -> str | None:
    return headers.get("x-user")


async def post(site: Site, user: str, **more: Any) -> Any:
    headers, body = modern("tools/call", {"name": "ask", "arguments": {}, **more})
    body["params"]["_meta"][f"{META}clientCapabilities"] = CAN
    reply = await site.ask({**headers, "Mcp-Name": "ask", **({"X-User": user} if user else {})}, body)
    return reply.json()


async def test_another_user_can_not_go_on_with_a_call() -> None:
    """MRTR-12: the proxy is one user to the server behind, so it must tell its own apart."""
    ended: list[str] = []
    async with serving(Server.from_client(Client(waiting_server(ended), era="2025")), authenticate=who) as site:
        first = (await post(site, "ann"))["result"]
        answers = {"requestState": first["requestState"], "inputResponses": dict.fromkeys(first["inputRequests"], YES)}
        for user in ("bob", ""):
            assert (await post(site, user, **answers))["error"]["code"] == -32602
        assert (await post(site, "ann", **answers))["result"]["content"][0]["text"] == "yes"


async def test_a_question_reaches_its_own_user_where_the_stream_tells_whose_it_is() -> None:
    """Over HTTP a handshake server asks on the stream of the call (LHTTP-30), so several users are served at once."""
    server: Server[Any] = Server("asks")
    both = asyncio.Barrier(2)

    @server.tool
    async def ask(ctx: Context[Any], name: str = "") -> str:
        await both.wait()
        return await ctx.elicit(f"Are you {name}?", str)

    async with serving(server) as behind:
        proxied = Server.from_client(Client(f"http://127.0.0.1:{behind.port}/mcp", era="2025"))
        async with serving(proxied) as front:
            url = f"http://127.0.0.1:{front.port}/mcp"

            async def call(name: str, era: Any) -> str:
                asked: list[str] = []

                def answer(form: Any) -> dict[str, str]:
                    asked.append(form.message)
                    return {"value": name}

                async with Client(url, era=era, on_elicit=answer) as client:
                    text = (await client.call_tool("ask", {"name": name})).text
                assert asked == [f"Are you {name}?"]
                return text

            for eras in (("2026", "2026"), ("2025", "2026"), ("2025", "2025")):
                found = await asyncio.gather(*(call(name, era) for name, era in zip(("ann", "bob"), eras, strict=True)))
                assert found == ["ann", "bob"]


@pytest.mark.parametrize("single_user", [True, False])
async def test_one_person_with_several_calls_is_asked_if_the_proxy_is_told_that_there_is_one(
    single_user: bool,
) -> None:
    """Without authentication each stateless call over HTTP may be another person's, where callers share a session."""
    rig = Behind()
    async with serving(rig.proxy("2025", single_user=single_user, shared=True)) as site:
        client = Client(f"http://127.0.0.1:{site.port}/mcp", era="2026", on_elicit=lambda form: {"value": "x"})
        async with client:
            waiting = asyncio.create_task(client.call_tool("wait"))
            await rig.started.wait()
            found = await client.call_tool("both", raise_on_error=False)
            assert (found.is_error, found.text == "x x") == (not single_user, single_user)
            waiting.cancel()
            await asyncio.wait([waiting])
            await until(rig.stopped)


async def test_a_caller_that_leaves_in_the_middle_of_a_round_ends_the_call() -> None:
    """MHTTP-13: closing the response is the cancellation."""
    rig = Behind()
    async with serving(rig.proxy("2025")) as site:
        headers, body = modern("tools/call", {"name": "wait", "arguments": {}})
        wire = await site.call({**headers, "Mcp-Name": "wait"}, body)
        await rig.started.wait()
        wire.abort()
        await until(rig.stopped)


# ---------------------------------------------------------------- nothing of a caller goes further


@each_behind
@pytest.mark.parametrize("front", ["2025", "2026"])
async def test_credentials_and_headers_of_a_caller_stay_here(behind: Any, front: Any, caplog: Any) -> None:
    """A canary in what comes in is in nothing that goes out, no log line, no error."""
    seen: list[str] = []

    async def look(scope: Scope, headers: Headers) -> str | None:
        seen.extend(f"{name}: {headers[name]}" for name in headers)
        return None

    caplog.set_level("DEBUG", "gemel")
    async with serving(Behind().server, authenticate=look) as site:
        proxied = Server.from_client(Client(f"http://127.0.0.1:{site.port}/mcp", era=behind), headers=["X-Tenant"])
        async with serving(proxied) as outer:
            secret = {"Authorization": "Bearer canary", "Cookie": "canary", "X-Other": "canary", "X-Tenant": "t1"}
            async with Client(f"http://127.0.0.1:{outer.port}/mcp", era=front, headers=secret) as client:
                await client.call_tool("add", {"a": 1, "b": 2})
                with pytest.raises(Exception, match="theirs") as failed:
                    await client.call_tool("fail", {"code": 1, "message": "theirs"})
    assert seen
    assert not [line for line in seen if "canary" in line]
    assert "canary" not in caplog.text + str(failed.value)
    assert "x-tenant: t1" in seen, "what was asked for does go on"


@pytest.mark.parametrize("upstream_era", ["2025", "2026"])
@pytest.mark.parametrize("caller_era", ["2025", "2026"])
async def test_questions_of_calls_within_calls_go_to_the_caller(upstream_era: Any, caller_era: Any) -> None:
    """The call elsewhere begins once; questions of one text, asked one after another and at a time, get their own answers."""
    elsewhere: Server[Any] = Server("elsewhere")
    begun: list[str] = []

    @elsewhere.tool
    async def confirm(ctx: Context, name: str) -> str:
        await ctx.step(begun.append, name)
        return f"{name}: {await ctx.elicit('Which?')} {await ctx.elicit('Which?')}"

    gateway: Server[Any] = Server("gateway")
    gateway.mount(Server.from_client(Client(elsewhere, era=upstream_era)), "up")

    @gateway.tool
    async def both(ctx: Context) -> str:
        async def call(name: str) -> str:
            return (await ctx.call_tool("up_confirm", {"name": name})).text

        first = await ctx.step(call, "first")
        several = await asyncio.gather(ctx.step(call, "second"), ctx.step(call, "third"))
        return "\n".join([first, *several, await ctx.elicit("And here?")])

    asked: list[str] = []

    def answer(form: Any) -> dict[str, str]:
        asked.append(form.message)
        return {"value": str(len(asked))}

    async with Client(gateway, era=caller_era, on_elicit=answer) as client:
        texts = (await client.call_tool("both")).text.splitlines()
    assert sorted(begun) == ["first", "second", "third"]
    assert asked == ["Which?"] * 6 + ["And here?"]
    assert texts[0] == "first: 1 2"
    assert texts[3] == "7"
    assert sorted(word for text in texts for word in text.split() if word.isdigit()) == list("1234567")


async def test_a_nested_call_elsewhere_that_never_ends_has_a_limit() -> None:
    begun = 0

    async def endless(ctx: Any, call_next: Any) -> Any:
        nonlocal begun
        if ctx.method != "tools/call":
            return await call_next(ctx)
        begun += 1
        form = {"type": "object", "properties": {"value": {"type": "string"}}}
        params = ElicitFormParams(message="More?", requested_schema=form)
        asked = {"more": InputRequest(method="elicitation/create", params=params)}
        return InputRequiredResult(result_type="input_required", input_requests=asked, request_state=str(begun))

    elsewhere: Server[Any] = Server("elsewhere", middleware=[endless])
    elsewhere.tool(lambda: None, name="work")
    gateway: Server[Any] = Server("gateway")
    gateway.mount(Server.from_client(Client(elsewhere, era="2026")), "up")

    @gateway.tool
    async def nest(ctx: Context) -> str:
        return (await ctx.call_tool("up_work")).text

    def answer(form: Any) -> dict[str, str]:
        return {"value": "yes"}

    async with Client(gateway, era="2026", on_elicit=answer, limits=Limits(rounds=100)) as client:
        with pytest.raises(ToolError, match="still requires input after 16 rounds"):
            await client.call_tool("nest")
    assert begun == 17
