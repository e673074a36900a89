"""What a handler knows and may say: the same words in both eras, from wherever each era keeps them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from gemel import CallNext, ChannelClosed, Client, Context, ElicitUrlParams, GemelError, Server, current_context
from gemel.server.context import served_call
from tests.server.bare_end import BareEnd, Era
from tests.support import V2025_03, V2025_06, V2025_11, V2026_07, ChannelKind, Origin, head_of

COMPLETE = "notifications/elicitation/complete"

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])


def telling(*tools: Any, **options: Any) -> Server[Any]:
    server: Server[Any] = Server("telling", **options)
    for tool in tools:
        server.tool(tool)
    return server


@both_eras
async def test_a_handler_knows_who_asks_and_how(era: Era) -> None:
    """From the handshake, or from the request itself."""
    seen: list[Any] = []

    async def look(ctx: Context, city: str) -> None:
        assert ctx.client_info is not None
        seen.extend(
            [
                ctx.client_info.name,
                ctx.client_capabilities.sampling is not None,
                ctx.client_extension("com.example/x"),
                ctx.client_extension("com.example/y"),
                ctx.protocol_version,
                ctx.method,
                ctx.principal,
                ctx.headers.get("x-trace"),
                ctx.meta.get("com.example/id"),
                ctx.cancelled,
                ctx.state,
                ctx.connection_state,
            ]
        )

    capabilities = {"sampling": {}, "extensions": {"com.example/x": {"a": 1}}}
    origin = Origin(head_of([(b"x-trace", b"7"), (b"mcp-method", b"tools/call"), (b"mcp-name", b"look")]), "ann")
    async with BareEnd(
        telling(look), era, capabilities=capabilities, origin=origin if era == "2025" else Origin(None, "ann")
    ) as end:
        params = {"name": "look", "arguments": {"city": "Oslo"}, "_meta": {"com.example/id": 5}}
        await end.ask("tools/call", params)
    revision = "2025-11-25" if era == "2025" else "2026-07-28"
    trace = "7" if era == "2025" else None
    assert seen == ["bare", True, {"a": 1}, None, revision, "tools/call", "ann", trace, 5, False, None, None]


@both_eras
@pytest.mark.parametrize("request_id", [0, 7, "7", "a b", ""])
async def test_the_id_of_a_request_is_what_the_client_sent(era: Era, request_id: Any) -> None:
    seen: list[Any] = []

    async def look(ctx: Context) -> None:
        seen.append((ctx.request_id, type(ctx.request_id)))

    async with BareEnd(telling(look), era) as end:
        message = {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": end._params({"name": "look"})}
        await end.session.answer(end.feed(message))
    assert seen == [(request_id, type(request_id))]


@both_eras
async def test_progress_grows_or_is_left_out_and_goes_to_whoever_asked_for_it(era: Era) -> None:
    """PROG-04."""

    async def work(ctx: Context) -> None:
        for value in (1, 2, 2, 1.5, 3):
            await ctx.report_progress(value, 3, "so far")

    heard: list[tuple[float, float | None, str | None]] = []
    async with Client(telling(work), era=era) as client:
        await client.call_tool("work", on_progress=lambda one: heard.append((one.progress, one.total, one.message)))
        assert heard == [(1, 3, "so far"), (2, 3, "so far"), (3, 3, "so far")]
        await client.call_tool("work")
    async with BareEnd(telling(work), era) as end:
        await end.call_tool("work")
        assert [one for one in end.heard if one.get("method") == "notifications/progress"] == []


@both_eras
async def test_progress_grows_over_all_contexts_of_a_request(era: Era) -> None:
    """PROG-04: a middleware that passes on another context, the handler, and the middleware after it."""

    async def around(ctx: Context, call_next: CallNext) -> Any:
        if ctx.method != "tools/call":
            return await call_next(ctx)
        await ctx.report_progress(1)
        result = await call_next(ctx.replace(params=ctx.params))
        for value in (5, 7):
            await ctx.report_progress(value)
        return result

    async def work(ctx: Context) -> None:
        await ctx.report_progress(1)
        await ctx.report_progress(5)
        await current_context().report_progress(3)
        await current_context().report_progress(6)

    heard: list[float] = []
    server = telling(work)
    server.add_middleware(around)
    async with Client(server, era=era) as client:
        await client.call_tool("work", on_progress=lambda one: heard.append(one.progress))
    assert heard == [1, 5, 6, 7]


@both_eras
async def test_no_progress_follows_the_answer(era: Era) -> None:
    """PROG-06: what a handler left behind may say so in vain."""
    kept: list[Context] = []

    async def work(ctx: Context) -> None:
        kept.append(ctx)
        await ctx.report_progress(1, 3)

    async with BareEnd(telling(work), era) as end:
        await end.ask("tools/call", {"name": "work", "_meta": {"progressToken": "t"}})
        await kept[0].report_progress(2, 3)
        told = [one["params"]["progress"] for one in end.heard if one.get("method") == "notifications/progress"]
        assert told == [1]


@both_eras
async def test_what_is_no_progress_is_told_to_the_author_and_not_sent(era: Era) -> None:
    """PROG-04: JSON has no words for it, and the client would have to throw it away."""
    told: list[str] = []

    async def work(ctx: Context) -> None:
        wrong: list[Any] = [(float("nan"),), (float("inf"),), ("1",), (None,), (1, float("nan")), (1, "3")]
        for given in wrong:
            with pytest.raises(GemelError) as caught:
                await ctx.report_progress(*given)
            told.append(str(caught.value))
        await ctx.report_progress(2)

    heard: list[float] = []
    async with Client(telling(work), era=era) as client:
        await client.call_tool("work", on_progress=lambda one: heard.append(one.progress))
    assert (len(told), heard) == (6, [2])
    assert told[0] == "Progress can't be nan: give a number, neither NaN nor infinite"


@both_eras
async def test_progress_is_a_number_of_any_type(era: Era) -> None:
    given: list[Any] = [Decimal("0.25"), Fraction(1, 2), 0.75, True, 2, Decimal(3)]

    async def work(ctx: Context) -> None:
        for number in given:
            await ctx.report_progress(number, Decimal(4))

    heard: list[tuple[float, float | None]] = []
    async with Client(telling(work), era=era) as client:
        await client.call_tool("work", on_progress=lambda one: heard.append((one.progress, one.total)))
    assert heard == [(float(number), 4.0) for number in given]


@both_eras
async def test_a_level_that_there_is_not_is_told_to_the_author(era: Era) -> None:
    async def work(ctx: Context) -> None:
        loud: Any = "loud"
        with pytest.raises(GemelError, match="'loud' is not a level of a log message: use one of debug, info, notice"):
            await ctx.log(loud, "x")

    async with Client(telling(work), era=era) as client:
        await client.call_tool("work")


@both_eras
async def test_log_messages_of_a_wanted_level_are_sent_and_others_not(era: Era) -> None:
    """LOG-03, LOG-06."""
    wanted: list[tuple[bool, bool]] = []

    async def work(ctx: Context) -> None:
        wanted.append((ctx.logs("info"), ctx.logs("error")))
        await ctx.debug("d")
        await ctx.info("i")
        await ctx.warning({"w": 1})
        await ctx.error("e")

    heard: list[tuple[str, Any]] = []
    client = Client(telling(work), era=era, log_level="warning", on_log=lambda one: heard.append((one.level, one.data)))
    async with client:
        await client.call_tool("work")
    assert heard == [("warning", {"w": 1}), ("error", "e")]
    assert wanted == [(False, True)]


@both_eras
async def test_what_cannot_be_told_is_never_the_tools_failure(era: Era, caplog: pytest.LogCaptureFixture) -> None:
    """PROG-06: while the channel is broken it is in the log, and when the conversation is over it is left out."""
    caplog.set_level("DEBUG", "gemel")
    begun, told, tries = asyncio.Event(), list[int](), list[Any]()

    async def work(ctx: Context) -> None:
        for step in (1, 2):
            await ctx.report_progress(step)
            await ctx.log("emergency", "x")
            told.append(len(tries))
            begun.set()
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(60 if step == 1 else 0)

    async def send(message: Any) -> None:
        tries.append(message)
        raise ChannelClosed("the pipe broke")

    async with BareEnd(telling(work), era) as end:
        end.send = send  # type: ignore[method-assign]  # from now on this end is broken
        meta = {"progressToken": "t", "io.modelcontextprotocol/logLevel": "debug"}
        call: Any = end.begin("tools/call", {"name": "work", "arguments": {}, "_meta": meta})
        serving = asyncio.create_task(end.session.answer(call))
        await begun.wait()
        end.session.close("over")
        assert await serving is None
        await end.session.wait_closed()
    assert told == [2, 2]
    for method in ("progress", "message"):
        assert f"tools/call: notifications/{method} could not be sent: the pipe broke" in caplog.text


@both_eras
async def test_a_notification_of_ones_own_goes_out_with_the_call(era: Era) -> None:
    async def work(ctx: Context) -> str:
        await ctx.notify("notifications/acme", {"x": 1})
        return "done"

    async with BareEnd(telling(work), era) as end:
        assert await end.text("work") == "done"
        assert await end.wait_for("notifications/acme") == {"x": 1}


@both_eras
async def test_what_the_protocol_does_not_allow_with_a_call_is_not_sent(era: Era) -> None:
    """CANC-04, LOG-05, PROG-03, SUB-02: changes are for subscribers; what the client did not ask for is left out."""
    changes = [f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")]
    requests = ("sampling/createMessage", "elicitation/create", "roots/list", "tools/call")

    async def work(ctx: Context) -> str:
        for method in changes:
            await ctx.notify(method)
        await ctx.notify("notifications/resources/updated", {"uri": "a:b"})
        await ctx.notify("notifications/cancelled", {"requestId": ctx.request_id})
        await ctx.notify("notifications/message", {"level": "debug", "data": "x"})
        await ctx.notify("notifications/progress", {"progressToken": "made up", "progress": 1})
        await ctx.notify("notifications/progress", {"progressToken": "mine", "progress": 1})
        await ctx.notify("notifications/roots/list_changed")
        await ctx.notify("notifications/elicitation/complete", {"elicitationId": "e"})
        await ctx.notify("notifications/subscriptions/acknowledged", {"notifications": {}})
        for method in requests:
            with pytest.raises(GemelError, match="is a request, not a notification"):
                await ctx.notify(method, {})
        return "done"

    async with BareEnd(telling(work), era) as end:
        end.heard.clear()
        result = await end.ask("tools/call", {"name": "work", "_meta": {"progressToken": "mine"}})
        assert result["content"] == [{"type": "text", "text": "done"}]
        heard = [message["method"] for message in end.heard]
    always = ["notifications/progress"]
    if era == "2025":
        always = [*changes, "notifications/resources/updated", "notifications/cancelled", *always]
        always.append("notifications/elicitation/complete")
    assert heard == always


@pytest.mark.parametrize("kind", ["memory", "post"])
async def test_a_stateless_client_is_never_sent_a_request(kind: ChannelKind) -> None:
    """BASE-14, STDIO-04: also by code that reaches for the session; on a pipe another client may have shaken hands."""
    failures: list[str] = []

    async def work(ctx: Context) -> None:
        for about in (served_call(ctx).call, None):
            try:
                await served_call(ctx).session.request("roots/list", about=about)
            except GemelError as exc:
                failures.append(str(exc))

    async with BareEnd(telling(work), "2026", kind=kind, capabilities={"roots": {}}) as end:
        await end.text("work")
        assert end.heard == []
    assert "a stateless client is asked by input_required results only" in failures[0]
    assert len(failures) == 2


@both_eras
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("sync", [False, True])
async def test_the_end_of_a_page_is_told_where_pages_have_ids(era: Era, late: bool, sync: bool) -> None:
    """ELIC-13, ELIC-15: during the call, or later; nothing of it is in the stateless era."""
    used: list[tuple[Context, str | None]] = []
    pages: list[str | None] = []
    finished: list[Any] = []

    async def work(ctx: Context) -> str:
        page = ctx.elicit_url("Sign in", "https://a.example")
        await page
        used.append((ctx, page.elicitation_id))
        if not late:
            await ctx.complete_elicitation(page.elicitation_id)
        return "done"

    def work_in_thread(ctx: Context) -> str:
        identity = ctx.sync.elicit_url("Sign in", "https://a.example")
        used.append((ctx, identity))
        if not late:
            ctx.sync.complete_elicitation(identity)
        return "done"

    def opened(page: ElicitUrlParams) -> bool:
        pages.append(page.elicitation_id)
        return True

    server: Server[Any] = Server("pages")
    server.tool("work")(work_in_thread if sync else work)
    client = Client(server, era=era, on_elicit_url=opened, on_notification=lambda *told: finished.append(told))
    async with client:
        assert (await client.call_tool("work")).text == "done"
        ctx, identity = used[0]
        if late:
            await ctx.complete_elicitation(identity)
        await client.list_tools()
    assert pages == [identity]
    assert (identity is None) is (era == "2026")
    assert finished == ([] if era == "2026" else [(COMPLETE, {"elicitationId": identity})])


@pytest.mark.parametrize("revision", [V2025_03, V2025_06, V2025_11, V2026_07])
async def test_the_end_of_a_page_is_told_to_clients_of_one_revision(revision: str) -> None:
    """ELIC-15: whatever id the author names."""

    async def work(ctx: Context) -> str:
        await ctx.complete_elicitation("mine")
        return "done"

    async with BareEnd(telling(work), "2026" if revision == V2026_07 else "2025", revision=revision) as end:
        assert await end.text("work") == "done"
        assert [message["method"] for message in end.heard] == ([COMPLETE] if revision == V2025_11 else [])


@both_eras
async def test_a_replaced_context_is_another_one(era: Era) -> None:
    server = telling()

    @server.tool
    async def say(text: str) -> str:
        return text

    @server.request("acme/say")
    async def old(ctx: Context, params: Any) -> Any:
        raise AssertionError("nobody comes here")

    async def rename(ctx: Context, call_next: Any) -> Any:
        if ctx.method != "acme/say":
            return await call_next(ctx)
        changed = ctx.replace(method="tools/call", params={"name": "say", "arguments": {"text": "hi"}})
        assert (ctx.method, changed.method, changed.request_id) == ("acme/say", "tools/call", ctx.request_id)
        return await call_next(changed)

    server.add_middleware(rename)
    async with BareEnd(server, era) as end:
        assert (await end.ask("acme/say"))["content"] == [{"type": "text", "text": "hi"}]


@both_eras
async def test_a_function_in_a_thread_sees_that_nobody_waits_any_more(era: Era) -> None:
    """CANC-06."""
    begun, seen = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def work(ctx: Context) -> None:
        loop.call_soon_threadsafe(begun.set)
        while not ctx.cancelled:
            pass
        loop.call_soon_threadsafe(seen.set)

    async with Client(telling(work), era=era) as client:
        call = asyncio.create_task(client.call_tool("work"))
        await begun.wait()
        call.cancel()
        async with asyncio.timeout(10):
            await seen.wait()
