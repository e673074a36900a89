"""How long clients may keep lists and reads."""

from __future__ import annotations

from typing import Any

import pytest

from gemel import CacheHint, Context, DefinitionError, Server
from tests.wire.talk import talking


def hints(result: dict[str, Any]) -> tuple[Any, Any]:
    return result["ttlMs"], result["cacheScope"]


def offering(server: Server[None]) -> Server[None]:
    for number in range(5):

        @server.resource(f"x://{number}", name=f"r{number}")
        def read() -> str:
            return "text"

    @server.tool
    def tool() -> str:
        return "text"

    return server


async def test_a_method_has_the_hint_that_the_server_was_given_and_else_the_safe_one() -> None:
    """CACHE-01, CACHE-02."""
    cache = {
        "tools/list": CacheHint(60, "public"),
        "server/discover": CacheHint(0.0015),
        "resources/read": CacheHint(9),
    }
    async with talking(offering(Server("s", cache=cache)), "2026") as peer:
        assert hints(await peer.result("tools/list")) == (60_000, "public")
        assert hints(await peer.result("server/discover")) == (1, "private")
        assert hints(await peer.result("resources/list")) == (0, "private")
        assert hints(await peer.result("resources/templates/list")) == (0, "private")
        assert hints(await peer.result("resources/read", uri="x://1")) == (9000, "private")
        assert "ttlMs" not in await peer.result("tools/call", name="tool")


async def test_all_pages_of_a_list_have_one_scope() -> None:
    """CACHE-09."""
    server = offering(Server("s", page_size=2, cache={"resources/list": CacheHint(5, "public")}))
    seen: list[tuple[Any, Any]] = []
    async with talking(server, "2026") as peer:
        params: dict[str, Any] = {}
        while True:
            page = await peer.result("resources/list", **params)
            seen.append(hints(page))
            if "nextCursor" not in page:
                break
            params = {"cursor": page["nextCursor"]}
    assert seen == [(5000, "public")] * 3


async def test_a_handshake_client_hears_of_no_hints() -> None:
    """The fields belong to the stateless revision."""
    async with talking(offering(Server("s", cache={"resources/list": CacheHint(5)})), "2025") as peer:
        assert not {"ttlMs", "cacheScope"} & (await peer.result("resources/list")).keys()


async def test_a_resource_has_a_hint_of_its_own() -> None:
    """CACHE-02."""
    server = Server("s", cache={"resources/read": CacheHint(9, "public")})

    @server.resource("x://own", ttl=1.5)
    def own() -> str:
        return "text"

    @server.resource("x://scope", scope="public")
    def scope() -> str:
        return "text"

    @server.resource("x://none")
    def none() -> str:
        return "text"

    async with talking(server, "2026") as peer:
        assert hints(await peer.result("resources/read", uri="x://own")) == (1500, "private")
        assert hints(await peer.result("resources/read", uri="x://scope")) == (0, "public")
        assert hints(await peer.result("resources/read", uri="x://none")) == (9000, "public")


async def test_neither_a_question_nor_the_answer_to_a_retry_may_be_kept() -> None:
    """MRTR-20, CACHE-01."""
    server = Server("s", cache={"resources/read": CacheHint(9, "public")})

    @server.resource("x://asks", ttl=60, scope="public")
    async def asks(ctx: Context) -> str:
        return await ctx.elicit("Your name?", str, key="name")

    async with talking(server, "2026", elicitation={}) as peer:
        question = await peer.result("resources/read", uri="x://asks")
        assert question["resultType"] == "input_required"
        assert not {"ttlMs", "cacheScope"} & question.keys()
        answers = {"name": {"action": "accept", "content": {"value": "Ann"}}}
        state = question["requestState"]
        answer = await peer.result("resources/read", uri="x://asks", inputResponses=answers, requestState=state)
    assert answer["contents"][0]["text"] == "Ann"
    assert hints(answer) == (0, "private")


@pytest.mark.parametrize("ttl", [-1, float("nan"), float("inf"), True, "60", None])
def test_a_time_that_can_not_be_is_refused(ttl: Any) -> None:
    with pytest.raises(DefinitionError, match="use seconds, 0 or more"):
        CacheHint(ttl)


def test_a_scope_or_method_that_can_not_be_is_refused() -> None:
    with pytest.raises(DefinitionError, match='use "public" or "private"'):
        CacheHint(1, "shared")  # type: ignore[arg-type]  # a mistake of the author
    with pytest.raises(DefinitionError, match=r"results of 'tools/call' can't be cached; those of .*tools/list"):
        Server("s", cache={"tools/call": CacheHint(1)})
