"""Asking by page: in both eras, over HTTP with and without authorization, and at the machine of the user."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta
from starlette.applications import Starlette
from starlette.routing import Mount

from gemel import Client, Context, Declined, Limits, PeerError, Server, ToolError
from gemel.ask_by_page import AskByPage
from gemel.backends import MemoryBackend
from gemel.decisions import approving
from tests.ask_by_page.places import PLACES, TOKENS, URL, anonymous, authorized, local, who
from tests.ask_by_page.visitor import Visitor, link_in

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])
everywhere = pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)


SIZE: Any = Literal["small", "large"]


class Shop:
    """A shop that asks before it sells, and counts what it does."""

    def __init__(self) -> None:
        self.charged: list[str] = []
        self.sold: list[str] = []
        self.runs = 0

    def make(self, **options: Any) -> Server[Any]:
        server: Server[Any] = Server("shop", **options)

        @server.tool
        async def buy(ctx: Context, item: str) -> str:
            """Buy something."""
            self.runs += 1
            size = await ctx.elicit(f"Which size of {item}?", SIZE)
            receipt = await ctx.step(self.charge, item)
            colour = await ctx.elicit("Which colour?", str)
            self.sold.append(item)
            return f"{size} {colour} {item}, {receipt}"

        return server

    def charge(self, item: str) -> str:
        self.charged.append(item)
        return f"receipt {len(self.charged)}"


@both_eras
@everywhere
async def test_a_call_goes_on_when_its_questions_are_answered_on_pages(era: str, place: Any) -> None:
    shop = Shop()
    async with place(shop.make, era) as here:
        first = await here.call("buy", {"item": "shirt"})
        assert first.is_error
        assert "Which size of shirt?" in first.text
        assert "call this tool again" in first.text
        page = await here.browser.open(here.link(first))
        assert "Which size of shirt?" in page.text
        assert '"item": "shirt"' in page.text
        done = await here.browser.send(page, {"Your answer": "large"})
        assert "Thank you" in done.text
        second = await here.call("buy", {"item": "shirt"})
        assert "Which colour?" in second.text
        await here.browser.answer(here.link(second), {"Your answer": "red"})
        assert (await here.call("buy", {"item": "shirt"})).text == "large red shirt, receipt 1"
    assert shop.charged == shop.sold == ["shirt"]


@both_eras
@everywhere
async def test_an_answer_is_used_once(era: str, place: Any) -> None:
    """Whoever calls a third time is asked again."""
    shop = Shop()
    async with place(shop.make, era) as here:
        for answer in ("large", "red"):
            result = await here.call("buy", {"item": "shirt"})
            await here.browser.answer(here.link(result), {"Your answer": answer})
        assert not (await here.call("buy", {"item": "shirt"})).is_error
        again = await here.call("buy", {"item": "shirt"})
        assert "Which size of shirt?" in again.text
    assert shop.sold == ["shirt"]


@both_eras
@everywhere
async def test_a_page_is_answered_once(era: str, place: Any) -> None:
    shop = Shop()
    async with place(shop.make, era) as here:
        link = here.link(await here.call("buy", {"item": "shirt"}))
        page = await here.browser.open(link)
        assert (await here.browser.send(page, {"Your answer": "large"})).status == 200
        late = await here.browser.send(page, {"Your answer": "small"})
        assert late.status == 410
        assert (await here.browser.open(link)).status == 410
        await here.call("buy", {"item": "shirt"})
        assert (await here.browser.open(link)).status == 410


@both_eras
@everywhere
async def test_other_arguments_are_another_call(era: str, place: Any) -> None:
    shop = Shop()
    async with place(shop.make, era) as here:
        await here.browser.answer(here.link(await here.call("buy", {"item": "shirt"})), {"Your answer": "large"})
        assert "Which size of coat?" in (await here.call("buy", {"item": "coat"})).text
    assert shop.charged == []


@both_eras
@everywhere
async def test_a_call_that_is_repeated_too_early_keeps_its_link(era: str, place: Any) -> None:
    shop = Shop()
    async with place(shop.make, era) as here:
        link = here.link(await here.call("buy", {"item": "shirt"}))
        early = await here.call("buy", {"item": "shirt"})
        assert here.link(early) == link
        await here.browser.answer(link, {"Your answer": "small"})
        assert "Which colour?" in (await here.call("buy", {"item": "shirt"})).text


@both_eras
@everywhere
async def test_a_user_who_declines_declines_the_call(era: str, place: Any) -> None:
    shop = Shop()
    async with place(shop.make, era) as here:
        page = await here.browser.answer(here.link(await here.call("buy", {"item": "shirt"})), action="decline")
        assert "declined" in page.text
        result = await here.call("buy", {"item": "shirt"})
    assert result.is_error
    assert "declined" in result.text
    assert shop.sold == []


@both_eras
@everywhere
async def test_a_late_answer_is_refused_and_the_question_asked_again(era: str, place: Any) -> None:
    shop = Shop()
    async with place(shop.make, era, ttl=0.3) as here:
        link = here.link(await here.call("buy", {"item": "shirt"}))
        page = await here.browser.open(link)
        async with asyncio.timeout(10):
            while (await here.browser.open(link)).status != 410:
                pass
        assert (await here.browser.send(page, {"Your answer": "large"})).status == 410
        again = await here.call("buy", {"item": "shirt"})
        assert here.link(again) != link


@both_eras
@everywhere
async def test_what_a_call_asks_at_once_becomes_several_pages(era: str, place: Any) -> None:
    def make(**options: Any) -> Server[Any]:
        server: Server[Any] = Server("trip", **options)

        @server.tool
        async def plan(ctx: Context) -> str:
            """Plan a trip."""
            start, end = await asyncio.gather(ctx.elicit("From where?"), ctx.elicit("To where?"))
            return f"{start} to {end}"

        return server

    async with place(make, era) as here:
        result = await here.call("plan")
        links = [word for word in result.text.split() if "/ask/" in word] or here.opened
        questions = {(await here.browser.open(link)).text: link for link in links}
        for text, link in questions.items():
            await here.browser.answer(link, {"Your answer": "Oslo" if "From" in text else "Rome"})
        assert (await here.call("plan")).text == "Oslo to Rome"


@both_eras
@everywhere
async def test_a_nested_call_and_a_sync_tool_ask_too(era: str, place: Any) -> None:
    def make(**options: Any) -> Server[Any]:
        server: Server[Any] = Server("nested", **options)

        @server.tool
        def inner(ctx: Context) -> str:
            """Ask from a thread."""
            return ctx.sync.elicit("Which one?")

        @server.tool
        async def outer(ctx: Context) -> str:
            """Call the other tool."""
            return f"got {(await ctx.call_tool('inner')).text}"

        return server

    async with place(make, era) as here:
        result = await here.call("outer")
        assert "Which one?" in result.text
        await here.browser.answer(here.link(result), {"Your answer": "this"})
        assert (await here.call("outer")).text == "got this"


@dataclass
class Order:
    amount: Annotated[int, Meta(ge=1)]
    code: Annotated[str, Meta(pattern="^[A-Z]{3}$")]


@both_eras
@everywhere
async def test_an_answer_that_only_the_server_can_refuse_is_asked_for_again(era: str, place: Any) -> None:
    """A pattern is not in the schema of a form; the page comes back with what was written, and why it does not fit."""

    def make(**options: Any) -> Server[Any]:
        server: Server[Any] = Server("orders", **options)

        @server.tool
        async def order(ctx: Context) -> str:
            """Order something."""
            made = await ctx.elicit("What?", Order)
            return f"{made.amount} {made.code}"

        return server

    async with place(make, era) as here:
        first = here.link(await here.call("order"))
        await here.browser.answer(first, {"amount": "3", "code": "abc"})
        second = here.link(await here.call("order"))
        assert second != first
        page = await here.browser.open(second)
        assert page.control("amount").value == "3"
        assert page.control("code").value == "abc"
        assert "code" in page.text
        await here.browser.send(page, {"code": "ABC"})
        assert (await here.call("order")).text == "3 ABC"


@both_eras
async def test_a_client_with_forms_is_asked_as_before(era: Any) -> None:
    shop = Shop()
    server = shop.make(ask=AskByPage(open_url=lambda url: False))
    answers = iter(["small", "blue"])
    async with Client(server, era=era, on_elicit=lambda form: {"value": next(answers)}) as client:
        assert (await client.call_tool("buy", {"item": "cap"})).text == "small blue cap, receipt 1"


async def test_without_ask_the_wire_is_as_before() -> None:
    async with Client(Shop().make(), era="2026") as client:
        with pytest.raises(PeerError, match="-32021"):
            await client.call_tool("buy", {"item": "cap"})
    async with Client(Shop().make(), era="2025") as client:
        with pytest.raises(ToolError, match="elicitation"):
            await client.call_tool("buy", {"item": "cap"})


# -------------------------------------------------------------------- pages that the client opens


@both_eras
@pytest.mark.parametrize("place", [local, authorized])
async def test_a_client_that_opens_pages_is_asked_to(era: Any, place: Any) -> None:
    """The call goes on without being repeated by the model."""
    shop = Shop()
    answers = iter(["large", "green"])
    opened: list[str] = []

    if place is local:
        server, app, user = shop.make(ask=AskByPage()), None, {}
        target: Any = server
    else:
        server = shop.make(ask=AskByPage(URL, who=who), auth=TOKENS)
        target = app = server.http_app(allowed_hosts=["shop.example"])
        user = {"x-user": "ann"}
    async with Visitor(app, **user) as browser:

        async def open_page(page: Any) -> bool:
            opened.append(page.url)
            await browser.answer(page.url, {"Your answer": next(answers)})
            return True

        options: Any = {} if app is None else {"headers": {"Authorization": "Bearer ann-token"}}
        async with Client(target, era=era, on_elicit_url=open_page, **options) as client:
            assert (await client.call_tool("buy", {"item": "hat"})).text == "large green hat, receipt 1"
    assert len(opened) == 2
    assert shop.charged == ["hat"]


@both_eras
async def test_a_call_waits_for_a_user_who_takes_a_while(era: Any) -> None:
    shop = Shop()
    async with Visitor() as browser, asyncio.TaskGroup() as tasks:

        async def open_page(page: Any) -> bool:
            answer = {"Your answer": "small" if "size" in page.message else "black"}

            async def later() -> None:
                form = await browser.open(page.url)
                await asyncio.sleep(0.2)
                await browser.send(form, answer)

            tasks.create_task(later())
            return True

        async with Client(shop.make(ask=AskByPage()), era=era, on_elicit_url=open_page) as client:
            assert (await client.call_tool("buy", {"item": "bag"})).text == "small black bag, receipt 1"


@both_eras
async def test_a_page_that_the_user_does_not_open_is_declined(era: Any) -> None:
    shop = Shop()
    async with Client(shop.make(ask=AskByPage()), era=era, on_elicit_url=lambda page: False) as client:
        with pytest.raises(ToolError, match=r"declined|closed"):
            await client.call_tool("buy", {"item": "bag"})
    assert shop.sold == []


@both_eras
@pytest.mark.parametrize("place", [local, authorized])
async def test_a_user_who_takes_longer_than_a_call_waits_goes_on_later(era: Any, place: Any) -> None:
    """The call ends with a text for the model. Repeated, it asks the client to open the same page."""
    shop, opened, user = Shop(), list[str](), {}
    target: Any = shop.make(ask=AskByPage(wait=0.05))
    options: dict[str, Any] = {}
    if place is authorized:
        ask = AskByPage(URL, who=who, wait=0.05)
        target = shop.make(ask=ask, auth=TOKENS).http_app(allowed_hosts=["shop.example"])
        options, user = {"headers": {"Authorization": "Bearer ann-token"}}, {"x-user": "ann"}
    answers = {"size": "large", "colour": "red"}
    async with Visitor(target if user else None, **user) as browser:

        async def open_page(page: Any) -> bool:
            opened.append(page.url)
            if opened.count(page.url) == 2:  # the user answers at last
                word = next(one for one in answers if one in page.message)
                await browser.answer(page.url, {"Your answer": answers[word]})
            return True

        async with Client(target, era=era, on_elicit_url=open_page, **options) as client:
            result = await client.call_tool("buy", {"item": "hat"}, raise_on_error=False)
            while result.is_error:
                assert "call this tool again" in result.text
                result = await client.call_tool("buy", {"item": "hat"}, raise_on_error=False)
    assert result.text == "large red hat, receipt 1"
    assert len(opened) == 4
    assert len(set(opened)) == 2
    assert shop.charged == ["hat"]


async def test_prompts_are_asked_for_where_the_client_opens_pages() -> None:
    server: Server[Any] = Server("letters", ask=AskByPage())

    @server.prompt
    async def letter(ctx: Context) -> str:
        """Write a letter."""
        return f"Dear {await ctx.elicit('To whom?')}"

    for era in ("2025", "2026"):
        async with Visitor() as browser:

            async def open_page(page: Any, browser: Visitor = browser) -> bool:
                await browser.answer(page.url, {"Your answer": "Ada"})
                return True

            async with Client(server, era=era, on_elicit_url=open_page) as client:
                result = await client.get_prompt("letter")
                assert "Dear Ada" in str(result.messages)
            async with Client(server, era=era) as client:
                with pytest.raises(PeerError, match="elicitation"):
                    await client.get_prompt("letter")


# -------------------------------------------------------------------- policies


def guarded(**options: Any) -> Server[Any]:
    """A server whose middleware asks before any call, as a policy does."""

    async def policy(ctx: Context, call_next: Any) -> Any:
        if ctx.method != "tools/call":
            return await call_next(ctx)
        token = approving.set(True)
        try:
            allowed = await ctx.elicit("May it be deleted?", bool)
        except Declined:
            allowed = False
        finally:
            approving.reset(token)
        if not allowed:
            raise ToolError("not allowed")
        return await call_next(ctx)

    server: Server[Any] = Server("guarded", middleware=[policy], **options)

    @server.tool
    def delete(name: str) -> str:
        """Delete something."""
        return f"{name} is deleted"

    return server


@both_eras
@pytest.mark.parametrize("place", [local, authorized])
async def test_a_policy_asks_the_principal_and_the_user_of_the_machine(era: str, place: Any) -> None:
    async with place(guarded, era) as here:
        result = await here.call("delete", {"name": "a"})
        assert "May it be deleted?" in result.text
        await here.browser.answer(here.link(result))
        assert (await here.call("delete", {"name": "a"})).text == "a is deleted"
        refused = await here.call("delete", {"name": "b"})
        await here.browser.answer(here.link(refused), action="decline")
        assert (await here.call("delete", {"name": "b"})).text == "not allowed"


@both_eras
async def test_a_policy_never_asks_whoever_has_the_link(era: str) -> None:
    async with anonymous(guarded, era) as here:
        if era == "2026":
            with pytest.raises(PeerError, match="-32021"):
                await here.client.call_tool("delete", {"name": "a"})
        else:
            with pytest.raises(ToolError, match="elicitation"):
                await here.client.call_tool("delete", {"name": "a"})


@both_eras
async def test_the_model_is_not_given_the_link_of_an_approval_at_the_machine(era: str) -> None:
    """It could open the page itself: the browser of the user is opened, or nobody is asked."""
    async with local(guarded, era) as here:
        for _ in range(2):
            result = await here.call("delete", {"name": "a"})
            assert "/ask/" not in result.text
        assert len(here.opened) == 1
    server = guarded(ask=AskByPage(open_browser=False))
    async with Client(server, era="2025") as client:
        with pytest.raises(ToolError, match="elicitation"):
            await client.call_tool("delete", {"name": "a"})


@both_eras
async def test_without_a_browser_the_link_of_a_question_is_for_the_user(era: Any) -> None:
    shop = Shop()
    server = shop.make(ask=AskByPage(open_browser=False))
    async with Client(server, era=era) as client, Visitor() as browser:
        result = await client.call_tool("buy", {"item": "cap"}, raise_on_error=False)
        assert (await browser.open(link_in(result.text))).status == 200


PROGRAM = """
from gemel import Context, Server
from gemel.ask_by_page import AskByPage
from gemel.backends import MemoryBackend

server = Server("travel", ask=AskByPage(open_browser=False))


@server.tool
async def book(ctx: Context, city: str) -> str:
    \"\"\"Book a seat.\"\"\"
    return f"{await ctx.elicit(f'Which seat to {city}?')} to {city}"


if __name__ == "__main__":
    server.run()
"""


@both_eras
async def test_a_program_on_stdio_serves_its_pages_itself(era: Any, tmp_path: Path) -> None:
    program = tmp_path / "travel.py"
    program.write_text(PROGRAM)
    async with Client([sys.executable, str(program)], era=era) as client, Visitor() as browser:
        result = await client.call_tool("book", {"city": "Oslo"}, raise_on_error=False)
        await browser.answer(link_in(result.text), {"Your answer": "7A"})
        assert (await client.call_tool("book", {"city": "Oslo"})).text == "7A to Oslo"


@both_eras
async def test_a_server_that_is_mounted_in_an_application_serves_its_pages_below(era: Any) -> None:
    shop = Shop()
    server = shop.make(ask=AskByPage(f"{URL}/shop", who=who), auth=TOKENS)
    mounted = server.http_app(allowed_hosts=["shop.example"])
    app = Starlette(routes=[Mount("/shop", mounted)])
    headers = {"Authorization": "Bearer ann-token"}
    async with (
        Client(app, era=era, headers=headers, url=f"{URL}/shop/mcp") as client,
        Visitor(app, **{"x-user": "ann"}) as browser,
    ):
        result = await client.call_tool("buy", {"item": "cap"}, raise_on_error=False)
        link = link_in(result.text)
        assert link.startswith(f"{URL}/shop/mcp/ask/")
        await browser.answer(link, {"Your answer": "small"})
        assert "Which colour?" in (await client.call_tool("buy", {"item": "cap"}, raise_on_error=False)).text
    await mounted.stop()  # frameworks do not tell mounted applications


class NotingBackend(MemoryBackend):
    """Notes for how long values are kept, by their size."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[tuple[int, float]] = []

    async def set(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
        self.kept.append((len(value), ttl or float("inf")))
        await super().set(key, value, ttl=ttl)


@both_eras
async def test_large_results_of_steps_are_kept_as_long_as_their_call_waits(era: Any) -> None:
    """The answer may come at the last moment, and then there is as long again to repeat the call."""
    backend = NotingBackend()
    ask = AskByPage(open_url=lambda url: True, ttl=5000)
    server: Server[Any] = Server("shop", backend=backend, ask=ask, limits=Limits(step_bytes=100, state_ttl=60))

    @server.tool
    async def read(ctx: Context) -> str:
        await ctx.step(lambda: "x" * 10_000)
        return await ctx.elicit("And now?")

    async with Client(server, era=era) as client:
        await client.call_tool("read", raise_on_error=False)
    large = [ttl for size, ttl in backend.kept if size >= 10_000]
    assert large
    assert min(large) >= 2 * 5000
