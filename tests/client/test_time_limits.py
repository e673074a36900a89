"""What the time limits of a request and of a connection include: everything that is waited for, except for persons."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gemel import (
    CallTimeout,
    Client,
    ClientGroup,
    ClientPool,
    ConnectFailed,
    ConnectionLost,
    Context,
    HttpStatus,
    Limits,
    NotSent,
    Server,
)
from gemel.http1.client.wire import HeaderPairs
from tests.client.puppet import HANG_UP, SILENCE, Puppet, done, legacy, modern, shaken
from tests.client.site import URL, Site
from tests.jumping_clock import in_no_time

LISTED = {"resultType": "complete", "tools": [], "ttlMs": 0, "cacheScope": "private"}

eras = pytest.mark.parametrize("era", ["2025", "2026"])


def now() -> float:
    return asyncio.get_running_loop().time()


class Stopwatch:
    """The seconds that a block took, by the clock of the loop."""

    def __enter__(self) -> Stopwatch:
        self._start = now()
        return self

    def __exit__(self, *failed: object) -> None:
        self.seconds = now() - self._start


# ---------------------------------------------------------------- connecting


def slow(method: str, seconds: float, then: Any) -> Any:
    """Answer a method after some time."""

    def answer(puppet: Puppet, message: dict[str, Any]) -> Any:
        asyncio.get_running_loop().call_later(
            seconds, lambda: puppet.say({"jsonrpc": "2.0", "id": message["id"], "result": then})
        )
        return SILENCE

    return {method: answer}


@in_no_time
async def test_connecting_covers_all_that_it_does() -> None:
    """The handshake and the level of the log are two requests with one limit."""
    puppet = legacy()
    puppet.by_method |= slow("initialize", 20, shaken()) | slow("logging/setLevel", 20, {})
    with Stopwatch() as watch, pytest.raises(ConnectFailed, match=r"No connection to .* within 30 seconds"):
        await Client(puppet, era="2025", on_log=print, log_level="error").connect()
    assert watch.seconds == pytest.approx(30, abs=1)


@in_no_time
async def test_connecting_covers_its_further_attempts() -> None:
    """The server ends some time after each negotiation."""
    puppet = legacy()

    def end(puppet: Puppet, message: dict[str, Any]) -> Any:
        asyncio.get_running_loop().call_later(20, puppet.hang_up)
        return SILENCE

    puppet.by_method["logging/setLevel"] = end
    limits = Limits(connect=50, retries=9)
    client = Client(puppet, era="2025", on_log=print, log_level="error", limits=limits)
    with Stopwatch() as watch, pytest.raises(ConnectFailed):
        await client.connect()
    assert watch.seconds <= 51
    assert puppet.connections > 1


@in_no_time
@eras
async def test_a_request_includes_connecting_again(era: Any) -> None:
    puppet = modern(tools_list=LISTED) if era == "2026" else legacy(tools_list=LISTED)
    async with Client(puppet, era=era) as client:
        puppet.hang_up()
        await asyncio.sleep(1)
        puppet.by_method["server/discover"] = puppet.by_method["initialize"] = SILENCE
        with Stopwatch() as watch, pytest.raises((NotSent, CallTimeout)):
            await client.request("tools/list", total=3)
        assert watch.seconds == pytest.approx(3, abs=0.5)


@in_no_time
async def test_the_delays_between_attempts_count() -> None:
    puppet = modern(tools_list=HANG_UP)
    async with Client(puppet, limits=Limits(backoff=100.0, retries=5)) as client:
        with Stopwatch() as watch, pytest.raises(ConnectionLost):
            await client.request("tools/list", total=30)
        assert watch.seconds == pytest.approx(30, abs=1)


# ---------------------------------------------------------------- groups and pools


@in_no_time
async def test_a_call_of_a_group_includes_finding_the_server() -> None:
    puppet = modern(tools_list=LISTED)
    async with ClientGroup({"slow": puppet}) as hosts:
        puppet.by_method["tools/list"] = SILENCE
        with Stopwatch() as watch, pytest.raises(NotSent, match="Nothing was sent: the server of 'x' was not found"):
            await hosts.call_tool("x", total=3)
        assert watch.seconds == pytest.approx(3, abs=0.1)


@in_no_time
async def test_a_call_of_a_group_includes_waiting_for_a_turn() -> None:
    server: Server[Any] = Server("stuck")

    @server.tool
    async def hold() -> str:
        await asyncio.sleep(50)
        return ""

    async with ClientGroup({"stuck": server}, concurrency=1) as hosts:
        await hosts.list_tools()
        holding = asyncio.create_task(hosts.call_tool("hold"))
        await asyncio.sleep(1)
        for use in (
            hosts.call_tool("hold", total=3),
            hosts.get_prompt("any", server="stuck", total=3),
            hosts.read_resource("data://x", server="stuck", total=3),
            hosts.request("stuck", "tools/list", total=3),
        ):
            with Stopwatch() as watch, pytest.raises(NotSent, match=r"'stuck' was busy for 3 seconds"):
                await use
            assert watch.seconds == pytest.approx(3, abs=0.1)
        await holding


@in_no_time
async def test_a_call_of_a_pool_includes_waiting_for_a_client() -> None:
    puppet = modern(tools_call=done())
    async with ClientPool(puppet, 1) as pool, pool.client():
        with Stopwatch() as watch, pytest.raises(NotSent, match="there was no free client within 3 seconds"):
            await pool.call_tool("x", total=3)
        assert watch.seconds == pytest.approx(3, abs=0.1)


@in_no_time
async def test_what_a_pool_waited_for_is_not_left_for_the_call() -> None:
    puppet = modern(tools_call=SILENCE)
    async with ClientPool(puppet, 1) as pool:

        async def keep() -> None:
            async with pool.client():
                await asyncio.sleep(2)

        keeping = asyncio.create_task(keep())
        await asyncio.sleep(0.1)
        with Stopwatch() as watch, pytest.raises(CallTimeout):
            await pool.call_tool("x", total=3)
        assert watch.seconds == pytest.approx(3, abs=0.5)
        await keeping


# ---------------------------------------------------------------- progress


@in_no_time
async def test_a_callback_for_progress_that_does_not_end_counts() -> None:
    server: Server[Any] = Server("steps")

    @server.tool
    async def step(ctx: Context[Any]) -> str:
        await ctx.report_progress(1, 2)
        return "done"

    async def stuck(progress: object) -> None:
        await asyncio.Event().wait()

    async with Client(server) as client:
        with Stopwatch() as watch:
            assert (await client.call_tool("step", on_progress=stuck, idle=None, total=3)).text == "done"
        assert watch.seconds <= 3.1


# ---------------------------------------------------------------- persons


class Silent:
    """Credentials that do not tell that they ask a person, who takes some seconds, while `logged_in` is false."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.logged_in = False

    async def headers(self, method: str, url: str, /) -> HeaderPairs:
        if not self.logged_in:
            await asyncio.sleep(self.seconds)
            self.logged_in = True
        return [("Authorization", "Bearer alice")]

    async def refused(self, refusal: HttpStatus, sent: HeaderPairs, /) -> bool:
        return False


class Login(Silent):
    """Credentials that do tell."""

    @property
    def asks_person(self) -> bool:
        return not self.logged_in


@in_no_time
async def test_a_login_does_not_count_for_connecting() -> None:
    login = Login(500)
    with Stopwatch() as watch:
        async with Client(URL, wire=Site(), auth=login) as client:
            assert len(await client.list_tools()) == 2
    assert watch.seconds == pytest.approx(500, abs=1)


@in_no_time
async def test_a_login_does_not_count_for_a_request() -> None:
    site, login = Site(), Login(500)
    login.logged_in = True
    async with Client(URL, wire=site, auth=login) as client:
        login.logged_in = False
        assert (await client.call_tool("any", total=3, idle=3)).content == []
        login.logged_in = False
        assert len(await client.list_tools(total=3)) == 2
        login.logged_in = False
        assert len(await client.list_tools(total=3)) == 2  # from the cache, if it is the same caller


@in_no_time
async def test_only_the_login_does_not_count() -> None:
    site, login = Site(), Login(500)
    login.logged_in = True
    async with Client(URL, wire=site, auth=login) as client:
        login.logged_in = False
        site.answering.clear()
        with Stopwatch() as watch, pytest.raises(CallTimeout):
            await client.call_tool("any", total=3)
        assert watch.seconds == pytest.approx(503, abs=1)


@in_no_time
async def test_credentials_that_do_not_tell_when_they_ask_have_a_limit() -> None:
    client = Client(URL, wire=Site(), auth=Silent(100_000), limits=Limits(connect=10, input_wait=50))
    with Stopwatch() as watch, pytest.raises(ConnectFailed, match="within 10 seconds"):
        await client.connect()
    assert watch.seconds == pytest.approx(60, abs=1)


@in_no_time
async def test_a_function_that_gives_a_token_counts() -> None:
    async def token() -> str:
        await asyncio.sleep(1000)
        return ""

    with Stopwatch() as watch, pytest.raises(ConnectFailed):
        await Client(URL, wire=Site(), auth=token).connect()
    assert watch.seconds == pytest.approx(30, abs=1)


@in_no_time
@eras
async def test_answers_of_a_person_do_not_count(era: Any) -> None:
    server: Server[Any] = Server("asks")

    @server.tool
    async def book(ctx: Context[Any]) -> str:
        return f"row {await ctx.elicit('Which row?', int)}"

    async def think(form: object) -> dict[str, int]:
        await asyncio.sleep(200)
        return {"value": 7}

    async with Client(server, era=era, on_elicit=think) as client:
        with Stopwatch() as watch:
            assert (await client.call_tool("book", total=3, idle=3)).text == "row 7"
        assert watch.seconds == pytest.approx(200, abs=1)
