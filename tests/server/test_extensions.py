"""Extensions as objects: what they bring, who gets it, and that nothing is there without them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import msgspec
import pytest

from gemel import (
    CallToolResult,
    Changed,
    ChangesLost,
    Context,
    DefinitionError,
    Extension,
    Method,
    Server,
    TextContent,
    Topic,
    require_client_extension,
)
from gemel.schema.tools import CallToolParams
from gemel.server.extensions import CallTool
from tests.server.bare_end import BareEnd, Era
from tests.support import EraName, Origin, Result, head_of

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])
JOBS = "com.example/jobs"
DECLARED: dict[str, Any] = {"extensions": {JOBS: {}}}


class JobParams(msgspec.Struct, rename="camel"):
    job_id: str


class JobResult(Result, kw_only=True):
    """A result that isn't there yet."""

    job_id: str
    result_type: str | msgspec.UnsetType = "job"


class Jobs(Extension):
    """Answers slow tools with the number of a job."""

    id = JOBS
    result_types = ("job",)

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.jobs: dict[str, str] = {"1": "working"}

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"most": 5}

    def requests(self) -> Iterable[Method]:
        return (
            Method(name="jobs/get", serve=self.get, params=JobParams, name_field="job_id"),
            Method(name="jobs/about", serve=self.about, open=True),
        )

    def notifications(self) -> Iterable[Method]:
        return (Method(name="notifications/jobs/seen", serve=self.seen, params=JobParams),)

    def topics(self) -> Iterable[Topic]:
        return (
            Topic(key="jobIds", kind="jobs", method="notifications/jobs", accept=self.accept, describe=self.describe),
        )

    def attach(self, server: Server[Any]) -> None:
        server.tool("jobs_help")(lambda: "ask for a job")
        server.resource("jobs://all", name="all")(lambda: "1")

    async def get(self, ctx: Context[Any], params: JobParams) -> dict[str, Any]:
        return {"state": self.jobs[params.job_id]}

    async def about(self, ctx: Context[Any], params: Any) -> dict[str, Any]:
        return {"jobs": len(self.jobs), "given": sorted(set(params) - {"_meta"})}

    async def seen(self, ctx: Context[Any], params: JobParams) -> None:
        self.heard.append(params.job_id)

    async def accept(self, ctx: Context[Any], value: list[str]) -> list[str] | None:
        return [job for job in value if job in self.jobs] or None

    async def describe(self, ctx: Context[Any], key: str | None) -> dict[str, Any] | None:
        state = self.jobs.get(key or "")
        if state == "broken":
            raise OSError("the job is broken")
        return {"jobId": key, "state": state} if state is not None else None

    async def call_tool(self, ctx: Context[Any], params: CallToolParams, call_next: CallTool) -> Any:
        if params.name == "slow":
            return JobResult(job_id="1")
        return await call_next(ctx, params)


def served(*extensions: Extension) -> Server[Any]:
    server: Server[Any] = Server("extended")
    for extension in extensions or (Jobs(),):
        assert server.add_extension(extension) is extension
    server.tool("fast")(lambda: "fast")
    server.tool("slow")(lambda: "slow")
    return server


# ---------------------------------------------------------------- announcing


@both_eras
async def test_an_extension_is_announced_with_its_settings_in_both_eras(era: Era) -> None:
    """EXT-01, EXT-03."""
    async with BareEnd(served(), era) as end:
        found = end.welcome if era == "2025" else await end.ask("server/discover")
        assert found["capabilities"]["extensions"] == {JOBS: {"most": 5}}


@both_eras
@pytest.mark.parametrize("extension", [Jobs, Jobs()])
async def test_extensions_can_be_an_option_of_the_server(era: Era, extension: Any) -> None:
    async with BareEnd(Server("extended", extensions=[extension]), era, capabilities=DECLARED) as end:
        found = end.welcome if era == "2025" else await end.ask("server/discover")
        assert found["capabilities"]["extensions"] == {JOBS: {"most": 5}}
        assert (await end.ask("jobs/get", {"jobId": "1"}))["state"] == "working"
        assert "jobs_help" in await end.names()


@pytest.mark.parametrize("wrong", [[Server("x")], Jobs(), [7]])
def test_what_is_not_an_extension_is_refused(wrong: Any) -> None:
    with pytest.raises(DefinitionError, match="extension"):
        Server("extended", extensions=wrong)


@both_eras
async def test_without_an_extension_nothing_of_it_is_there(era: Era) -> None:
    """EXT-05, ERR-03."""
    server: Server[Any] = Server("plain")
    server.tool("fast")(lambda: "fast")
    async with BareEnd(server, era, capabilities=DECLARED) as end:
        found = end.welcome if era == "2025" else await end.ask("server/discover")
        assert "extensions" not in found["capabilities"]
        assert (await end.refusal("jobs/get", {"jobId": "1"}))["code"] == -32601


@pytest.mark.foreign_words("a result of the extension's own type")
async def test_an_extension_of_one_era_does_not_exist_in_the_other() -> None:
    """Neither announced nor served."""

    class Newer(Jobs):
        eras: ClassVar[Sequence[EraName]] = ("2026",)

    server = served(Newer())
    async with BareEnd(server, "2025", capabilities=DECLARED) as end:
        assert "extensions" not in end.welcome["capabilities"]
        assert (await end.refusal("jobs/get", {"jobId": "1"}))["code"] == -32601
        assert await end.text("slow") == "slow"
    async with BareEnd(server, "2026", capabilities=DECLARED) as end:
        assert (await end.ask("jobs/get", {"jobId": "1"}))["state"] == "working"
        assert (await end.call_tool("slow"))["resultType"] == "job"


# ---------------------------------------------------------------- methods


@both_eras
async def test_its_requests_are_for_clients_that_declared_it(era: Era) -> None:
    """EXT-04: -32021 with what is required, before the params are looked at."""
    server = served()
    async with BareEnd(server, era, capabilities=DECLARED) as end:
        assert (await end.ask("jobs/get", {"jobId": "1"}))["state"] == "working"
        assert (await end.refusal("jobs/get", {"jobId": 5}))["code"] == -32602
    async with BareEnd(server, era, capabilities={"extensions": {"com.example/other": {}}}) as end:
        for params in ({"jobId": "1"}, {"jobId": 5}):
            error = await end.refusal("jobs/get", params)
            assert error["code"] == (-32021 if era == "2026" else -32600)
            assert error["data"] == {"requiredCapabilities": {"extensions": {JOBS: {}}}}
        assert (await end.ask("jobs/about", {"x": 1}))["given"] == ["x"]


async def test_a_declaration_counts_for_its_own_request_only() -> None:
    """STATE-01."""
    async with BareEnd(served(), capabilities=DECLARED) as end:
        assert "state" in await end.ask("jobs/get", {"jobId": "1"})
        end.capabilities = {}
        assert (await end.refusal("jobs/get", {"jobId": "1"}))["code"] == -32021


async def test_the_name_header_repeats_what_the_extension_says() -> None:
    """HDR-06: some clients don't send it; one that differs is refused."""
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "jobs/get"}
    for sent, refused in (({"mcp-name": "1"}, False), ({}, False), ({"mcp-name": ""}, True), ({"mcp-name": "2"}, True)):
        origin = Origin(head_of({**headers, **sent}))
        async with BareEnd(served(), capabilities=DECLARED, origin=origin, kind="post") as end:
            reply = await end.reply("jobs/get", {"jobId": "1"})
            assert ("error" in reply) is refused
            assert not refused or reply["error"]["code"] == -32020


@both_eras
async def test_its_notifications_are_heard(era: Era) -> None:
    jobs = Jobs()
    async with BareEnd(served(jobs), era) as end:
        await end.tell("notifications/jobs/seen", {"jobId": "1"})
        await end.tell("notifications/jobs/seen", {"jobId": 7})
    assert jobs.heard == ["1"]


@both_eras
async def test_its_tools_and_resources_come_with_it(era: Era) -> None:
    async with BareEnd(served(), era) as end:
        assert "jobs_help" in await end.names()
        assert await end.names("resources") == ["jobs://all"]


# ---------------------------------------------------------------- tools/call


class DictJobs(Jobs):
    """Writes its results out."""

    async def call_tool(self, ctx: Context[Any], params: CallToolParams, call_next: CallTool) -> Any:
        result = await super().call_tool(ctx, params, call_next)
        return {"resultType": "job", "jobId": "1"} if isinstance(result, JobResult) else result


@pytest.mark.foreign_words("a result of the extension's own type")
@pytest.mark.parametrize("kind", [Jobs, DictJobs])
async def test_a_result_of_its_own_type_reaches_only_who_declared_it_on_this_request(kind: type[Jobs]) -> None:
    async with BareEnd(served(kind()), capabilities=DECLARED) as end:
        result = await end.call_tool("slow")
        assert result["resultType"] == "job"
        assert result["jobId"] == "1"
        assert (await end.call_tool("fast"))["resultType"] == "complete"
        end.capabilities = {}
        error = await end.refusal("tools/call", {"name": "slow", "arguments": {}})
        assert error["code"] == -32021
        assert error["data"] == {"requiredCapabilities": {"extensions": {JOBS: {}}}}


@pytest.mark.parametrize("kind", ["struct", "dict"])
async def test_a_result_type_that_no_extension_brings_is_a_fault_of_the_server(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """BASE-15."""
    server: Server[Any] = Server("wrong")

    @server.request("acme/job")
    async def job(ctx: Context[Any], params: Any) -> Any:
        return JobResult(job_id="1") if kind == "struct" else {"resultType": "job", "jobId": "1"}

    async with BareEnd(server, capabilities=DECLARED) as end:
        error = await end.refusal("acme/job")
        assert (error["code"], error["message"]) == (-32603, "Handler returned an invalid result")
    assert "acme/job: no extension of this server has results of type 'job'" in caplog.text


async def test_interceptions_stand_around_each_other_in_the_order_of_adding() -> None:
    order: list[str] = []

    class Noting(Extension):
        def __init__(self, name: str) -> None:
            self.name = name
            type(self).id = f"com.example/{name}"

        async def call_tool(self, ctx: Context[Any], params: CallToolParams, call_next: CallTool) -> Any:
            order.append(f"{self.name} in")
            result = await call_next(ctx, params)
            order.append(f"{self.name} out")
            return CallToolResult(content=[*result.content, TextContent(text=self.name)])

    class First(Noting): ...

    class Second(Noting): ...

    class Third(Noting): ...

    server: Server[Any] = Server("noted")
    server.add_extension(First("first"))
    server.add_extension(Second("second"))
    server.tool("fast")(lambda: "fast")
    server.add_extension(Third("third"))
    async with BareEnd(server) as end:
        assert await end.text("fast") == "fast\nthird\nsecond\nfirst"
    assert order == ["first in", "second in", "third in", "third out", "second out", "first out"]


async def test_an_extension_that_intercepts_nothing_stands_in_nobodys_way() -> None:
    class Quiet(Extension):
        id = "com.example/quiet"

    server: Server[Any] = Server("quiet")
    server.tool("fast")(lambda: "fast")
    before = server._dispatch.requests["tools/call"].handler
    server.add_extension(Quiet())
    assert server._dispatch.requests["tools/call"].handler == before


@both_eras
async def test_calls_of_mounted_servers_are_intercepted_by_both(era: Era) -> None:
    class Marking(Extension):
        id = "com.example/marking"
        mark: ClassVar[str] = "inner"

        async def call_tool(self, ctx: Context[Any], params: CallToolParams, call_next: CallTool) -> Any:
            result = await call_next(ctx, params)
            return CallToolResult(content=[*result.content, TextContent(text=f"{self.mark} {params.name}")])

    class MarkingOutside(Marking):
        id = "com.example/outside"
        mark = "outer"

    inner: Server[Any] = Server("inner")
    inner.tool("fast")(lambda: "fast")
    inner.add_extension(Marking())
    outer: Server[Any] = Server("outer")
    outer.tool("own")(lambda: "own")
    outer.mount(inner, "in")
    outer.add_extension(MarkingOutside())
    async with BareEnd(outer, era) as end:
        assert await end.text("in_fast") == "fast\ninner fast\nouter in_fast"
        assert await end.text("own") == "own\nouter own"


@both_eras
async def test_a_handler_asks_what_the_client_declared(era: Era) -> None:
    """EXT-06."""
    server: Server[Any] = Server("asking")

    @server.tool
    async def soft(ctx: Context[Any]) -> str:
        return str(ctx.client_extension(JOBS))

    @server.tool
    async def hard(ctx: Context[Any]) -> str:
        return str(require_client_extension(ctx, JOBS))

    async with BareEnd(server, era, capabilities={"extensions": {JOBS: {"most": 1}}}) as end:
        assert await end.text("soft") == await end.text("hard") == "{'most': 1}"
    async with BareEnd(server, era) as end:
        assert await end.text("soft") == "None"
        if era == "2026":
            error = await end.refusal("tools/call", {"name": "hard", "arguments": {}})
            assert error["data"] == {"requiredCapabilities": {"extensions": {JOBS: {}}}}
        else:
            assert (await end.call_tool("hard"))["isError"] is True


# ---------------------------------------------------------------- listening


async def listening(end: BareEnd, wanted: dict[str, Any]) -> tuple[asyncio.Task[dict[str, Any]], dict[str, Any]]:
    task = asyncio.create_task(end.reply("subscriptions/listen", {"notifications": wanted}))
    return task, await end.wait_for("notifications/subscriptions/acknowledged")


@pytest.mark.foreign_words("a filter of the extension's own")
async def test_clients_listen_to_what_is_the_extensions_own() -> None:
    """SUB-02, SUB-04."""
    jobs = Jobs()
    server = served(jobs)
    async with BareEnd(server, capabilities=DECLARED) as end:
        task, said = await listening(end, {"jobIds": ["1", "unknown"], "toolsListChanged": True, "other": [1]})
        assert said["notifications"] == {"toolsListChanged": True, "jobIds": ["1"]}
        jobs.jobs |= {"1": "done", "2": "working"}
        server.notify(Changed("jobs", "2"))  # exists by now, but was not accepted
        server.notify(Changed("jobs", "1"))
        told = await end.wait_for("notifications/jobs")
        assert told == {"jobId": "1", "state": "done", "_meta": said["_meta"]}
        await server._drain()
        await task
    assert [one["method"] for one in end.heard if "method" in one].count("notifications/jobs") == 1


@pytest.mark.foreign_words("a filter of the extension's own")
async def test_what_may_have_been_lost_is_told_again() -> None:
    """The hint for everything reaches the keys that are listened to."""
    jobs = Jobs()
    server = served(jobs)
    async with BareEnd(server, capabilities=DECLARED) as end:
        task, _ = await listening(end, {"jobIds": ["1"]})
        server.loops.here().subscriptions.tell(ChangesLost("a test"))
        assert (await end.wait_for("notifications/jobs"))["jobId"] == "1"
        await server._drain()
        await task


class Feed(Extension):
    """A topic without keys: who subscribes gets all of it."""

    id = JOBS

    def topics(self) -> Iterable[Topic]:
        return (
            Topic(
                key="feed",
                type=bool,
                kind="feed",
                method="notifications/feed",
                accept=self.accept,
                describe=self.describe,
            ),
        )

    async def accept(self, ctx: Context[Any], value: bool) -> bool:
        return value

    async def describe(self, ctx: Context[Any], key: str | None) -> dict[str, Any]:
        return {"entry": key}


@pytest.mark.foreign_words("a filter of the extension's own")
async def test_a_topic_without_keys_tells_of_every_change_and_of_a_loss_as_a_whole() -> None:
    server = served(Feed())
    async with BareEnd(server, capabilities=DECLARED) as end:
        task, said = await listening(end, {"feed": True})
        assert said["notifications"] == {"feed": True}
        for key in ("a", "b", None):
            server.notify(Changed("feed", key))
            assert (await end.wait_for("notifications/feed"))["entry"] == key
            end.heard.clear()
        server.loops.here().subscriptions.tell(ChangesLost("a test"))
        assert (await end.wait_for("notifications/feed"))["entry"] is None
        await server._drain()
        await task


@pytest.mark.foreign_words("a filter of the extension's own")
async def test_streams_with_other_keys_of_a_topic_are_told_of_their_own() -> None:
    jobs = Jobs()
    jobs.jobs["2"] = "working"
    server = served(jobs)
    async with BareEnd(server, capabilities=DECLARED) as end, BareEnd(server, capabilities=DECLARED) as other:
        tasks = [(await listening(one, {"jobIds": [key]}))[0] for one, key in ((end, "1"), (other, "2"))]
        server.notify(Changed("jobs", "2"))
        assert (await other.wait_for("notifications/jobs"))["jobId"] == "2"
        server.notify(Changed("jobs", "1"))
        assert (await end.wait_for("notifications/jobs"))["jobId"] == "1"
        await server._drain()
        await asyncio.gather(*tasks)


@pytest.mark.foreign_words("a filter of the extension's own")
async def test_a_hint_that_cannot_be_told_is_lost_alone(caplog: pytest.LogCaptureFixture) -> None:
    jobs = Jobs()
    jobs.jobs["2"] = "working"
    server = served(jobs)
    async with BareEnd(server, capabilities=DECLARED) as end:
        task, _ = await listening(end, {"jobIds": ["1", "2"]})
        jobs.jobs["1"] = "broken"
        server.notify(Changed("jobs", "1"))
        server.notify(Changed("jobs", "2"))
        assert (await end.wait_for("notifications/jobs"))["jobId"] == "2"
        await server._drain()
        await task
    assert "notifications/jobs: the extension failed to describe the change" in caplog.text


@pytest.mark.foreign_words("a filter of the extension's own")
async def test_a_change_that_the_extension_describes_as_nothing_is_not_told() -> None:
    """Such as that of a job which is gone by then."""
    jobs = Jobs()
    jobs.jobs["2"] = "working"
    server = served(jobs)
    async with BareEnd(server, capabilities=DECLARED) as end:
        task, _ = await listening(end, {"jobIds": ["1", "2"]})
        del jobs.jobs["1"]
        server.notify(Changed("jobs", "1"))
        server.notify(Changed("jobs", "2"))
        assert (await end.wait_for("notifications/jobs"))["jobId"] == "2"
        await server._drain()
        assert "result" in await task


async def test_a_key_of_an_extension_is_not_taken_for_a_resource() -> None:
    server = served()
    async with BareEnd(server) as end:
        task, _ = await listening(end, {"resourceSubscriptions": ["jobs://all"], "toolsListChanged": True})
        server.notify(Changed("jobs", "jobs://all"))
        server.notify(Changed("tools"))
        await end.wait_for("notifications/tools/list_changed")
        await server._drain()
        await task
    assert "notifications/resources/updated" not in [one.get("method") for one in end.heard]


async def test_listening_without_the_declaration_is_refused() -> None:
    async with BareEnd(served()) as end:
        error = await end.refusal("subscriptions/listen", {"notifications": {"jobIds": ["1"]}})
        assert error["code"] == -32021


async def test_a_filter_of_the_wrong_type_is_refused() -> None:
    async with BareEnd(served(), capabilities=DECLARED) as end:
        error = await end.refusal("subscriptions/listen", {"notifications": {"jobIds": "1"}})
        assert error["code"] == -32602
        assert error["message"].startswith("notifications.jobIds: ")


async def test_what_is_not_accepted_is_left_out_of_the_acknowledgement() -> None:
    """SUB-04."""
    server = served()
    async with BareEnd(server, capabilities=DECLARED) as end:
        task, said = await listening(end, {"jobIds": ["unknown"]})
        assert said["notifications"] == {}
        await server._drain()
        await task


# ---------------------------------------------------------------- life


async def test_its_lifespan_is_inside_the_servers() -> None:
    log: list[str] = []

    class Living(Extension):
        id = "com.example/living"

        @asynccontextmanager
        async def lifespan(self, server: Any) -> AsyncIterator[None]:
            log.append(f"{self.id} begins")
            yield
            log.append(f"{self.id} ends")

    @asynccontextmanager
    async def lifespan(server: Server[str]) -> AsyncIterator[str]:
        log.append("server begins")
        yield "state"
        log.append("server ends")

    server: Server[str] = Server("alive", lifespan=lifespan)
    server.add_extension(Living())

    @server.tool
    async def state(ctx: Context[str]) -> str:
        return ctx.state

    async with server.running(), BareEnd(server) as end:
        assert await end.text("state") == "state"
    assert log == ["server begins", "com.example/living begins", "com.example/living ends", "server ends"]

    lonely: Server[Any] = Server("lonely")
    lonely.add_extension(Living())
    async with lonely.running():
        assert log[-1] == "com.example/living begins"


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    "wrong",
    ["", "jobs", "/jobs", "com.example/", "1com/jobs", "com-/jobs", "com..example/jobs", "com.example/-jobs", "a/b/c"],
)
def test_an_id_has_a_prefix_and_follows_the_rules_of_meta_keys(wrong: str) -> None:
    """EXT-02, META-01."""

    class Wrong(Extension):
        id = wrong

    with pytest.raises(DefinitionError) as caught:
        Server("mistaken").add_extension(Wrong())
    assert str(caught.value) == (
        f"The extension Wrong has the id {wrong!r}: it needs a prefix and a name, as in com.example/search"
    )


@pytest.mark.parametrize("right", ["com.example/jobs", "a/b", "io.modelcontextprotocol/ui", "x-y.z1/a.b_c-d"])
def test_ids_that_follow_the_rules_are_taken(right: str) -> None:
    """EXT-02, META-01."""

    class Right(Extension):
        id = right

    Server("fine").add_extension(Right())


def test_what_is_taken_cannot_be_brought_again() -> None:
    class Clashing(Jobs):
        id = "com.example/clashing"

    class Core(Extension):
        id = "com.example/core"

        def requests(self) -> Iterable[Method]:
            return (Method(name="tools/call", serve=Jobs().about),)

    class Complete(Extension):
        id = "com.example/complete"
        result_types = ("complete",)

    server = served()
    with pytest.raises(DefinitionError, match=r"There is an extension 'com\.example/jobs' already"):
        server.add_extension(Jobs())
    with pytest.raises(DefinitionError, match=r"'com\.example/clashing' brings 'jobs/get', which is taken already"):
        server.add_extension(Clashing())
    with pytest.raises(DefinitionError, match=r"'com\.example/core' brings 'tools/call', which is taken already"):
        server.add_extension(Core())
    with pytest.raises(DefinitionError, match=r"'com\.example/complete' brings 'complete', which is taken already"):
        server.add_extension(Complete())
