"""Spans that the inspected program exports: below the calls that they belong to, and refused if they are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.dev.program import Program
from tests.dev.test_programs import command

TRACED = """
from opentelemetry import trace

from gemel import Server
from gemel.receipts import Receipts

server = Server("weather", middleware=[Receipts("receipts.jsonl")])

@server.tool
async def forecast(city: str) -> str:
    with trace.get_tracer("weather").start_as_current_span("look up", attributes={"city": city, "days": 5}):
        return "rain"

@server.tool
async def fail(reason: str = "none") -> str:
    with trace.get_tracer("weather").start_as_current_span("ask the station"):
        raise RuntimeError("no station")
"""

#: The same in code mode, under a policy that denies one of its tools.
SCRIPTED = f"""{TRACED}
from gemel.code import CodeMode
from gemel.policies import Policy

rules = [{{"name": "quiet", "tool": "fail", "arguments": {{"reason": "none"}}, "effect": "deny"}}]
server.add_middleware(CodeMode(), outermost=True)
server.add_middleware(Policy({{"default": "allow", "rule": rules}}))
"""

#: Sets up a provider of its own, where PLACE says.
OWN_PROVIDER = """
from contextlib import asynccontextmanager

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gemel import Server

spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))

@asynccontextmanager
async def lifespan(server):
    if PLACE == "lifespan":
        trace.set_tracer_provider(provider)
    yield

if PLACE == "file":
    trace.set_tracer_provider(provider)
server = Server("weather", lifespan=lifespan)

@server.tool
def recorded() -> list[bool]:
    return [trace.get_tracer_provider() is provider, len(spans.get_finished_spans()) > 0]
"""

#: Its tool sends a request as an exporter would.
EXPORTING = """
import os
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from gemel import Server

server = Server("exporter")

@server.tool
def variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("OTEL_")}

@server.tool
def export(body: str, headers: dict[str, str], authorized: bool = True) -> list[str]:
    name, _, token = os.environ["OTEL_EXPORTER_OTLP_TRACES_HEADERS"].partition("=")
    if authorized:
        headers = {name: token.replace("%20", " "), **headers}
    request = Request(os.environ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"], body.encode(), headers, method="POST")
    try:
        with urlopen(request) as response:
            return [str(response.status), response.read().decode()]
    except HTTPError as error:
        return [str(error.code), error.read().decode()]
"""
JSON = {"Content-Type": "application/json"}


def request(*spans: Any) -> str:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})


def span(**members: Any) -> dict[str, Any]:
    times = {"startTimeUnixNano": "1795478305000000000", "endTimeUnixNano": "1795478305250000000"}
    return {"traceId": "5" * 32, "spanId": "7" * 16, "name": "look up", **times, **members}


async def tool(program: Program, name: str, **arguments: Any) -> Any:
    result = await program.result("2026", "tools/call", {"name": name, "arguments": arguments})
    return result["structuredContent"]


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_spans_of_the_program_are_shown_below_the_call_they_belong_to(tmp_path: Path, era: str) -> None:
    (tmp_path / "weather.py").write_text(TRACED)
    late = "OTEL_BSP_SCHEDULE_DELAY=1000"  # the call is made before any span has come
    async with command("weather.py", "--env", late, "--port", "0", cwd=tmp_path) as (program, _):
        await program.ready()
        call = await program.call(era, "tools/call", {"name": "forecast", "arguments": {"city": "Oslo"}})
        served = await program.event("span", trace=call, side="server", name="tools/call forecast")
        assert served["parent"] == call
        receipt = {name: served["attributes"][f"gemel.receipt.{name}"] for name in ("tool", "outcome")}
        assert receipt == {"tool": "forecast", "outcome": "ok"}
        inner = await program.event("span", trace=call, name="look up")
        assert inner["parent"] == served["span"]
        assert inner["attributes"] == {"city": "Oslo", "days": 5}
        assert inner["status"] == "ok"
        assert served["start"] <= inner["start"]
        assert inner["start"] + inner["ms"] <= served["start"] + served["ms"] + 0.01
        call = await program.call(era, "tools/call", {"name": "fail", "arguments": {}})
        failed = await program.event("span", trace=call, name="ask the station")
        assert failed["status"] == "error"
        assert "no station" in failed["attributes"]["status.message"]
        listed = await program.event("span", side="server", name="tools/list")
        assert len(listed["trace"]) == 32  # it belongs to no call


@pytest.mark.parametrize("place", ["file", "lifespan"])
async def test_a_provider_that_the_program_sets_is_kept(tmp_path: Path, place: str) -> None:
    (tmp_path / "weather.py").write_text(OWN_PROVIDER.replace("PLACE", repr(place)))
    async with command("weather.py", "--port", "0", cwd=tmp_path) as (program, _):
        await program.ready()
        result = await program.result("2026", "tools/call", {"name": "recorded", "arguments": {}})
        assert result["structuredContent"] == [True, True]


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_the_calls_of_a_script_are_shown_below_it_with_decision_and_receipt(tmp_path: Path, era: str) -> None:
    pytest.importorskip("pydantic_monty")
    (tmp_path / "weather.py").write_text(SCRIPTED)
    code = """
from weather import fail, forecast
try:
    await fail()
except RuntimeError:
    pass
await forecast(city="Oslo")
"""
    async with command("weather.py", "--port", "0", cwd=tmp_path) as (program, _):
        await program.ready()
        call = await program.call(era, "tools/call", {"name": "run_code", "arguments": {"code": code}})
        script = await program.event("span", trace=call, side="server", name="tools/call run_code")
        for name, effect, outcome in (("forecast", "allow", "ok"), ("fail", "deny", "tool error")):
            inner = await program.event("span", trace=call, side="server", name=f"tools/call {name}")
            assert inner["parent"] == script["span"]
            said = inner["attributes"]
            assert (said["gemel.policy.effect"], said["gemel.receipt.outcome"]) == (effect, outcome), said


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "exporter.py").write_text(EXPORTING)
    return tmp_path


async def test_spans_as_json_are_read_and_all_else_is_refused(folder: Path) -> None:
    async with command("exporter.py", "--port", "0", cwd=folder) as (program, _):
        await program.ready()
        attributes = [{"key": "text", "value": {"stringValue": "é" * 1000}}, {"key": "n", "value": {"intValue": "-3"}}]
        attributes += [{"key": "large", "value": {"intValue": "9" * 30}}, {"key": "odd", "value": {}}]
        one = span(attributes=attributes, status={"code": 2, "message": "gone"}, parentSpanId="")
        assert await tool(program, "export", body=request(one), headers=JSON) == ["200", "{}"]
        shown = await program.event("span", trace="5" * 32)
        assert (shown["name"], shown["ms"], shown["status"]) == ("look up", 250, "error")
        assert "parent" not in shown
        assert shown["attributes"] == {
            "text": "é" * 500 + "…",
            "n": -3,
            "large": "9" * 30,
            "status.message": "gone",
        }
        cases: dict[str, tuple[str, dict[str, str], str, str]] = {
            "not JSON": ("{", JSON, "400", "not JSON"),
            "a list": ("[]", JSON, "400", "resourceSpans"),
            "a span that is a text": (request("x"), JSON, "400", "not an object"),
            "no time": (request(span(startTimeUnixNano="soon")), JSON, "400", "nanoseconds"),
            "an endless time": (request(span(endTimeUnixNano=1e400)), JSON, "400", "JSON"),
            "a short id": (request(span(spanId="77")), JSON, "400", "wrong length"),
            "not Protobuf": (
                "\x00\x01",
                {"Content-Type": "application/x-protobuf"},
                "400",
                "ExportTraceServiceRequest",
            ),
            "another type": ("x", {"Content-Type": "text/plain"}, "415", "application/json"),
            "compressed": (request(), {**JSON, "Content-Encoding": "gzip"}, "415", "Content-Encoding"),
        }
        for case, (body, headers, status, text) in cases.items():
            answer = await tool(program, "export", body=body, headers=headers)
            assert answer[0] == status, (case, answer)
            assert text in answer[1], (case, answer)
        answer = await tool(program, "export", body=request(one), headers=JSON, authorized=False)
        assert answer[0] == "401"
        answer = await tool(program, "export", body=request(*[span(traceId="6" * 32)] * 2500), headers=JSON)
        assert answer[0] == "200"
        await program.ended(await program.call("2026", "tools/call", {"name": "variables", "arguments": {}}))
        assert sum(event.get("trace") == "6" * 32 for event in program.seen) == 2000


async def test_the_token_for_spans_is_good_for_nothing_else(folder: Path) -> None:
    async with command("exporter.py", "--port", "0", cwd=folder) as (program, _):
        await program.ready()
        name, _, value = (await tool(program, "variables"))["OTEL_EXPORTER_OTLP_TRACES_HEADERS"].partition("=")
        headers = {name: value.replace("%20", " ")}
        assert (await program.ask("GET", "/api/state", headers)).status == 401
        assert (await program.ask("POST", "/api/commands", {**headers, **JSON}, b"{}")).status == 401


async def test_a_program_that_has_a_destination_keeps_it(folder: Path) -> None:
    given = "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318"
    async with command("exporter.py", "--env", given, "--port", "0", cwd=folder) as (program, _):
        await program.ready()
        assert await tool(program, "variables") == {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}
