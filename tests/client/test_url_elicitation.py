"""Pages that a handshake server wants opened before it serves a request: asked for, waited for, and the request made again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gemel import Client, ElicitUrlParams, Outcome, PeerError, UrlElicitationRequired
from tests.client.puppet import Error, Puppet, done, legacy, modern, shaken
from tests.jumping_clock import in_no_time

FINISHED = "notifications/elicitation/complete"


def page(identity: str) -> dict[str, Any]:
    return {"mode": "url", "message": "Sign in", "url": f"https://a.example/{identity}", "elicitationId": identity}


def wanted(*identities: str) -> Error:
    """The error that wants these pages."""
    return Error(-32042, "Sign in first", {"elicitations": [page(one) for one in identities]})


def told(*identities: str) -> list[dict[str, Any]]:
    """What a server says when pages are finished."""
    return [{"method": FINISHED, "params": {"elicitationId": one}} for one in identities]


class Scene:
    """A server that answers in turn, and a user whose browser does something with each page that is opened."""

    def __init__(self, *answers: Any, browse: Callable[[Puppet, str], Any] = lambda puppet, identity: None) -> None:
        left = list(answers)
        self.puppet = legacy(tools_call=self._take)
        self._left = left
        self._browse = browse
        self.pages: list[ElicitUrlParams] = []
        #: When the tool was called, in seconds of the loop.
        self.times: list[float] = []

    def _take(self, puppet: Puppet, message: dict[str, Any]) -> Any:
        self.times.append(asyncio.get_running_loop().time())
        return self._left.pop(0)

    def opened(self, wanted: ElicitUrlParams) -> bool:
        """The user agrees."""
        self.pages.append(wanted)
        self._browse(self.puppet, wanted.elicitation_id or "")
        return True

    @property
    def waited(self) -> list[float]:
        """Seconds between the calls."""
        return [later - earlier for earlier, later in zip(self.times, self.times[1:], strict=False)]


def at_once(puppet: Puppet, identity: str) -> None:
    puppet.say(*told(identity))


@in_no_time
async def test_the_user_opens_the_page_and_the_request_is_made_again_when_it_is_finished() -> None:
    """ELIC-13, ELIC-14, ELIC-19."""
    scene = Scene(wanted("e1"), done(), browse=at_once)
    async with Client(scene.puppet, on_elicit_url=scene.opened) as client:
        assert (await client.call_tool("pay", {"sum": 3})).text == "done"
    assert [(one.message, one.url, one.elicitation_id) for one in scene.pages] == [
        ("Sign in", "https://a.example/e1", "e1")
    ]
    first, second = scene.puppet.asked("tools/call")
    assert {**first, "_meta": None} == {**second, "_meta": None}
    assert scene.waited == [0]


@in_no_time
async def test_all_pages_must_be_finished_and_names_that_nobody_waits_for_mean_nothing() -> None:
    """ELIC-13."""

    def browse(puppet: Puppet, identity: str) -> None:
        if identity == "e2":
            puppet.say(*told("e2", "e9", "e2"), {"method": FINISHED, "params": {"elicitationId": [1]}})
            asyncio.get_running_loop().call_later(3, lambda: puppet.say(*told("e1")))

    scene = Scene(wanted("e1", "e2"), done(), browse=browse)
    async with Client(scene.puppet, on_elicit_url=scene.opened) as client:
        scene.puppet.say(*told("e1", "e2"))  # before anybody asked for them
        await client.call_tool("pay")
    assert scene.waited == [3]


@in_no_time
async def test_a_server_that_does_not_say_when_a_page_is_finished_is_asked_now_and_then() -> None:
    """ELIC-13: it may say so; each error has new names for the same page, and the user isn't asked again."""
    scene = Scene(wanted("e1"), wanted("e2"), wanted("e3"), done())
    async with Client(scene.puppet, on_elicit_url=scene.opened) as client:
        assert (await client.call_tool("pay", total=1.0)).text == "done"  # a user's time doesn't count
    assert scene.waited == [5, 10, 20]
    assert [one.elicitation_id for one in scene.pages] == ["e1"]


@in_no_time
async def test_a_user_who_is_never_done_ends_the_wait() -> None:
    scene = Scene(*[wanted(f"e{number}") for number in range(20)])
    async with Client(scene.puppet, on_elicit_url=scene.opened) as client:
        with pytest.raises(UrlElicitationRequired) as caught:
            await client.call_tool("pay")
        assert sum(scene.waited) == client.limits.input_wait
    assert len(scene.pages) == 1
    assert caught.value.elicitations[0].elicitation_id == f"e{len(scene.times) - 1}"


@in_no_time
async def test_more_pages_after_the_first_are_asked_for_as_often_as_rounds_are() -> None:
    scene = Scene(wanted("e1"), wanted("e2"), done(), browse=at_once)
    async with Client(scene.puppet, on_elicit_url=scene.opened) as client:
        await client.call_tool("pay")
    assert [one.elicitation_id for one in scene.pages] == ["e1", "e2"]

    scene = Scene(*[wanted(f"e{number}") for number in range(100)], browse=at_once)
    async with Client(scene.puppet, on_elicit_url=scene.opened) as client:
        with pytest.raises(UrlElicitationRequired):
            await client.call_tool("pay")
        assert len(scene.pages) == client.limits.rounds


@in_no_time
async def test_a_page_that_is_declined_is_the_callers_error_and_nothing_is_sent_again() -> None:
    """ELIC-19."""
    scene = Scene(wanted("e1"))
    async with Client(scene.puppet, on_elicit_url=lambda page: False) as client:
        with pytest.raises(UrlElicitationRequired, match=r"^Sign in first: open https://a\.example/e1, then"):
            await client.call_tool("pay")
    assert len(scene.times) == 1


@in_no_time
async def test_where_nobody_can_be_asked_the_error_has_the_pages() -> None:
    """ELIC-14, ERR-10."""
    scene = Scene(wanted("e1", "e2"))
    async with Client(scene.puppet) as client:
        with pytest.raises(PeerError) as caught:
            await client.call_tool("pay")
    assert isinstance(caught.value, UrlElicitationRequired)
    assert [one.url for one in caught.value.elicitations] == ["https://a.example/e1", "https://a.example/e2"]
    assert (caught.value.code, caught.value.message, caught.value.outcome) == (
        -32042,
        "Sign in first",
        Outcome.ANSWERED,
    )


@in_no_time
async def test_another_error_after_the_page_is_that_error() -> None:
    scene = Scene(wanted("e1"), Error(-32602, "no such sum"), browse=at_once)
    async with Client(scene.puppet, on_elicit_url=scene.opened) as client:
        with pytest.raises(PeerError, match="no such sum"):
            await client.call_tool("pay")


@in_no_time
async def test_a_caller_who_gives_up_leaves_nothing_behind() -> None:
    scene = Scene(wanted("e1"), done())
    async with Client(scene.puppet, on_elicit_url=scene.opened) as client:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await client.call_tool("pay")
        scene.puppet.say(*told("e1"))
        await client.ping()
    assert len(scene.times) == 1


@in_no_time
async def test_middleware_hears_of_the_page_as_of_any_question() -> None:
    scene = Scene(wanted("e1"), done(), browse=at_once)
    heard: list[tuple[str, bool]] = []

    async def hear(ctx: Any, call_next: Any) -> Any:
        heard.append((ctx.method, ctx.inbound))
        return await call_next(ctx)

    async with Client(scene.puppet, on_elicit_url=scene.opened, middleware=[hear]) as client:
        await client.call_tool("pay")
    assert heard == [("tools/call", False), ("elicitation/create", True), (FINISHED, True)]


@pytest.mark.parametrize(
    "data", [None, {}, {"elicitations": []}, {"elicitations": [{"url": 5}]}, {"elicitations": "https://a.example"}]
)
@in_no_time
async def test_an_error_that_does_not_say_which_pages_is_an_error_like_any_other(data: Any) -> None:
    scene = Scene(Error(-32042, "Sign in first", data))
    async with Client(scene.puppet, on_elicit_url=scene.opened) as client:
        with pytest.raises(PeerError) as caught:
            await client.call_tool("pay")
    assert type(caught.value) is PeerError
    assert scene.pages == []


@in_no_time
async def test_only_one_revision_has_this_error() -> None:
    older = legacy(initialize=shaken("2025-06-18"), tools_call=wanted("e1"))
    for puppet in (older, modern(tools_call=wanted("e1"))):
        async with Client(puppet, on_elicit_url=lambda page: pytest.fail("asked")) as client:
            with pytest.raises(PeerError) as caught:
                await client.call_tool("pay")
        assert type(caught.value) is PeerError
