"""Parameters that the server fills: dependencies with their clean-up, and answers of the user, in both eras."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import pytest

from gemel import Ask, Context, Declined, DefinitionError, Depends, Limits, Server, Titled, ToolError
from tests.server.bare_end import BareEnd, Era

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])
FORMS: dict[str, Any] = {"elicitation": {"form": {}}}


class Db:
    """A database that remembers what happened to it."""

    def __init__(self) -> None:
        self.log: list[str] = []


@pytest.fixture
def db() -> Db:
    return Db()


@pytest.fixture
def server() -> Server[Any]:
    return Server("dependent")


@both_eras
async def test_dependencies_of_all_kinds_are_filled_in_and_no_client_sees_them(server: Server[Any], era: Era) -> None:
    def plain() -> str:
        return "plain"

    async def awaited() -> str:
        return "awaited"

    def generated() -> Iterator[str]:
        yield "generated"

    async def streamed() -> AsyncIterator[str]:
        yield "streamed"

    class Made:
        def __init__(self, ctx: Context[Any]) -> None:
            self.text = f"made for {ctx.method}"

    @server.tool
    async def show(
        number: int,
        one: Annotated[str, Depends(plain)],
        two: Annotated[str, Depends(awaited)],
        three: Annotated[str, Depends(generated)],
        four: Annotated[str, Depends(streamed)],
        five: Annotated[Made, Depends(Made)],
        six: Annotated[str, Depends(functools.partial(lambda word: word, "partial"))],
    ) -> list[str]:
        return [str(number), one, two, three, four, five.text, six]

    async with BareEnd(server, era) as end:
        result = await end.call_tool("show", number=1)
        words = msgspec.json.decode(result["content"][0]["text"])
        assert words == ["1", "plain", "awaited", "generated", "streamed", "made for tools/call", "partial"]
        (tool,) = (await end.ask("tools/list"))["tools"]
        assert list(tool["inputSchema"]["properties"]) == ["number"]
        assert (await end.call_tool("show", number=1, one="mine"))["isError"]


async def test_a_dependency_runs_once_per_call_and_anew_for_the_next(server: Server[Any]) -> None:
    runs: list[int] = []

    def count() -> int:
        runs.append(1)
        return len(runs)

    def double(count: Annotated[int, Depends(count)]) -> int:
        return 2 * count

    @server.tool
    async def show(
        one: Annotated[int, Depends(count)], two: Annotated[int, Depends(double)], three: Annotated[int, Depends(count)]
    ) -> list[int]:
        return [one, two, three]

    async with BareEnd(server) as end:
        assert await end.text("show") == "[1,2,1]"
        assert await end.text("show") == "[2,4,2]"


async def test_methods_partials_and_classes_are_dependencies_like_functions(server: Server[Any]) -> None:
    class Shop:
        def __init__(self) -> None:
            self.opened = 0

        def open(self, ctx: Context[Any]) -> int:
            self.opened += 1
            return self.opened

    class Base:
        def __init__(self, city: str) -> None:
            self.city = city

    class Account(Base): ...

    def greet(greeting: str, city: str) -> str:
        return f"{greeting} {city}"

    shop = Shop()

    @server.tool
    async def show(
        city: str,
        one: Annotated[int, Depends(shop.open)],
        two: Annotated[int, Depends(shop.open)],
        account: Annotated[Account, Depends(Account)],
        greeting: Annotated[str, Depends(functools.partial(greet, "Hello"))],
    ) -> list[str]:
        return [str(one), str(two), account.city, greeting]

    async with BareEnd(server) as end:
        assert await end.text("show", city="Oslo") == '["1","1","Oslo","Hello Oslo"]'


async def test_a_dependency_gets_the_context_and_arguments_by_their_names(server: Server[Any]) -> None:
    async def account(ctx: Context[Any], city: str, days: int, currency: str = "EUR") -> str:
        return f"{ctx.request_id}:{city}:{days + 1}:{currency}"

    @server.tool
    async def show(city: str, account: Annotated[str, Depends(account)], days: int = 3) -> str:
        return account

    async with BareEnd(server) as end:
        assert await end.text("show", city="Oslo") == "1:Oslo:4:EUR"


@both_eras
async def test_prompts_and_resources_have_dependencies_too(server: Server[Any], era: Era, db: Db) -> None:
    async def get_db() -> AsyncIterator[Db]:
        yield db
        db.log.append("closed")

    @server.prompt
    async def brief(city: str, db: Annotated[Db, Depends(get_db)], ctx: Context[Any]) -> str:
        db.log.append(f"brief {city} {ctx.method}")
        return "brief"

    @server.resource("db://{table}")
    def table(table: str, db: Annotated[Db, Depends(get_db)]) -> Iterator[str]:
        def rows() -> Iterator[str]:
            db.log.append(f"read {table}")
            yield "row"

        return rows()

    async with BareEnd(server, era) as end:
        await end.ask("prompts/get", {"name": "brief", "arguments": {"city": "Oslo"}})
        (prompt,) = (await end.ask("prompts/list"))["prompts"]
        assert [argument["name"] for argument in prompt["arguments"]] == ["city"]
        found = await end.ask("resources/read", {"uri": "db://days"})
        assert found["contents"][0]["text"] == "row"
    assert db.log == ["brief Oslo prompts/get", "closed", "read days", "closed"]


# ---------------------------------------------------------------- where they run


async def test_sync_dependencies_run_in_a_worker_thread_unless_they_say_otherwise(server: Server[Any]) -> None:
    def here() -> str:
        return threading.current_thread().name

    def there() -> Iterator[str]:
        yield threading.current_thread().name

    def quick() -> str:
        return threading.current_thread().name

    @server.tool
    async def show(
        one: Annotated[str, Depends(here)],
        two: Annotated[str, Depends(there)],
        three: Annotated[str, Depends(quick, blocking=False)],
    ) -> list[str]:
        return [one, two, three]

    async with BareEnd(server) as end:
        assert await end.text("show") == '["gemel-tool","gemel-tool","MainThread"]'


async def test_sync_functions_take_dependencies_and_run_in_a_worker_thread(server: Server[Any], db: Db) -> None:
    async def get_db() -> Db:
        return db

    @server.tool
    def show(db: Annotated[Db, Depends(get_db)]) -> str:
        db.log.append(threading.current_thread().name)
        return "done"

    async with BareEnd(server) as end:
        assert await end.text("show") == "done"
    assert db.log == ["gemel-tool"]


# ---------------------------------------------------------------- clean-up


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_clean_up_comes_after_the_result_is_written_last_opened_first(
    server: Server[Any], db: Db, kind: str
) -> None:
    class Lazy(dict[str, str]):
        def items(self) -> Any:
            db.log.append("written")
            return super().items()

    def outer() -> Iterator[str]:
        db.log.append("outer opened")
        yield "outer"
        db.log.append("outer closed")

    async def async_outer() -> AsyncIterator[str]:
        db.log.append("outer opened")
        yield "outer"
        db.log.append("outer closed")

    chosen = outer if kind == "sync" else async_outer

    def inner(outer: Annotated[str, Depends(chosen)]) -> Iterator[str]:
        db.log.append("inner opened")
        yield "inner"
        db.log.append("inner closed")

    @server.tool
    async def show(outer: Annotated[str, Depends(chosen)], inner: Annotated[str, Depends(inner)]) -> dict[str, str]:
        db.log.append("body")
        return Lazy(a="b")

    async with BareEnd(server) as end:
        await end.call_tool("show")
    without_writing = [line for line in db.log if line != "written"]
    assert without_writing == ["outer opened", "inner opened", "body", "inner closed", "outer closed"]
    assert "written" not in db.log[db.log.index("inner closed") :]


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_failure_is_raised_at_the_yield_so_that_work_can_be_undone(
    server: Server[Any], db: Db, kind: str
) -> None:
    def session() -> Iterator[Db]:
        try:
            yield db
            db.log.append("committed")
        except ToolError as exc:
            db.log.append(f"rolled back: {exc}")
            raise
        finally:
            db.log.append("closed")

    async def async_session() -> AsyncIterator[Db]:
        try:
            yield db
            db.log.append("committed")
        except ToolError as exc:
            db.log.append(f"rolled back: {exc}")
            raise
        finally:
            db.log.append("closed")

    @server.tool
    async def work(db: Annotated[Db, Depends(session if kind == "sync" else async_session)], fails: bool) -> str:
        if fails:
            raise ToolError("no")
        return "fine"

    async with BareEnd(server) as end:
        assert await end.text("work", fails=False) == "fine"
        result = await end.call_tool("work", fails=True)
        assert result["isError"]
        assert result["content"][0]["text"] == "no"
    assert db.log == ["committed", "closed", "rolled back: no", "closed"]


async def test_a_dependency_may_translate_an_error_but_never_hide_it(server: Server[Any]) -> None:
    async def translating() -> AsyncIterator[None]:
        try:
            yield
        except ZeroDivisionError as exc:
            raise ToolError("that can't be divided") from exc

    async def hiding() -> AsyncIterator[None]:
        try:
            yield
        except ToolError:
            return

    @server.tool
    async def divide(
        a: int, b: int, one: Annotated[None, Depends(translating)], two: Annotated[None, Depends(hiding)]
    ) -> int:
        if a == 0:
            raise ToolError("zero")
        return a // b

    async with BareEnd(server) as end:
        assert await end.text("divide", a=1, b=0) == "that can't be divided"
        assert (await end.call_tool("divide", a=0, b=1))["isError"]
        assert await end.text("divide", a=4, b=2) == "2"


async def test_a_clean_up_that_fails_fails_the_call_and_the_others_still_run(
    server: Server[Any], db: Db, caplog: pytest.LogCaptureFixture
) -> None:
    def first() -> Iterator[None]:
        try:
            yield
        finally:
            db.log.append("first closed")

    def second() -> Iterator[None]:
        yield
        raise OSError("the commit failed")

    @server.tool
    async def work(one: Annotated[None, Depends(first)], two: Annotated[None, Depends(second)]) -> str:
        return "fine"

    async with BareEnd(server) as end:
        result = await end.call_tool("work")
        assert result["isError"]
        assert "the commit failed" not in str(result)
    assert db.log == ["first closed"]
    assert "the commit failed" in caplog.text


async def test_what_was_opened_is_closed_when_a_later_dependency_fails(server: Server[Any], db: Db) -> None:
    def first() -> Iterator[None]:
        try:
            yield
        finally:
            db.log.append("first closed")

    def second() -> None:
        raise ToolError("no second")

    @server.tool
    async def work(one: Annotated[None, Depends(first)], two: Annotated[None, Depends(second)]) -> str:
        return "never"

    async with BareEnd(server) as end:
        assert await end.text("work") == "no second"
    assert db.log == ["first closed"]


async def test_a_cancelled_call_cleans_up(server: Server[Any], db: Db) -> None:
    """CANC-06."""
    started = asyncio.Event()

    async def session() -> AsyncIterator[None]:
        try:
            yield
        finally:
            await asyncio.sleep(0)
            db.log.append("closed")

    @server.tool
    async def work(one: Annotated[None, Depends(session)]) -> str:
        started.set()
        await asyncio.sleep(60)
        return "never"

    async with BareEnd(server) as end:
        call: Any = end.begin("tools/call", {"name": "work", "arguments": {}})
        task = asyncio.create_task(end.session.answer(call))
        await started.wait()
        end.session.cancel(call, "the test wants it")
        assert await task is None
    assert db.log == ["closed"]


async def test_clean_up_that_hangs_is_abandoned(db: Db, caplog: pytest.LogCaptureFixture) -> None:
    server: Server[Any] = Server("hanging", limits=Limits(teardown=0.05))

    async def session() -> AsyncIterator[None]:
        yield
        await asyncio.sleep(60)

    @server.tool
    async def work(one: Annotated[None, Depends(session)]) -> str:
        return "fine"

    async with BareEnd(server) as end:
        assert await end.text("work") == "fine"
    assert "tools/call: clean-up of dependencies took longer than 0.05 seconds and is abandoned" in caplog.text


async def test_a_generator_yields_exactly_once(server: Server[Any], caplog: pytest.LogCaptureFixture) -> None:
    def never() -> Iterator[int]:
        yield from ()

    async def twice() -> AsyncIterator[int]:
        yield 1
        yield 2

    @server.tool("never")
    async def one(value: Annotated[int, Depends(never)]) -> str:
        return "x"

    @server.tool("twice")
    async def two(value: Annotated[int, Depends(twice)]) -> str:
        return "x"

    async with BareEnd(server) as end:
        assert (await end.call_tool("never"))["isError"]
        assert (await end.call_tool("twice"))["isError"]
    assert "never() didn't yield: it must, once" in caplog.text
    assert "twice() yields more than once: it must once" in caplog.text


# ---------------------------------------------------------------- questions


@dataclass
class Day:
    day: int
    month: Literal["May", "June"] = "May"


def answering(*contents: dict[str, Any] | str) -> Any:
    """What the user does, question by question: fills in a form, or an action."""
    left = list(contents)

    def answer(method: str, params: Any) -> Any:
        found = left.pop(0)
        return {"action": found} if isinstance(found, str) else {"action": "accept", "content": found}

    return answer


async def asked(end: BareEnd, name: str, answer: Any, **arguments: Any) -> tuple[dict[str, Any], list[list[Any]]]:
    """The result of a tool that asks, and the params of the questions, round by round."""
    params: dict[str, Any] = {"name": name, "arguments": arguments}
    if end.era == "2025":
        result = await end.ask("tools/call", params)
        questions = [one["params"] for one in end.heard if one.get("method") == "elicitation/create"]
        return result, [questions] if questions else []
    rounds: list[list[Any]] = []
    while True:
        result = await end.ask("tools/call", params)
        if result["resultType"] == "complete":
            return result, rounds
        requests = result["inputRequests"]
        rounds.append([request["params"] for request in requests.values()])
        params["inputResponses"] = {key: answer(one["method"], one["params"]) for key, one in requests.items()}
        params["requestState"] = result["requestState"]


@both_eras
async def test_questions_are_asked_before_the_body_runs_all_in_one_round(server: Server[Any], era: Era) -> None:
    """MRTR-04, ELIC-04."""
    runs: list[str] = []

    def note(day: int) -> None:
        runs.append("dependency")

    @server.tool
    async def book(
        city: str,
        day: Annotated[Day, Ask("Which day in {city}?")],
        seat: Annotated[
            Literal["window", "aisle"], Titled(window="By the window", aisle="At the aisle"), Ask("Which seat?")
        ],
        ctx: Context[Any],
    ) -> str:
        runs.append("body")
        return f"{city} {day.day} {day.month} {seat}"

    answer = answering({"day": 7}, {"value": "aisle"})
    async with BareEnd(server, era, capabilities=FORMS, answer=answer) as end:
        result, rounds = await asked(end, "book", answer, city="Oslo")
        assert result["content"][0]["text"] == "Oslo 7 May aisle"
        assert len(rounds) == 1
        assert [question["message"] for question in rounds[0]] == ["Which day in Oslo?", "Which seat?"]
        assert list(rounds[0][0]["requestedSchema"]["properties"]) == ["day", "month"]
        assert rounds[0][1]["requestedSchema"]["properties"]["value"]["oneOf"][0]["title"] == "By the window"
        (tool,) = (await end.ask("tools/list"))["tools"]
        assert list(tool["inputSchema"]["properties"]) == ["city"]
    assert runs == ["body"]


@both_eras
async def test_questions_come_before_dependencies_also_those_of_a_dependency(server: Server[Any], era: Era) -> None:
    runs: list[str] = []

    async def account(name: Annotated[str, Ask("Whose account?")]) -> str:
        runs.append(name)
        return f"account of {name}"

    @server.tool
    async def show(account: Annotated[str, Depends(account)], sure: Annotated[bool, Ask("Sure?")]) -> str:
        return f"{account}: {sure}"

    answer = answering({"value": "Ada"}, {"value": True})
    async with BareEnd(server, era, capabilities=FORMS, answer=answer) as end:
        result, rounds = await asked(end, "show", answer)
        assert result["content"][0]["text"] == "account of Ada: True"
        assert len(rounds) == 1
    assert runs == ["Ada"]


@both_eras
async def test_who_declines_ends_the_call_unless_none_is_fine(server: Server[Any], era: Era) -> None:
    """ELIC-17."""

    @server.tool
    async def must(day: Annotated[int, Ask("Which day?")], month: Annotated[str, Ask("Which month?")]) -> str:
        return "never"

    @server.tool
    async def may(day: Annotated[int | None, Ask("Which day?")]) -> str:
        return f"day {day}"

    for action in ("decline", "cancel"):
        answer = answering({"value": 1}, action)
        async with BareEnd(server, era, capabilities=FORMS, answer=answer) as end:
            result, _ = await asked(end, "must", answer)
            assert result["isError"]
            said = "declined to answer" if action == "decline" else "closed without answering"
            assert result["content"][0]["text"] == f"The user {said}: Which month?"
        answer = answering(action)
        async with BareEnd(server, era, capabilities=FORMS, answer=answer) as end:
            result, _ = await asked(end, "may", answer)
            assert result["content"][0]["text"] == "day None"


@both_eras
async def test_a_client_that_cannot_ask_gets_an_error_unless_none_is_fine(server: Server[Any], era: Era) -> None:
    """REQM-06: if the work can go on, just don't ask."""

    @server.tool
    async def must(day: Annotated[int, Ask("Which day?")]) -> str:
        return "never"

    @server.tool
    async def may(day: Annotated[int | None, Ask("Which day?")]) -> str:
        return f"day {day}"

    async with BareEnd(server, era) as end:
        if era == "2026":
            error = await end.refusal("tools/call", {"name": "must", "arguments": {}})
            assert error["code"] == -32021
            assert error["data"] == {"requiredCapabilities": {"elicitation": {"form": {}}}}
        else:
            result = await end.call_tool("must")
            assert result["isError"] is True
            assert "Missing required client capability: elicitation" in result["content"][0]["text"]
        assert await end.text("may") == "day None"


async def test_questions_of_prompts_and_resources(server: Server[Any]) -> None:
    """MRTR-01."""

    @server.prompt
    async def brief(name: Annotated[str, Ask("Who are you?")]) -> str:
        return f"Dear {name}"

    @server.resource("me://")
    async def me(name: Annotated[str, Ask("Who are you?")]) -> str:
        return name

    answer = answering({"value": "Ada"}, {"value": "Bo"})
    async with BareEnd(server, "2025", capabilities=FORMS, answer=answer) as end:
        got = await end.ask("prompts/get", {"name": "brief"})
        assert got["messages"][0]["content"]["text"] == "Dear Ada"
        read = await end.ask("resources/read", {"uri": "me://"})
        assert read["contents"][0]["text"] == "Bo"
    async with BareEnd(server, capabilities=FORMS) as end:
        assert (await end.ask("prompts/get", {"name": "brief"}))["resultType"] == "input_required"
        assert (await end.ask("resources/read", {"uri": "me://"}))["resultType"] == "input_required"


@both_eras
async def test_a_prompt_whose_user_declines_says_so(server: Server[Any], era: Era) -> None:
    @server.prompt
    async def brief(name: Annotated[str, Ask("Who are you?")]) -> str:
        return name

    async with BareEnd(server, era, capabilities=FORMS, answer=answering("decline")) as end:
        params: dict[str, Any] = {"name": "brief"}
        if era == "2026":
            first = await end.ask("prompts/get", params)
            params["requestState"] = first["requestState"]
            params["inputResponses"] = {key: {"action": "decline"} for key in first["inputRequests"]}
        error = await end.refusal("prompts/get", params)
        assert error["code"] == -32603
        assert error["message"] == "The user declined to answer: Who are you?"


# ---------------------------------------------------------------- mistakes


def mistake(function: Any) -> str:
    with pytest.raises(DefinitionError) as caught:
        Server("mistaken").tool(function)
    place, _, text = str(caught.value).partition(": ")
    assert place.startswith(f"{function.__name__}() at {__file__}:")
    return text


def circle_one(two: Annotated[int, Depends(lambda: circle_two)]) -> int:
    return two


def circle_two(one: Annotated[int, Depends(circle_one)]) -> int:
    return one


def circle_self(number: Annotated[int, Depends(lambda: 1)]) -> int:
    return number


circle_self.__annotations__["number"] = Annotated[int, Depends(circle_self)]


def test_a_circle_of_dependencies_is_refused() -> None:
    async def tool(number: Annotated[int, Depends(circle_self)]) -> int:
        return number

    text = "parameter `number`: dependencies need each other in a circle: circle_self() → circle_self()"
    assert mistake(tool) == text


def test_a_dependency_that_wants_what_nobody_has_is_refused() -> None:
    def get(name: str) -> str:
        return name

    async def tool(value: Annotated[str, Depends(get)]) -> str:
        return value

    assert mistake(tool).startswith("parameter `value`: the dependency ")
    assert mistake(tool).endswith(
        "get() takes `name`: annotate it with Context, Depends or Ask, name it like an argument, or give it a default"
    )


def test_depends_takes_the_function_not_its_result() -> None:
    wrong: Any = 1
    with pytest.raises(DefinitionError, match=r"Depends\(1\): give the function itself, without calling it"):
        Depends(wrong)


def test_the_message_of_a_question_names_only_arguments() -> None:
    async def tool(city: str, day: Annotated[int, Ask("Which day in {town}?")]) -> str:
        return ""

    assert mistake(tool) == (
        "parameter `day`: the message of Ask holds {town}, which is not an argument of this function; there are: {city}"
    )


def test_a_form_that_no_client_can_show_is_refused_at_once() -> None:
    async def tool(day: Annotated[list[Day], Ask("Which days?")]) -> str:
        return ""

    assert "parameter `day`: " in mistake(tool)


def test_depends_as_a_default_is_refused_with_the_way_to_write_it() -> None:
    def get() -> int:
        return 1

    wrong: Any = Depends(get)

    async def tool(value: int = wrong) -> int:
        return value

    assert mistake(tool) == (
        "parameter `value`: `Depends(get)` can't be a default; write `value: Annotated[int, Depends(get)]`"
    )


def test_declined_is_an_error_that_tools_may_catch() -> None:
    assert issubclass(Declined, ToolError)
