"""What is too large doesn't leave: a tool's result becomes a failure in words, another method's an error."""

from __future__ import annotations

from typing import Any

import pytest

from gemel import DefinitionError, ResultLimit, Server
from tests.server.bare_end import BareEnd, Era

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])


def limited(limit: ResultLimit) -> Server[Any]:
    server: Server[Any] = Server("limited", middleware=[limit])

    @server.tool
    async def text(length: int) -> dict[str, str]:
        return {"text": "x" * length}

    @server.resource("long://text")
    def long() -> str:
        return "x" * 2000

    return server


@both_eras
async def test_a_tool_fails_in_words_for_the_model(era: Era) -> None:
    async with BareEnd(limited(ResultLimit(1000)), era) as end:
        assert not (await end.call_tool("text", length=100)).get("isError")
        result = await end.call_tool("text", length=1000)
        assert result["isError"]
        assert result["content"][0]["text"].endswith("more than the limit of 1000: ask for less")
        assert "structuredContent" not in result
        assert len((await end.ask("resources/read", {"uri": "long://text"}))["contents"][0]["text"]) == 2000


@both_eras
async def test_another_method_that_is_measured_is_an_error(era: Era) -> None:
    async with BareEnd(limited(ResultLimit(1000, methods=["resources/read"])), era) as end:
        error = await end.refusal("resources/read", {"uri": "long://text"})
        assert (error["code"], "ask for less" in error["message"]) == (-32603, True)


def test_a_limit_that_cannot_be_is_refused() -> None:
    with pytest.raises(DefinitionError, match="is not possible"):
        ResultLimit(0)
    with pytest.raises(DefinitionError, match="write methods="):
        ResultLimit(1, methods="tools/call")
