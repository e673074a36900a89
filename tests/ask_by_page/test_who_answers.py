"""Who may answer a page: the principal after a login, never the link alone; how pages and posts of others are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gemel import Client, Context, DefinitionError, Limits, PeerError, Principal, Refusal, Server, StartError
from gemel.ask_by_page import AskByPage, PageLogin
from tests.ask_by_page.places import TOKENS, URL, Place, anonymous, authorized, local, who
from tests.ask_by_page.visitor import Visitor, link_in, name_in
from tests.backends.redis_server import RedisServer, needs_redis
from tests.wire.talk import talking

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])


def asking(**options: Any) -> Server[Any]:
    server: Server[Any] = Server("shop", **options)

    @server.tool
    async def pay(ctx: Context, to: str) -> str:
        """Pay somebody."""
        return f"{await ctx.elicit(f'How much for {to}?', int)} for {to}"

    return server


@both_eras
async def test_somebody_else_sees_nothing_of_a_question_and_answers_nothing(era: str) -> None:
    async with authorized(asking, era) as here:
        link = here.link(await here.call("pay", {"to": "Carl"}))
        page = await here.browser.open(link)
        here.browser.web.headers["x-user"] = "bob"
        seen = await here.browser.open(link)
        assert seen.status == 403
        assert "Carl" not in seen.html
        assert (await here.browser.send(page, {"Your answer": "1000"})).status == 403
        del here.browser.web.headers["x-user"]
        assert (await here.browser.open(link)).status == 401
        assert (await here.browser.send(page, {"Your answer": "1000"})).status == 401
        here.browser.web.headers["x-user"] = "ann"
        assert (await here.browser.send(page, {"Your answer": "5"})).status == 200
        assert (await here.call("pay", {"to": "Carl"})).text == "5 for Carl"


@both_eras
async def test_callers_do_not_go_on_with_what_others_have_answered(era: Any) -> None:
    server = asking(ask=AskByPage(URL, who=who), auth=TOKENS)
    app = server.http_app(allowed_hosts=["shop.example"])
    async with Visitor(app, **{"x-user": "ann"}) as browser:
        async with Client(app, era=era, headers={"Authorization": "Bearer ann-token"}) as ann:
            asked = await ann.call_tool("pay", {"to": "Carl"}, raise_on_error=False)
            await browser.answer(link_in(asked.text), {"Your answer": "5"})
        async with Client(app, era=era, headers={"Authorization": "Bearer bob-token"}) as bob:
            assert "How much" in (await bob.call_tool("pay", {"to": "Carl"}, raise_on_error=False)).text
        async with Client(app, era=era, headers={"Authorization": "Bearer ann-token"}) as ann:
            assert (await ann.call_tool("pay", {"to": "Carl"})).text == "5 for Carl"


@both_eras
async def test_anonymous_callers_never_share_an_answer(era: Any) -> None:
    """Only the call that brings back the name goes on; a name that nobody was given finds nothing."""
    server = asking(ask=AskByPage(URL, anybody_with_the_link=True))
    app = server.http_app(allowed_hosts=["shop.example"])
    async with Client(app, era=era) as one, Client(app, era=era) as other, Visitor(app) as browser:
        asked = (await one.call_tool("pay", {"to": "Carl"}, raise_on_error=False)).text
        await browser.answer(link_in(asked), {"Your answer": "5"})
        for arguments in ({"to": "Carl"}, {"to": "Carl", "_call": "x"}, {"to": "Carl", "_call": ""}):
            again = (await other.call_tool("pay", arguments, raise_on_error=False)).text
            assert "How much" in again
            assert name_in(again) not in (name_in(asked), "x", "")
        named = {"to": "Carl", "_call": name_in(asked)}
        assert (await one.call_tool("pay", named)).text == "5 for Carl"


@both_eras
async def test_principals_in_one_process_never_share_an_answer(era: Any) -> None:
    opened: list[str] = []

    def open_url(url: str) -> bool:
        opened.append(url)
        return True

    server = asking(ask=AskByPage(open_url=open_url))
    async with (
        Client(server, era=era, principal="ann") as ann,
        Client(server, era=era, principal="bob") as bob,
        Visitor() as browser,
    ):
        await ann.call_tool("pay", {"to": "Carl"}, raise_on_error=False)
        await browser.answer(opened[-1], {"Your answer": "5"})
        assert (await bob.call_tool("pay", {"to": "Carl"}, raise_on_error=False)).is_error
        assert (await ann.call_tool("pay", {"to": "Carl"})).text == "5 for Carl"
    assert len(set(opened)) == 2


async def test_an_answer_on_a_page_is_used_by_one_of_several_retries_with_the_same_state(tmp_path: Path) -> None:
    paid: list[str] = []
    ask = AskByPage(open_url=lambda url: True, wait=0)
    server: Server[Any] = Server("shop", ask=ask, backend=f"sqlite:///{tmp_path}/shop.db")

    @server.tool
    async def pay(ctx: Context, to: str) -> str:
        """Pay somebody."""
        paid.append(f"{await ctx.elicit(f'How much for {to}?', int)} for {to}")
        return paid[-1]

    async with talking(server, "2026", elicitation={"url": {}}) as talk, Visitor() as browser:
        call = {"name": "pay", "arguments": {"to": "Carl"}}
        asked = await talk.result("tools/call", **call)
        [(key, request)] = asked["inputRequests"].items()
        await browser.answer(request["params"]["url"], {"Your answer": "5"})
        retry = {**call, "requestState": asked["requestState"], "inputResponses": {key: {"action": "accept"}}}
        ids = [await talk.begin("tools/call", **retry) for _ in range(3)]
        results = [(await talk.answer_to(one))["result"] for one in ids]
    assert paid == ["5 for Carl"]
    assert sorted(result["resultType"] for result in results) == ["complete", "input_required", "input_required"]


async def test_the_same_call_at_the_same_time_goes_on_once() -> None:
    """Of two identical calls of one caller the answer continues one; the other is asked anew."""
    async with authorized(asking, "2026") as here:
        first, second = await asyncio.gather(*(here.call("pay", {"to": "Carl"}) for _ in range(2)))
        assert here.link(first) == here.link(second)
        await here.browser.answer(here.link(first), {"Your answer": "5"})
        done = await asyncio.gather(*(here.call("pay", {"to": "Carl"}) for _ in range(2)))
        assert sorted(one.is_error for one in done) == [False, True]


async def test_a_link_is_sent_to_no_client_to_be_opened_if_anybody_may_answer() -> None:
    server = asking(ask=AskByPage(URL, anybody_with_the_link=True))
    app = server.http_app(allowed_hosts=["shop.example"])
    opened: list[str] = []

    def open_page(page: Any) -> bool:
        opened.append(page.url)
        return True

    for era in ("2025", "2026"):
        async with Client(app, era=era, on_elicit_url=open_page) as client:
            result = await client.call_tool("pay", {"to": "Carl"}, raise_on_error=False)
            assert "/ask/" in result.text
    assert opened == []


@both_eras
async def test_the_url_that_a_client_opens_admits_nobody_by_itself(era: Any) -> None:
    """ELIC-21, ELIC-22: it says nothing about the user, and only the principal of the call sees and answers the question."""
    server = asking(ask=AskByPage(URL, who=who), auth=TOKENS)
    app = server.http_app(allowed_hosts=["shop.example"])
    urls: list[str] = []
    async with Visitor(app) as browser:

        async def open_page(page: Any) -> bool:
            urls.append(page.url)
            assert (await browser.open(page.url)).status == 401
            browser.web.headers["x-user"] = "bob"
            assert (await browser.open(page.url)).status == 403
            browser.web.headers["x-user"] = "ann"
            assert (await browser.answer(page.url, {"Your answer": "5"})).status == 200
            return True

        headers = {"Authorization": "Bearer ann-token"}
        async with Client(app, era=era, headers=headers, on_elicit_url=open_page) as client:
            assert (await client.call_tool("pay", {"to": "Carl"})).text == "5 for Carl"
    assert [url.rpartition("/")[0] for url in urls] == [f"{URL}/mcp/ask"]


async def post(here: Place, link: str, **changes: Any) -> int:
    page = await here.browser.open(link)
    secret = page.control("")
    headers = {"origin": URL, "content-type": "application/x-www-form-urlencoded", **changes.pop("headers", {})}
    fields = {"f0": "5", "action": "accept", secret.name: secret.value, **changes}
    given = {name: value for name, value in fields.items() if value is not None}
    reply = await here.browser.web.post(
        link, content=str(httpx.QueryParams(given)), headers={name: value for name, value in headers.items() if value}
    )
    return reply.status_code


@both_eras
async def test_posts_of_other_pages_are_refused(era: str) -> None:
    async with authorized(asking, era) as here:
        link = here.link(await here.call("pay", {"to": "Carl"}))
        assert await post(here, link, headers={"origin": "https://evil.example"}) == 403
        assert await post(here, link, headers={"origin": "null"}) == 403
        assert await post(here, link, headers={"sec-fetch-site": "cross-site"}) == 403
        assert await post(here, link, headers={"content-type": "text/plain"}) == 403
        assert await post(here, link, secret="guessed") == 403
        assert await post(here, link, secret=None) == 403
        assert await post(here, link, action=None) == 400
        assert await post(here, link, action="other") == 400
        assert (await here.browser.web.get(f"{link}?f0=5&action=accept")).status_code == 200
        assert (await here.browser.web.put(link)).status_code == 405
        assert "How much" in (await here.call("pay", {"to": "Carl"})).text
        assert await post(here, link) == 200


@both_eras
async def test_a_name_of_another_site_that_leads_here_is_refused(era: str) -> None:
    async with authorized(asking, era) as here:
        link = here.link(await here.call("pay", {"to": "Carl"}))
        assert (await here.browser.web.get(link, headers={"host": "evil.example"})).status_code == 403
    async with local(asking, era) as there:
        link = there.link(await there.call("pay", {"to": "Carl"}))
        assert (await there.browser.web.get(link, headers={"host": "evil.example"})).status_code == 421


@both_eras
async def test_a_page_of_the_machine_belongs_to_the_browser_that_opened_it_first(era: str) -> None:
    """Other users of the machine can see the address in the list of processes."""
    async with local(asking, era) as here, Visitor() as stranger:
        link = here.link(await here.call("pay", {"to": "Carl"}))
        page = await here.browser.open(link)
        assert (await stranger.open(link)).status == 403
        assert (await stranger.send(page, {"Your answer": "1000"})).status == 403
        assert (await here.browser.open(link)).status == 200
        assert (await here.browser.send(page, {"Your answer": "5"})).status == 200


@both_eras
@pytest.mark.parametrize(
    "before", ["", "/x", "/x/ask", "/ask/x", "/%0d%0aset-cookie:%20a=b%0d%0a", "/x;%20domain=example.org"]
)
async def test_a_page_of_the_machine_has_one_address(before: str, era: str) -> None:
    async with local(asking, era) as here:
        link = here.link(await here.call("pay", {"to": "Carl"}))
        start, _, token = link.rpartition("/ask/")
        other = await here.browser.web.get(f"{start}{before}/{token}")
        assert other.status_code == 404
        assert "set-cookie" not in other.headers
        assert (await here.browser.answer(link, {"Your answer": "5"})).status == 200


@pytest.mark.parametrize("url", ["https://Shop.Example", "https://shop.example:443", "https://shop.example/"])
async def test_the_address_may_be_written_as_browsers_do_not_write_it(url: str) -> None:
    server = asking(ask=AskByPage(url, who=who), auth=TOKENS)
    app = server.http_app(allowed_hosts=["shop.example"])
    async with (
        Client(app, headers={"Authorization": "Bearer ann-token"}) as client,
        Visitor(app, **{"x-user": "ann"}) as browser,
    ):
        here = Place(client, browser, [])
        link = here.link(await here.call("pay", {"to": "Carl"}))
        assert await post(here, link, headers={"origin": "https://evil.example"}) == 403
        assert await post(here, link, headers={"origin": "https://shop.example:8443"}) == 403
        assert await post(here, link, headers={"origin": "https://shop.example"}) == 200


@both_eras
async def test_pages_have_no_scripts_and_can_not_be_framed(era: str) -> None:
    async with authorized(asking, era) as here:
        link = here.link(await here.call("pay", {"to": "Carl"}))
        page = await here.browser.open(link)
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert page.headers["x-frame-options"] == "DENY"
        assert page.headers["cache-control"] == "no-store"
        assert page.headers["referrer-policy"] == "same-origin"
        assert "script" not in {tag for tag, _ in page.tags}
        assert len(link.rpartition("/")[2]) == 32  # 192 bits
        head = await here.browser.web.head(link)
        assert (head.status_code, head.content) == (200, b"")


@both_eras
async def test_answers_and_open_questions_are_bounded(era: str) -> None:
    async with authorized(asking, era, most=3, answer_bytes=2048) as here:
        links = [here.link(await here.call("pay", {"to": str(number)})) for number in range(3)]
        with pytest.raises(PeerError, match="wait for an answer already"):
            await here.call("pay", {"to": "one more"})
        assert (await here.browser.answer(links[0], {"Your answer": "5" * 3000})).status == 413
        await here.browser.answer(links[0], {"Your answer": "5"})
        assert (await here.call("pay", {"to": "0"})).text == "5 for 0"
        assert "How much" in (await here.call("pay", {"to": "one more"})).text
    async with anonymous(asking, era, most_in_all=1) as here:
        await here.call("pay", {"to": "a"})
        here.browser.web.headers.clear()
        with pytest.raises(PeerError, match="Too many questions"):
            await here.client.call_tool("pay", {"to": "b"})


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[str]:
    server = RedisServer(tmp_path / "redis")
    server.start()
    yield server.url
    server.kill()


async def goes_on_elsewhere(store: str, era: Any) -> None:
    """The process that asked, the one that serves the page, and the one that goes on may be three."""
    headers = {"Authorization": "Bearer ann-token"}

    def start() -> Any:
        server = asking(ask=AskByPage(URL, who=who), auth=TOKENS, backend=store)
        return server.http_app(allowed_hosts=["shop.example"])

    async with Client(start(), era=era, headers=headers) as client:
        asked = await client.call_tool("pay", {"to": "Carl"}, raise_on_error=False)
    app = start()
    async with Client(app, era=era, headers=headers), Visitor(app, **{"x-user": "ann"}) as browser:
        await browser.answer(link_in(asked.text), {"Your answer": "5"})
    async with Client(start(), era=era, headers=headers) as client:
        assert (await client.call_tool("pay", {"to": "Carl"})).text == "5 for Carl"


@both_eras
async def test_another_process_goes_on(era: Any, tmp_path: Path) -> None:
    await goes_on_elsewhere(f"sqlite:///{tmp_path}/state.db", era)


@both_eras
@needs_redis
async def test_another_process_goes_on_with_redis(era: Any, redis: str) -> None:
    await goes_on_elsewhere(redis, era)


async def test_who_visits_may_be_told_in_each_form() -> None:
    async def later(scope: Any, headers: Any) -> Any:
        user = headers.get("x-user")
        return Refusal(403, "Ask the desk for an account") if user == "nobody" else Principal(user) if user else None

    server = asking(ask=AskByPage(URL, who=later), auth=TOKENS)
    app = server.http_app(allowed_hosts=["shop.example"])
    async with (
        Client(app, headers={"Authorization": "Bearer ann-token"}) as client,
        Visitor(app, **{"x-user": "ann"}) as browser,
    ):
        link = link_in((await client.call_tool("pay", {"to": "Carl"}, raise_on_error=False)).text)
        assert (await browser.open(link)).status == 200
        browser.web.headers["x-user"] = "nobody"
        refused = await browser.open(link)
        assert (refused.status, "Ask the desk" in refused.text) == (403, True)


# -------------------------------------------------------------------- definitions


@pytest.mark.parametrize(
    ("options", "server", "text"),
    [
        ({"url": URL}, {}, "anybody_with_the_link"),
        ({"url": URL}, {"auth": TOKENS}, "nothing tells who visits"),
        ({"url": URL, "who": who}, {}, "not authenticated"),
        ({"who": who}, {"auth": TOKENS}, "need an address"),
        ({"url": URL, "login": PageLogin("pages")}, {"auth": TOKENS}, "names the authorization server"),
    ],
)
def test_a_server_that_can_not_tell_who_answers_does_not_start(options: Any, server: Any, text: str) -> None:
    with pytest.raises(DefinitionError, match=text):
        asking(ask=AskByPage(**options), **server).http_app()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"url": "http://shop.example"}, "needs https"),
        ({"url": "shop.example"}, "public address"),
        ({"url": "https://m\u00fcnchen.example"}, "in ASCII"),
        ({"url": f"{URL}?a=b"}, "public address"),
        ({"url": URL, "who": who, "anybody_with_the_link": True}, "exclude each other"),
        ({"url": URL, "ttl": 0}, "ttl="),
    ],
)
def test_options_that_can_not_work_are_refused(options: Any, text: str) -> None:
    with pytest.raises(DefinitionError, match=text):
        AskByPage(**options)


def test_an_object_belongs_to_one_server_and_is_no_class() -> None:
    ask = AskByPage()
    asking(ask=ask)
    with pytest.raises(DefinitionError, match="one server"):
        asking(ask=ask)
    with pytest.raises(DefinitionError, match="AskByPage"):
        asking(ask=AskByPage)
    with pytest.raises(DefinitionError, match="client_id"):
        PageLogin("")


def test_several_workers_need_a_backend_that_they_share() -> None:
    with pytest.raises(StartError, match="open questions"):
        asking(ask=AskByPage(URL, anybody_with_the_link=True)).check_workers()


async def test_a_state_that_is_too_large_is_told() -> None:
    server: Server[Any] = Server("large", ask=AskByPage(open_url=lambda url: True), limits=Limits(step_bytes=1 << 20))

    @server.tool
    async def much(ctx: Context) -> str:
        """Remember too much."""
        for _ in range(3):
            await ctx.step(lambda: "x" * 500_000)
        return await ctx.elicit("And?")

    async with Client(server, era="2026") as client:
        with pytest.raises(PeerError):
            await client.call_tool("much")
