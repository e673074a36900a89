"""What a client sends next after each answer, and what the negotiation ends in."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from hinge import CallError, CallTimeout, Client, ConnectFailed, ConnectionLost, ErrorObject, Overloaded, PeerError
from hinge.client.negotiation import Initialize, Probe, StepAnswer, combine_eras, may_be_older, negotiate
from hinge.http1.client.wire import HeaderPairs
from tests.client.puppet import HANG_UP, SILENCE, Error, Puppet, legacy, shaken
from tests.client.site import URL, Reply, Site
from tests.jumping_clock import in_no_time
from tests.support import DEFAULT_LIMITS, V2025_03, V2025_11, V2026_07

PROBE, SHAKE = Probe(V2026_07), Initialize(V2025_11)
NO_PROBE_ANSWER = StepAnswer("discover")


def refused(to: Any, code: int, *supported: str, status: int | None = None) -> StepAnswer:
    """An error answer that names revisions."""
    data = {"supported": list(supported)} if supported else None
    return StepAnswer(to, error=PeerError(ErrorObject(code, "no", data), status))


def follow(era: Any, *answers: StepAnswer) -> tuple[list[Any], Exception | None]:
    """The steps that follow from these answers, the one after the last included; or how they ended."""
    steps, taken = negotiate(era), []
    try:
        taken.append(next(steps))
        for answer in answers:
            taken.append(steps.send(answer))
    except CallError as exc:
        return taken, exc
    return taken, None


def ends(era: Any, *answers: StepAnswer) -> str:
    """Why there is no connection; each answer was asked for."""
    taken, why = follow(era, *answers)
    assert isinstance(why, ConnectFailed)
    assert len(taken) == len(answers)
    return str(why)


@pytest.mark.parametrize("status", [None, 200, 400, 404, 499])
def test_an_unknown_error_leads_to_the_handshake_whatever_the_4xx_it_came_with(status: int | None) -> None:
    """VER-09, C-071."""
    assert follow("auto", refused("discover", -32601, status=status)) == ([PROBE, SHAKE], None)


def test_a_server_is_asked_only_once_more_with_a_revision_that_it_named() -> None:
    """VER-08: one that refuses what it named is asked no third time."""
    again = refused("discover", -32022, V2026_07)
    assert "No protocol revision in common: the server offers 2026-07-28" in ends("auto", again, again)
    slow = refused("initialize", -32022, V2026_07)
    assert "No protocol revision in common" in ends("auto", NO_PROBE_ANSWER, slow, again)


def test_revisions_are_named_if_none_is_in_common() -> None:
    """VER-02."""
    assert ends("auto", refused("discover", -32022, "2031-01-01", "2032-01-01")).endswith("2031-01-01, 2032-01-01")
    assert ends("auto", refused("discover", -32022)).endswith("the server offers nothing")


def test_a_refused_handshake_is_tried_again_with_a_handshake_revision_before_all_else() -> None:
    both = refused("initialize", -32602, V2026_07, V2025_03)
    assert follow("auto", NO_PROBE_ANSWER, both) == ([PROBE, SHAKE, Initialize(V2025_03)], None)
    assert "speaks only the stateless era (2026-07-28)" in ends("2025", refused("initialize", -32602, V2026_07))


@pytest.mark.parametrize("error", [Overloaded("busy"), CallError("lost")])
def test_a_late_error_to_the_probe_says_nothing(error: Exception) -> None:
    late = StepAnswer("discover", error=error)
    if isinstance(error, Overloaded):
        late = refused("discover", Overloaded.code)
    assert follow("auto", NO_PROBE_ANSWER, late) == ([PROBE, SHAKE, SHAKE], None)


def test_a_client_of_the_stateless_era_says_why_the_server_is_not_of_it() -> None:
    """C-074."""
    assert ends("2026", NO_PROBE_ANSWER).endswith("it did not answer server/discover")
    assert ends("2026", refused("discover", -32601)).endswith("era: no (-32601)")
    assert "can't be read" in ends("2026", StepAnswer("discover", result=Raw(b"{}")))


def test_two_requirements_of_an_era_agree_or_there_is_none() -> None:
    assert combine_eras("auto", "2026") == combine_eras("2026", "auto") == combine_eras("2026", "2026") == "2026"
    assert combine_eras("2025", "2026") is combine_eras("2026", "2025") is None
    assert combine_eras("auto", "auto") == "auto"


def test_only_a_handshake_that_failed_may_mean_an_older_transport() -> None:
    cause = PeerError(ErrorObject(-32601, "no"))
    for error, older in ((ConnectFailed("no"), True), (CallTimeout("late"), False)):
        error.__cause__ = cause
        assert may_be_older(error) is older


# ------------------------------------------------------------------ against a server


async def test_a_server_that_ends_after_it_answered_the_probe_is_not_started_again() -> None:
    puppet = Puppet({"server/discover": Error(-32601), "initialize": HANG_UP})
    with pytest.raises(CallError):
        async with Client(puppet):
            pass
    assert puppet.connections == 1


@in_no_time
async def test_a_late_answer_to_the_probe_counts_once() -> None:
    """VER-08: it names handshake revisions alone, so the second handshake is waited for."""
    handshakes = [SILENCE, shaken()]

    def shake(puppet: Puppet, message: dict[str, Any]) -> Any:
        if len(handshakes) == 2:
            puppet.answer(puppet.came[0], Error(-32022, data={"supported": [V2025_11]}))
        return handshakes.pop(0)

    puppet = legacy(server_discover=SILENCE, initialize=shake)
    async with Client(puppet) as client:
        assert client.era == "2025"


@in_no_time
async def test_each_probe_without_an_answer_is_given_up() -> None:
    handshakes = [Error(-32022, data={"supported": [V2026_07]}), shaken()]
    puppet = legacy(server_discover=SILENCE, initialize=lambda puppet, message: handshakes.pop(0))
    async with Client(puppet):
        probes = [message["id"] for message in puppet.came if message.get("method") == "server/discover"]
        assert len(probes) == 2
        assert [each["requestId"] for each in puppet.asked("notifications/cancelled")] == probes


@in_no_time
async def test_a_probe_without_an_answer_is_given_up_when_the_handshake_is_done() -> None:
    puppet = legacy(server_discover=SILENCE)
    async with Client(puppet):
        assert puppet.asked("notifications/cancelled")[0]["requestId"] == puppet.came[0]["id"]


@in_no_time
async def test_nothing_goes_on_after_a_negotiation_that_was_cancelled() -> None:
    puppet = Puppet({"server/discover": SILENCE, "initialize": SILENCE})
    connecting = asyncio.create_task(Client(puppet).connect())
    await asyncio.sleep(DEFAULT_LIMITS.probe * 2)
    assert puppet.methods() == ["server/discover", "initialize"]
    connecting.cancel()
    await asyncio.wait([connecting])
    assert connecting.cancelled()
    assert asyncio.all_tasks() == {asyncio.current_task()}


@in_no_time
async def test_nothing_goes_on_after_a_cancelled_negotiation_that_waited_for_one_answer() -> None:
    puppet = Puppet({"server/discover": SILENCE})
    connecting = asyncio.create_task(Client(puppet, era="2026").connect())
    await asyncio.sleep(1)
    connecting.cancel()
    await asyncio.wait([connecting])
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_the_handshake_has_no_empty_meta() -> None:
    puppet = legacy()
    async with Client(puppet, era="2025"):
        pass
    assert puppet.asked("initialize")[0].keys() == {"protocolVersion", "capabilities", "clientInfo"}


class SlowSite(Site):
    """It takes its time for the discovery."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    async def open(self, method: str, url: str, headers: HeaderPairs, body: bytes | None, /) -> Reply:
        if body is not None and msgspec.json.decode(body)["method"] == "server/discover":
            await asyncio.sleep(self.seconds)
        return await super().open(method, url, headers, body)


@in_no_time
async def test_over_http_the_probe_is_waited_for() -> None:
    """VER-10: a status will tell; only a byte stream may remain silent."""
    site = SlowSite(DEFAULT_LIMITS.probe * 3)
    async with Client(URL, wire=site) as client:
        assert client.era == "2026"
    assert site.count("initialize") == 0


class LostSite(Site):
    """Its connections are lost."""

    async def open(self, method: str, url: str, headers: HeaderPairs, body: bytes | None, /) -> Reply:
        await super().open(method, url, headers, body)
        raise ConnectionLost("gone")


async def test_a_connection_that_is_lost_over_http_says_nothing_about_the_era() -> None:
    """C-072: only a program can end at the probe."""
    site = LostSite()
    with pytest.raises(CallError, match="gone"):
        async with Client(URL, wire=site):
            pass
    assert site.requests == [("", "server/discover")]
