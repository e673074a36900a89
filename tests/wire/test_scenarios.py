"""Every scenario over every channel and era that it is meant for: the same words in, the same words out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.wire.routes import ROUTES, Route, program_on_stdio
from tests.wire.scenario import NEWEST, Names, Scenario, Step, read_scenarios
from tests.wire_schema import check_message
from tests.wire_table import REVISIONS

META = "io.modelcontextprotocol/"
LISTS = {
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "server/discover",
}
SERVER = {"name": "wire", "version": "1"}
CLIENT = {"name": "scenario", "version": "1"}


def conversations() -> Iterator[Any]:
    """Every scenario with every channel and revision that it runs on; older revisions are tried in memory only."""
    for scenario in read_scenarios():
        for channel, (_, groups) in ROUTES.items():
            for revision in REVISIONS:
                era = "2026" if revision == NEWEST["2026"] else "2025"
                newest = revision in NEWEST.values()
                if (newest or channel == "memory") and scenario.runs(groups | {era, channel, revision}):
                    if channel == "single" and era == "2026":
                        continue  # the same as "http"
                    where = f"{channel}-{revision[:4] if newest else revision}"
                    yield pytest.param(scenario, channel, era, revision, id=f"{scenario.place}-{where}")


class Conversation:
    """One run of a scenario: what was asked in which revision, and what names stand for."""

    def __init__(self, scenario: Scenario, route: Route, era: str, revision: str) -> None:
        self.scenario = scenario
        self.route = route
        self.era = era
        self.revision = revision
        self.names = Names(revision=revision, newest=REVISIONS[-2], server=SERVER)
        #: What each request asked and in which revision, by its id in its JSON type.
        self.asked: dict[str, tuple[str, str]] = {}
        self.served: dict[str, str] = {}

    async def open(self) -> None:
        """Shake hands where the era wants it."""
        if self.era == "2026" or self.scenario.raw:
            return
        params = {"protocolVersion": self.revision, "capabilities": self.scenario.client, "clientInfo": CLIENT}
        await self._say({"id": "hello", "method": "initialize", "params": params}, "2025")
        answer = json.loads(await self.route.next())
        assert answer["result"]["protocolVersion"] == self.revision
        await self._say({"method": "notifications/initialized"}, "2025")

    async def run(self) -> None:
        """Take the steps; at the end nothing may be left in the inbox."""
        await self.open()
        steps = [step for step in self.scenario.steps if self.revision in step.revisions]
        while steps:
            step = steps.pop(0)
            era = step.era or self.era
            match step.sign:
                case ">":
                    await self._say(self.names.fill(json.loads(step.text)), era)
                case ">>":
                    await self.route.send(step.text.encode().replace(b"\\xff", b"\xff"), era)
                case "x":
                    await self.route.cancel(json.loads(step.text), era)
                case "<":
                    await self._hear(step)
                case "<?":
                    await self._hear_any(step, steps)
        await self.route.finish()
        assert not self.route.inbox, f"nobody expected {self.route.inbox}"

    async def _say(self, message: dict[str, Any], era: str) -> None:
        revision = self.revision if era == self.era else NEWEST[era]
        if era == "2026" and "method" in message:
            params = message.get("params", {})
            if isinstance(params, dict):
                message = {**message, "params": {**params, "_meta": self._meta(params.get("_meta", {}))}}
        if "method" in message and "id" in message:
            self.asked[json.dumps(message["id"])] = message["method"], revision
        await self.route.send(json.dumps({"jsonrpc": "2.0", **message}).encode(), era)

    def _meta(self, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        meta = {
            f"{META}protocolVersion": NEWEST["2026"],
            f"{META}clientCapabilities": self.scenario.client,
            f"{META}clientInfo": CLIENT,
            **given,
        }
        return {key: value for key, value in meta.items() if value is not None}

    # ---------------------------------------------------------------- what comes

    async def _hear(self, step: Step) -> None:
        data = await self._next(step)
        difference = self.names.difference(self._wanted(step), json.loads(data))
        assert difference is None, f"{self._place(step)}: {difference}\n{data.decode()}"
        self._judge(data)

    async def _hear_any(self, first: Step, rest: list[Step]) -> None:
        """The next messages, in any order."""
        group = [first]
        while rest and rest[0].sign == "<?":
            group.append(rest.pop(0))
        while group:
            data = await self._next(group[0])
            fitting = [step for step in group if self.names.fits(self._wanted(step), json.loads(data))]
            assert fitting, f"{self._place(group[0])}: came {data.decode()}"
            group.remove(fitting[0])
            self._judge(data)

    async def _next(self, step: Step) -> bytes:
        try:
            return await self.route.next()
        except TimeoutError:
            pytest.fail(f"{self._place(step)}: nothing came, wanted {step.text}")

    def _place(self, step: Step) -> str:
        return f"{self.scenario.place.partition(':')[0]}:{step.line}"

    def _wanted(self, step: Step) -> Any:
        """What the line says, with what the era adds to results (BASE-15, REQM-07, CACHE-01)."""
        said = json.loads(step.text)
        return [self._dressed(one) for one in said] if isinstance(said, list) else self._dressed(said)

    def _dressed(self, said: dict[str, Any]) -> dict[str, Any]:
        message = {"jsonrpc": "2.0", **said}
        method, revision = self.asked.get(json.dumps(message.get("id")), ("", ""))
        result = message.get("result")
        if revision != NEWEST["2026"] or not isinstance(result, dict):
            return message
        meta = {f"{META}serverInfo": SERVER, **result.get("_meta", {})}
        dressed = {"resultType": "complete", **result, "_meta": meta}
        if method in LISTS and dressed["resultType"] == "complete":
            dressed = {"ttlMs": 0, "cacheScope": "private", **dressed}
        return {**message, "result": dressed}

    def _judge(self, data: bytes) -> None:
        """Hold it against the published schema of its revision."""
        message = json.loads(data)
        if isinstance(message, list):
            return
        if "method" in message:
            tagged = f"{META}subscriptionId" in message.get("params", {}).get("_meta", {})
            check_message("server", data, NEWEST["2026"] if tagged else self.revision)
            return
        method, revision = self.asked.get(json.dumps(message.get("id")), (None, self.revision))
        known = method is not None and not method.startswith("acme/")
        check_message("server", data, revision, answers=method if known and "result" in message else None)


@pytest.fixture(scope="module", autouse=True)
def on_stdio() -> Iterator[None]:
    """One process for all conversations over stdio."""
    with program_on_stdio():
        yield


@pytest.mark.parametrize(("scenario", "channel", "era", "revision"), list(conversations()))
async def test_a_scenario_goes_as_written(scenario: Scenario, channel: str, era: str, revision: str) -> None:
    """BASE-18; each scenario says in its file what it proves besides."""
    opened, _ = ROUTES[channel]
    async with opened(dict(scenario.server)) as route:
        await Conversation(scenario, route, era, revision).run()


def test_every_scenario_runs_somewhere() -> None:
    run = {conversation.values[0].place for conversation in conversations()}
    assert [scenario.place for scenario in read_scenarios() if scenario.place not in run] == []


def test_a_scenario_that_goes_differently_is_found() -> None:
    """The comparison is exact, types included."""
    names = Names(x=1)
    assert names.difference({"a": 1}, {"a": 1.0}) is not None
    assert names.difference({"a": 1}, {"a": True}) is not None
    assert names.difference({"a": 1}, {"a": 1, "b": 2}) is not None
    assert names.difference([1, 2], [2, 1]) is not None
    assert names.difference("$x", "1") is not None
    assert names.difference({"a": ["$x", "*", "$new"]}, {"a": [1, None, "y"]}) is None
    assert names.known["new"] == "y"


def test_every_scenario_has_steps() -> None:
    assert all(scenario.steps for scenario in read_scenarios())
