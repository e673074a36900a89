"""Extensions of the protocol in a client: what they declare, what they send and answer, and results of a type of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pydantic
import pytest

from gemel import (
    CallTimeout,
    CallToolResult,
    Changed,
    Client,
    ClientContext,
    ClientExtension,
    ClientMethod,
    Context,
    DefinitionError,
    Extension,
    InvalidResponse,
    Method,
    SentMethod,
    Server,
    Topic,
)
from gemel.client.methods import CallNext, ClientMethods
from gemel.server.context import served_call
from tests.client.puppet import HANG_UP, META, Puppet, discovered, done, legacy, modern, shaken
from tests.support import Result
from tests.transports.http_rig import serving

extended = pytest.mark.foreign_words("an extension adds a type of result and a key of the filter")
both_eras = pytest.mark.parametrize("era", ["2025", "2026"])
ID = "com.example/jobs"


class JobParams(msgspec.Struct, rename="camel"):
    job_id: str


class JobResult(Result, kw_only=True):
    job_id: str


class ServerJobs(Extension):
    """Calls of `work` become jobs for clients that know what that is."""

    id = ID
    result_types = ("job",)

    def __init__(self) -> None:
        self.looks = 0

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"most": 7}

    def requests(self) -> Iterable[Method]:
        return [Method(name="jobs/get", serve=self.get, params=JobParams, name_field="job_id")]

    def topics(self) -> Iterable[Topic]:
        return [
            Topic(key="jobIds", kind="jobs", method="notifications/jobs", accept=self.accept, describe=self.describe)
        ]

    async def accept(self, ctx: Context[Any], wanted: list[str]) -> list[str] | None:
        return wanted

    async def describe(self, ctx: Context[Any], key: str | None) -> dict[str, Any]:
        return {"jobId": key}

    async def get(self, ctx: Context[Any], params: JobParams) -> dict[str, Any]:
        self.looks += 1
        return {"done": self.looks % 3 == 0, "jobId": params.job_id}

    async def call_tool(self, ctx: Context[Any], params: Any, call_next: Any) -> Any:
        if ctx.client_extension(ID) is None or served_call(ctx).call.era.name == "2025":
            return await call_next(ctx, params)
        return JobResult(job_id="7", result_type="job")


class Jobs(ClientExtension):
    """Looks after a job until it is done."""

    id = ID
    result_types = ("job",)

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.client: ClientMethods | None = None

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"patient": True}

    def sends(self) -> Iterable[SentMethod]:
        return [SentMethod(name="jobs/get", name_field="jobId", safe=True)]

    def notifications(self) -> Iterable[ClientMethod]:
        return [ClientMethod(name="notifications/jobs", serve=self.hear, params=JobParams)]

    def requests(self) -> Iterable[ClientMethod]:
        return [ClientMethod(name="jobs/mayI", serve=self.may, params=JobParams)]

    def attach(self, client: ClientMethods) -> None:
        self.client = client

    async def hear(self, ctx: ClientContext, params: JobParams) -> None:
        self.heard.append((ctx.method, params))

    async def may(self, ctx: ClientContext, params: JobParams) -> dict[str, Any]:
        return {"job": params.job_id, "allowed": True}

    async def resolve(self, ctx: ClientContext, result: dict[str, Any]) -> Any:
        if ctx.method != "tools/call":
            raise InvalidResponse(f"{ctx.method} was answered with a job")
        while True:
            state = await ctx.client.request("jobs/get", {"jobId": result["jobId"]})
            if state["done"]:
                return CallToolResult(content=[], structured_content={"job": state["jobId"]})


def a_server(extension: Extension | None = None) -> Server[Any]:
    server: Server[Any] = Server("office")
    server.add_extension(extension or ServerJobs())

    @server.tool
    async def work() -> dict[str, str]:
        return {"job": "none"}

    return server


# ---------------------------------------------------------------- declared


@both_eras
async def test_it_is_declared_and_the_servers_side_is_seen(era: Any) -> None:
    """EXT-01, EXT-03."""
    puppet = Puppet(
        {
            "server/discover": discovered(capabilities={"extensions": {ID: {"most": 7}}}),
            "initialize": shaken(capabilities={"extensions": {ID: {"most": 7}}}),
            "tools/call": done(),
        }
    )
    async with Client(puppet, era=era, extensions=[Jobs()], on_roots=[]) as client:
        await client.call_tool("t")
        assert client.server_extension(ID) == {"most": 7}
        assert client.server_extension("com.example/other") is None
    if era == "2025":
        (declared,) = [params["capabilities"] for params in puppet.asked("initialize")]
    else:
        declared = puppet.asked("tools/call")[0]["_meta"][f"{META}clientCapabilities"]
        assert puppet.asked("server/discover")[0]["_meta"][f"{META}clientCapabilities"] == declared
    assert declared["extensions"] == {ID: {"patient": True}}
    assert "roots" in declared


@both_eras
async def test_nothing_is_declared_unless_asked_for(era: Any) -> None:
    """EXT-05."""
    puppet = Puppet({"server/discover": discovered(), "initialize": shaken()})
    async with Client(puppet, era=era):
        pass
    text = msgspec.json.encode(puppet.came)
    assert b"extensions" not in text


@both_eras
async def test_an_extension_of_one_era_is_not_declared_in_the_other(era: Any) -> None:
    class Modern(ClientExtension):
        id = "com.example/modern"
        eras = ("2026",)

    puppet = Puppet({"server/discover": discovered(), "initialize": shaken(), "tools/call": done()})
    async with Client(puppet, era=era, extensions=[Modern()]) as client:
        await client.call_tool("t")
    assert (b"com.example/modern" in msgspec.json.encode(puppet.came)) == (era == "2026")


# ---------------------------------------------------------------- results of its own


@extended
@pytest.mark.parametrize("route", ["memory", "http"])
async def test_a_result_of_its_own_type_becomes_what_the_caller_asked_for(route: str) -> None:
    """EXT-04: over HTTP its own requests name what they are about."""
    server = a_server()
    async with serving(server) as site:
        target: Any = server if route == "memory" else f"http://127.0.0.1:{site.port}/mcp"
        async with Client(target, extensions=[Jobs()]) as client:
            assert (await client.call_tool("work")).data == {"job": "7"}
            assert (await client.call_tool("work", returns=dict[str, str])).data == {"job": "7"}
        async with Client(target) as client:
            assert (await client.call_tool("work")).data == {"job": "none"}
    async with Client(server, era="2025", extensions=[Jobs()]) as client:
        assert (await client.call_tool("work")).data == {"job": "none"}


@extended
async def test_middleware_sees_the_call_once_and_its_end() -> None:
    seen: list[str] = []

    async def watch(ctx: ClientContext, call_next: CallNext) -> Any:
        found = await call_next(ctx)
        seen.append(f"{ctx.method} {type(found).__name__}")
        return found

    async with Client(a_server(), extensions=[Jobs()], middleware=[watch]) as client:
        await client.call_tool("work")
    assert seen == [*(["jobs/get dict"] * 3), "tools/call CallToolResult"]


@pytest.mark.parametrize("extensions", [[], [Jobs]])
async def test_a_type_that_nobody_knows_is_no_answer(extensions: Any) -> None:
    puppet = modern(tools_call={"resultType": "riddle", "content": []})
    async with Client(puppet, extensions=[one() for one in extensions]) as client:
        with pytest.raises(InvalidResponse, match="tools/call: the result type 'riddle' is unknown to this client"):
            await client.call_tool("t")


async def test_an_extension_may_refuse_a_result_and_its_mistakes_are_its_own() -> None:
    class Careless(ClientExtension):
        id = "com.example/careless"
        result_types = ("riddle",)

    puppet = modern(tools_list={"resultType": "job", "jobId": "7"}, tools_call={"resultType": "riddle"})
    async with Client(puppet, extensions=[Jobs(), Careless()]) as client:
        with pytest.raises(InvalidResponse, match="tools/list was answered with a job"):
            await client.list_tools()
        with pytest.raises(NotImplementedError, match="Careless has result_types and no resolve"):
            await client.call_tool("t")


@extended
async def test_the_time_of_the_call_is_the_time_of_its_job() -> None:
    class Slow(Jobs):
        async def resolve(self, ctx: ClientContext, result: dict[str, Any]) -> Any:
            self.heard.append(ctx.total)
            await asyncio.Event().wait()

    slow = Slow()
    async with Client(a_server(), extensions=[slow]) as client:
        with pytest.raises(CallTimeout, match=r"tools/call: com.example/jobs has no result"):
            await client.call_tool("work", total=0.05)
    assert 0 < slow.heard[0] <= 0.05


# ---------------------------------------------------------------- messages of its own


async def test_what_it_says_is_safe_is_repeated_after_a_loss() -> None:
    left: list[Any] = [HANG_UP, {"resultType": "complete", "done": True}]
    puppet = modern(jobs_get=lambda puppet, message: left.pop(0))
    async with Client(puppet, extensions=[Jobs()]) as client:
        assert (await client.request("jobs/get", {"jobId": "1"}))["done"]
    assert puppet.connections == 2


async def test_it_answers_a_handshake_server() -> None:
    asked: list[Any] = [
        {"id": "q1", "method": "jobs/mayI", "params": {"jobId": "3"}},
        {"id": "q2", "method": "jobs/mayI", "params": {"jobId": 3}},
        {"id": "q3", "method": "jobs/unknown"},
    ]

    def ask(puppet: Puppet, message: dict[str, Any]) -> Any:
        puppet.say(*asked)
        return {}

    puppet = legacy(acme_ask=ask)
    async with Client(puppet, era="2025", extensions=[Jobs()]) as client:
        await client.request("acme/ask")
        await puppet.until(lambda: {"q1", "q2", "q3"} <= {message.get("id") for message in puppet.came})
    answers = {message["id"]: message for message in puppet.came if str(message.get("id")).startswith("q")}
    assert answers["q1"]["result"] == {"job": "3", "allowed": True}
    assert answers["q2"]["error"]["code"] == -32602
    assert answers["q3"]["error"]["code"] == -32601


@extended
async def test_it_hears_what_it_listens_to_and_garbage_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    server, jobs = a_server(), Jobs()
    told: list[str] = []
    heard = asyncio.Event()

    def notice(method: str, params: dict[str, Any]) -> None:
        told.append(method)
        heard.set()

    async with (
        Client(server, extensions=[jobs], on_notification=notice) as client,
        client.listen(topics={"jobIds": ["7"]}) as changes,
    ):
        assert changes.topics == {"jobIds": ["7"]}
        server.notify(Changed("jobs", "7"))
        await heard.wait()
    assert jobs.heard == [("notifications/jobs", JobParams("7"))]
    assert told == ["notifications/jobs"]
    puppet = legacy()
    async with Client(puppet, era="2025", extensions=[Jobs()]) as client:
        puppet.say({"method": "notifications/jobs", "params": {"jobId": 5}})
        await client.ping()
        await client.ping()
    assert "notifications/jobs is dropped" in caplog.text


async def test_params_and_results_may_be_pydantic_models() -> None:
    class Asked(pydantic.BaseModel):
        number: int

    class Counting(ClientExtension):
        id = "com.example/counting"

        def requests(self) -> Iterable[ClientMethod]:
            return [ClientMethod(name="count/next", serve=self.next, params=Asked)]

        async def next(self, ctx: ClientContext, params: Asked) -> Asked:
            return Asked(number=params.number + 1)

    def ask(puppet: Puppet, message: dict[str, Any]) -> Any:
        puppet.say({"id": "q", "method": "count/next", "params": {"number": 1}})
        return {}

    puppet = legacy(acme_ask=ask)
    async with Client(puppet, era="2025", extensions=[Counting()]) as client:
        await client.request("acme/ask")
        await puppet.until(lambda: any(message.get("id") == "q" for message in puppet.came))
    (answer,) = [message for message in puppet.came if message.get("id") == "q"]
    assert answer["result"] == {"number": 2}


# ---------------------------------------------------------------- mistakes


async def test_mistakes_are_told_when_it_is_added() -> None:
    """EXT-02."""

    class Nameless(ClientExtension):
        id = "jobs"

    class Greedy(ClientExtension):
        id = "com.example/greedy"

        def sends(self) -> Iterable[SentMethod]:
            return [SentMethod(name="tools/call")]

    class Core(ClientExtension):
        id = "com.example/core"
        result_types = ("complete",)

    class Plain(ClientExtension):
        id = "com.example/plain"

        def requests(self) -> Iterable[ClientMethod]:
            def serve(ctx: ClientContext, params: Any) -> Any:
                return {}

            return [ClientMethod(name="plain/do", serve=serve)]

    client = Client(a_server(), extensions=[Jobs()])
    for extension, words in [
        (Nameless(), "has the id 'jobs': it needs a prefix"),
        (Jobs(), "There is an extension 'com.example/jobs' already"),
        (Greedy(), "brings 'tools/call', which is taken"),
        (Core(), "brings 'complete', which is taken"),
        (Plain(), "'plain/do' of 'com.example/plain': write `async def serve"),
    ]:
        with pytest.raises(DefinitionError, match=words):
            client.add_extension(extension)
    async with client:
        with pytest.raises(DefinitionError, match="comes too late"):
            client.add_extension(Greedy())
