"""The span of a call says what a policy decided about it; `gemel dev` shows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.trace import SpanKind

from gemel import Client, Context, ToolError
from gemel.policies import Policy
from tests.observed import Observed, attributes, observing
from tests.policies.places import make_server

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])


@pytest.fixture
def observed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Observed]:
    yield from observing(monkeypatch)


@both_eras
async def test_the_span_of_a_call_has_effect_and_rule(observed: Observed, era: Any) -> None:
    server, _ = make_server()
    rules = [{"name": "reading", "tool": "read", "effect": "allow"}]
    server.add_middleware(Policy({"rule": rules}))
    async with Client(server, era=era) as client:
        await client.call_tool("read", {"path": "a"})
        await client.call_tool("delete", {"path": "a"}, raise_on_error=False)
    found = {
        name: [
            (said.get("gemel.policy.effect"), said.get("gemel.policy.rule"))
            for said in map(attributes, observed.spans(SpanKind.SERVER, f"tools/call {name}"))
        ]
        for name in ("read", "delete")
    }
    assert found == {"read": [("allow", "reading")], "delete": [("deny", "default")]}


@both_eras
async def test_each_call_of_a_handler_has_a_span_with_its_decision(observed: Observed, era: Any) -> None:
    server, _ = make_server()
    rules = [{"name": "reading", "tool": ["read", "both"], "effect": "allow"}]
    server.add_middleware(Policy({"rule": rules}))

    @server.tool
    async def both(ctx: Context) -> str:
        await ctx.call_tool("read", {"path": "a"})
        with pytest.raises(ToolError):
            await ctx.call_tool("delete", {"path": "a"})
        return "done"

    async with Client(server, era=era) as client:
        await client.call_tool("both")
    outer = observed.span(SpanKind.SERVER, "tools/call both")
    for name, effect, rule in (
        ("both", "allow", "reading"),
        ("read", "allow", "reading"),
        ("delete", "deny", "default"),
    ):
        span = outer if name == "both" else observed.span(SpanKind.INTERNAL, f"tools/call {name}")
        said = attributes(span)
        assert (said["gemel.policy.effect"], said["gemel.policy.rule"]) == (effect, rule)
        assert span is outer or (span.parent and outer.context and span.parent.span_id == outer.context.span_id)
