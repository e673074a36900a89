"""`ctx.step.key`, and options of steps."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from pathlib import Path
from typing import Any

import pytest

from gemel import (
    Client,
    Context,
    ElicitFormParams,
    GemelError,
    Limits,
    PeerError,
    Server,
    Tasks,
    TasksClient,
)
from gemel.backends import MemoryBackend, SqliteBackend
from tests.server.bare_end import BareEnd

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])


@both_eras
@pytest.mark.parametrize("blocking", [False, True])
async def test_each_step_of_each_call_has_a_key_of_its_own(era: Any, blocking: bool) -> None:
    """Equal steps of one call, and the same step of two equal calls: upstream services must tell them apart."""
    server: Server[Any] = Server("steps")
    keys: list[str] = []

    def sync_tool(ctx: Context[Any]) -> str:
        def charge(amount: int) -> None:
            keys.append(ctx.sync.step.key)

        ctx.sync.step(charge, 5)
        ctx.sync.step(charge, 5)
        ctx.sync.step.options(retry=False)(charge, 7)
        return ctx.sync.elicit("Really?", str)

    async def async_tool(ctx: Context[Any]) -> str:
        async def charge(amount: int) -> None:
            keys.append(ctx.step.key)

        await ctx.step(charge, 5)
        await ctx.step(charge, 5)
        await ctx.step.options(retry=False)(charge, 7)
        return await ctx.elicit("Really?", str)

    server.tool("pay")(sync_tool if blocking else async_tool)
    async with Client(server, era=era, on_elicit=lambda request: {"value": "yes"}) as client:
        for _ in range(2):
            assert (await client.call_tool("pay")).text == "yes"
    assert len(keys) == len(set(keys)) == 6


@pytest.mark.parametrize("after", [False, True])
async def test_there_is_no_key_outside_of_a_step(after: bool) -> None:
    server: Server[Any] = Server("steps")

    @server.tool
    async def pay(ctx: Context[Any], after: bool) -> str:
        if after:
            await ctx.step(lambda: ctx.step.key)
        return ctx.step.key

    async with Client(server) as client:
        result = await client.call_tool("pay", {"after": after}, raise_on_error=False)
        assert result.is_error


async def test_a_step_that_is_cut_short_has_the_same_key_when_it_runs_again() -> None:
    """In the stateless era the handler runs anew with the answer: the upstream service must not charge twice."""
    server: Server[Any] = Server("steps")
    keys: list[str] = []

    @server.tool
    async def pay(ctx: Context[Any]) -> str:
        async def prepare() -> None:
            keys.append(ctx.step.key)

        async def charge() -> str:
            keys.append(ctx.step.key)
            return await ctx.elicit("Really?", str)

        await ctx.step(prepare)
        return await ctx.step(charge)

    async with Client(server, era="2026", on_elicit=lambda request: {"value": "yes"}) as client:
        assert (await client.call_tool("pay")).text == "yes"
    prepared, cut_short, again = keys
    assert cut_short == again != prepared


@both_eras
@pytest.mark.parametrize("inside", [False, True], ids=["handler", "step"])
async def test_a_step_that_runs_while_a_question_is_asked_runs_once(era: Any, inside: bool) -> None:
    """A round ends when its steps have: what they do, such as a payment, must not be cut off and begin again."""
    server: Server[Any] = Server("steps")
    charged: list[str] = []

    @server.tool
    async def pay(ctx: Context[Any]) -> list[str]:
        async def charge(card: str) -> str:
            charged.append(f"begin {card}")
            for _ in range(20):
                await asyncio.sleep(0)
            charged.append(f"end {card}")
            return card

        async def both() -> list[str]:
            return list(await asyncio.gather(ctx.elicit("Really?", str), ctx.step(charge, "1"), ctx.step(charge, "2")))

        return await ctx.step(both) if inside else await both()

    async with Client(server, era=era, on_elicit=lambda request: {"value": "yes"}) as client:
        assert (await client.call_tool("pay", returns=list[str])).data == ["yes", "1", "2"]
    assert sorted(charged) == ["begin 1", "begin 2", "end 1", "end 2"]


class Bank:
    """A connection, of which each round has another one; no two are shown alike."""

    numbers = itertools.count()

    def __init__(self) -> None:
        self.number = next(Bank.numbers)

    def __repr__(self) -> str:
        return f"<connection {self.number}>"

    def balance(self) -> None: ...


@pytest.mark.parametrize(
    "values",
    [(5, 7), (Path("a"), Path("b")), ({3, 1}, {3, 2}), (len, sum)],
    ids=["numbers", "paths", "sets", "functions"],
)
@pytest.mark.parametrize("beside", ["context", "connection", "function", "method"])
@pytest.mark.parametrize("named", [False, True])
async def test_a_step_is_known_by_the_values_of_its_arguments(
    beside: str, values: tuple[object, object], named: bool
) -> None:
    """Also in a round that takes the steps in another order, and has other objects beside them."""
    server: Server[Any] = Server("steps")
    rounds: list[dict[str, str]] = []
    objects: list[object] = []  # kept, so that no two of them have one address

    async def charge(value: object, other: object) -> str:
        return f"{value} in round {len(rounds)}"

    @server.tool
    async def pay(ctx: Context[Any]) -> str:
        rounds.append({})
        for value in values if len(rounds) == 1 else reversed(values):
            bank = Bank()
            others = {"context": ctx, "connection": bank, "function": lambda: None, "method": bank.balance}
            objects.append(others[beside])
            if named:
                rounds[-1][str(value)] = await ctx.step(charge, value=value, other=objects[-1])
            else:
                rounds[-1][str(value)] = await ctx.step(charge, value, objects[-1])
        return await ctx.elicit("Really?", str)

    async with Client(server, era="2026", on_elicit=lambda request: {"value": "yes"}) as client:
        assert (await client.call_tool("pay")).text == "yes"
    first, second = rounds
    assert first == second == {str(value): f"{value} in round 1" for value in values}


@both_eras
async def test_a_step_may_have_arguments_that_json_can_not_represent(era: Any) -> None:
    server: Server[Any] = Server("steps")
    seats: list[Any] = []

    def reserve(seat: dict[tuple[int, int], str]) -> int:
        seats.append(seat)
        return len(seats)

    @server.tool
    async def book(ctx: Context[Any]) -> str:
        number = await ctx.step(reserve, {(1, 2): "Ada"})
        return f"{await ctx.elicit('Really?', str)} {number}"

    async with Client(server, era=era, on_elicit=lambda request: {"value": "yes"}) as client:
        assert (await client.call_tool("book")).text == "yes 1"
    assert seats == [{(1, 2): "Ada"}]


@both_eras
async def test_a_result_that_json_can_not_represent_is_an_error_that_names_the_step(era: Any) -> None:
    server: Server[Any] = Server("steps")

    def connect() -> Any:
        return object()

    @server.tool
    async def pay(ctx: Context[Any]) -> str:
        with pytest.raises(GemelError) as caught:
            await ctx.step(connect)
        return str(caught.value)

    async with Client(server, era=era) as client:
        told = (await client.call_tool("pay")).text
    assert "connect): JSON can't represent its result: " in told


class Numbers:
    """A user who answers each question with the next number, and what was asked in the order of the answers."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, request: ElicitFormParams) -> dict[str, Any]:
        self.asked.append(request.message)
        return {"value": len(self.asked)}


@both_eras
@pytest.mark.parametrize("count", [1, 3, 8])
@pytest.mark.parametrize("by", ["question", "tool", "sync"])
async def test_each_step_may_ask(era: Any, count: int, by: str) -> None:
    """Steps that asked are over: the rounds after them don't request their input again."""
    server: Server[Any] = Server("steps")
    ended: list[str] = []

    @server.tool
    async def ask(ctx: Context[Any], question: str) -> int:
        return await ctx.elicit(question, int)

    @server.tool
    async def question(ctx: Context[Any], count: int) -> list[int]:
        async def one(text: str) -> int:
            answer = await ctx.elicit(text, int)
            ended.append(text)
            return answer

        return [await ctx.step(one, f"Question {number}") for number in range(count)]

    @server.tool
    async def tool(ctx: Context[Any], count: int) -> list[int]:
        async def one(text: str) -> Any:
            answer = (await ctx.call_tool("ask", {"question": text})).data
            ended.append(text)
            return answer

        return [await ctx.step(one, f"Question {number}") for number in range(count)]

    @server.tool
    def sync(ctx: Context[Any], count: int) -> list[int]:
        def one(text: str) -> int:
            answer = ctx.sync.elicit(text, int)
            ended.append(text)
            return answer

        return [ctx.sync.step(one, f"Question {number}") for number in range(count)]

    user = Numbers()
    async with Client(server, era=era, on_elicit=user) as client:
        assert (await client.call_tool(by, {"count": count}, returns=list[int])).data == list(range(1, count + 1))
    assert user.asked == ended == [f"Question {number}" for number in range(count)]


@both_eras
async def test_the_same_question_inside_and_outside_of_steps_is_asked_for_each(era: Any) -> None:
    """Also in steps within steps, and in several at once; a key of one's own counts within its step."""
    server: Server[Any] = Server("steps")

    @server.tool
    async def many(ctx: Context[Any]) -> list[Any]:
        async def inner(name: str) -> list[int]:
            return [await ctx.elicit("Again?", int), await ctx.elicit("Keyed?", int, key="k")]

        async def outer(name: str) -> list[Any]:
            first = await ctx.elicit("Again?", int)
            return [first, await ctx.step(inner, name), await ctx.step(inner, name), await ctx.elicit("Again?", int)]

        before = await ctx.elicit("Again?", int)
        one = await ctx.step(outer, "one")
        between = await ctx.elicit("Again?", int)
        both = await asyncio.gather(
            ctx.step(outer, "two"), ctx.step(outer, "three"), ctx.elicit("Keyed?", int, key="k")
        )
        return [before, one, between, both, await ctx.elicit("Again?", int)]

    def flat(value: Any) -> list[int]:
        return [number for item in value for number in flat(item)] if isinstance(value, list) else [value]

    user = Numbers()
    async with Client(server, era=era, on_elicit=user, limits=Limits(rounds=100)) as client:
        before, one, between, both, after = (await client.call_tool("many", returns=list[Any])).data
    assert [before, *flat(one), between] == list(range(1, 9))
    assert sorted(flat(both)) == list(range(9, 22))
    assert after == 22
    assert len(user.asked) == 22


async def test_a_step_that_failed_after_its_question_asks_nothing_again() -> None:
    server: Server[Any] = Server("steps")

    @server.tool
    async def pay(ctx: Context[Any]) -> list[int]:
        async def charge(answers: list[int]) -> None:
            answers.append(await ctx.elicit("How much?", int))
            raise ValueError("not enough")

        answers: list[int] = []
        for _ in range(2):
            with contextlib.suppress(ValueError):
                await ctx.step(charge, answers)
        return [*answers, await ctx.elicit("How much?", int)]

    user = Numbers()
    async with Client(server, era="2026", on_elicit=user) as client:
        assert (await client.call_tool("pay")).data == [1, 2, 3]
    assert len(user.asked) == 3


@pytest.mark.parametrize("model", ["step", "handler"])
async def test_a_step_may_ask_the_model(model: str) -> None:
    server: Server[Any] = Server("steps")

    @server.tool
    async def sum_up(ctx: Context[Any]) -> list[str]:
        async def one(text: str) -> str:
            return (await ctx.sample(text)).text

        return [await (ctx.step(one, text) if model == "step" else one(text)) for text in ("a", "b", "c")]

    async with Client(server, era="2026", on_sample=lambda request: request.messages[0].text.upper()) as client:
        assert (await client.call_tool("sum_up")).data == ["A", "B", "C"]


async def _states(server: Server[Any], answers: int) -> list[dict[str, Any]]:
    """The results of the rounds of `pay`."""
    async with BareEnd(server, capabilities={"elicitation": {}}) as end:
        params: dict[str, Any] = {"name": "pay"}
        results = []
        for _ in range(answers + 1):
            results.append(await end.ask("tools/call", params))
            requests = results[-1].get("inputRequests", {})
            responses = {key: {"action": "accept", "content": {"value": "yes"}} for key in requests}
            params = {"name": "pay", "requestState": results[-1].get("requestState"), "inputResponses": responses}
        return results


@pytest.mark.parametrize("keys", [(), (b"k" * 32,)], ids=["own keys", "given keys"])
async def test_a_large_result_of_a_step_is_kept_in_the_backend(keys: tuple[bytes, ...], tmp_path: Path) -> None:
    """So that the client doesn't carry it; the step runs once."""
    backend = SqliteBackend(tmp_path / "shared") if keys else MemoryBackend()
    server: Server[Any] = Server("steps", state_keys=list(keys), backend=backend)
    runs: list[int] = []

    def load(size: int) -> str:
        runs.append(size)
        return "é" * (size // 2)

    @server.tool
    async def pay(ctx: Context[Any]) -> list[int]:
        small, large = await ctx.step(load, 60_000), await ctx.step(load, 600_000)
        answers = [await ctx.elicit(text, str) for text in ("One?", "Two?")]
        return [len(small), len(large), len(answers)]

    first, second, last = await _states(server, 2)
    assert last["structuredContent"] == [30_000, 300_000, 2]
    assert runs == [60_000, 600_000]
    for round_ in (first, second):
        assert 60_000 < len(round_["requestState"]) < 100_000
    await backend.close()


async def test_another_process_finds_a_large_result(tmp_path: Path) -> None:
    runs: list[int] = []

    def process(number: int) -> Server[Any]:
        server: Server[Any] = Server("steps", backend=f"sqlite:///{tmp_path}/shared")

        def load() -> str:
            runs.append(number)
            return "x" * 100_000

        @server.tool
        async def pay(ctx: Context[Any]) -> int:
            text = await ctx.step(load)
            await ctx.elicit("Really?", str)
            return len(text)

        return server

    servers = [process(number) for number in range(2)]
    can: dict[str, Any] = {"elicitation": {}}
    async with (
        servers[0].running(),
        servers[1].running(),
        BareEnd(servers[0], capabilities=can) as first,
        BareEnd(servers[1], capabilities=can) as second,
    ):
        asked = await first.ask("tools/call", {"name": "pay"})
        answers = {key: {"action": "accept", "content": {"value": "yes"}} for key in asked["inputRequests"]}
        retry = {"name": "pay", "requestState": asked["requestState"], "inputResponses": answers}
        assert (await second.ask("tools/call", retry))["structuredContent"] == 100_000
    assert runs == [0]


async def test_a_result_that_nothing_can_keep_is_an_error_that_says_so() -> None:
    """Of a server whose keys other processes have, too, but not its backend; and of more bytes than a backend keeps."""
    texts = []
    for options in ({"state_keys": [b"k" * 32]}, {}):
        server: Server[Any] = Server("steps", **options)  # type: ignore[arg-type]  # options by name

        @server.tool
        async def pay(ctx: Context[Any], asks: bool) -> str:
            text = await ctx.step(lambda: "x" * (2 << 20))
            try:
                return await ctx.elicit("Really?", str) if asks else str(len(text))
            except GemelError as exc:
                return str(exc)

        async with Client(server, era="2026") as client:
            assert (await client.call_tool("pay", {"asks": False})).text == str(2 << 20), "nothing has to be kept"
        async with Client(server, era="2026", on_elicit=lambda form: {"value": "yes"}) as client:
            texts.append((await client.call_tool("pay", {"asks": True})).text)
        async with Client(server, era="2025", on_elicit=lambda form: {"value": "yes"}) as client:
            assert (await client.call_tool("pay", {"asks": True})).text == "yes", "nothing has to be kept"
    assert all("its result has 2097154 bytes" in text for text in texts)
    assert "shared backend" in texts[0]
    assert "return less" in texts[1]


async def test_a_result_that_the_backend_has_lost_ends_the_call() -> None:
    backend = MemoryBackend()
    server: Server[Any] = Server("steps", backend=backend)

    @server.tool
    async def pay(ctx: Context[Any]) -> str:
        await ctx.step(lambda: "x" * 100_000)
        return await ctx.elicit("Really?", str)

    async def lose(key: str) -> None:
        return None

    def answer(request: ElicitFormParams) -> dict[str, Any]:
        backend.get = lose  # type: ignore[method-assign]  # a store that is away
        return {"value": "yes"}

    async with Client(server, era="2026", on_elicit=answer) as client:
        with pytest.raises(PeerError, match="the result of a step is not kept any more") as caught:
            await client.call_tool("pay")
    assert caught.value.code == -32602


async def test_a_task_that_goes_on_elsewhere_knows_answers_inside_of_steps_from_others(tmp_path: Path) -> None:
    user, ended, recorded = Numbers(), [], asyncio.Event()

    def build() -> Server[Any]:
        server: Server[Any] = Server("steps", backend=f"sqlite:///{tmp_path}/tasks")
        server.add_extension(Tasks())

        @server.tool(task=True)
        async def pay(ctx: Context[Any]) -> list[int]:
            async def charge() -> int:
                number = await ctx.elicit("How much?", int)
                ended.append(number)
                return number

            charged = await ctx.step(charge)
            recorded.set()
            return [charged, await ctx.elicit("How much?", int)]

        return server

    async with Client(build(), principal="ann", extensions=[TasksClient], on_elicit=user) as client:
        task = await client.call_tool("pay", task=True)
        assert task.id is not None
        waiting = asyncio.create_task(task.wait())
        async with asyncio.timeout(10):
            await recorded.wait()
        waiting.cancel()
    async with Client(build(), principal="ann", extensions=[TasksClient], on_elicit=user) as client:
        async with asyncio.timeout(20):
            result = await (await client.tasks.resume(task.id, returns=list[int])).result()
    assert ended == [1]
    assert result.data == [1, 2]
