"""What a client uses of lists and results of which a part is not valid; more of them are rows of `tests/peers`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gemel import Client, InvalidResponse
from tests.client.puppet import legacy

GOOD: dict[str, dict[str, Any]] = {
    "prompts": {"name": "good"},
    "resources": {"uri": "x:good", "name": "good"},
    "resourceTemplates": {"uriTemplate": "x:{good}", "name": "good"},
}
LISTS: dict[str, tuple[str, Callable[[Client], Awaitable[list[Any]]]]] = {
    "prompts": ("prompts_list", lambda client: client.list_prompts()),
    "resources": ("resources_list", lambda client: client.list_resources()),
    "resourceTemplates": ("resources_templates_list", lambda client: client.list_resource_templates()),
}


@pytest.mark.parametrize("member", LISTS)
@pytest.mark.parametrize("bad", [{}, None, {"name": 5}, "text"])
async def test_an_item_that_is_not_valid_is_left_out_of_its_list(member: str, bad: Any) -> None:
    method, fetch = LISTS[member]
    async with Client(legacy(**{method: {member: [bad, GOOD[member]]}}), era="2025") as client:
        assert [item.name for item in await fetch(client)] == ["good"]
        assert [one.name for one in client.warnings] == ["item-left-out"]


@pytest.mark.parametrize("member", LISTS)
async def test_a_list_without_a_valid_item_is_not_valid(member: str) -> None:
    method, fetch = LISTS[member]
    async with Client(legacy(**{method: {member: [{}]}}), era="2025") as client:
        with pytest.raises(InvalidResponse):
            await fetch(client)
        assert client.warnings == []


@pytest.mark.parametrize(
    ("bad", "noted", "count"),
    [
        ({"role": "user", "content": {"type": "widget"}}, "block-left-out", 1),
        ({"role": "tool", "content": {"type": "text", "text": "x"}}, "block-left-out", 1),
        ({"role": "user", "content": {"type": "text", "text": "x", "annotations": 5}}, "member-left-out", 2),
    ],
)
async def test_a_message_of_a_prompt_is_left_out_or_used_without_a_member(bad: Any, noted: str, count: int) -> None:
    good = {"role": "user", "content": {"type": "text", "text": "hi"}}
    async with Client(legacy(prompts_get={"messages": [bad, good]}), era="2025") as client:
        messages = (await client.get_prompt("p")).messages
        assert (len(messages), messages[-1].text) == (count, "hi")
        assert [one.name for one in client.warnings] == [noted]


async def test_contents_of_a_resource_that_are_not_valid_are_left_out() -> None:
    contents = [{"uri": 5, "text": "x"}, {"uri": "x:good", "text": "hi"}]
    async with Client(legacy(resources_read={"contents": contents}), era="2025") as client:
        result = await client.read_resource("x:good")
        assert [one.name for one in client.warnings] == ["item-left-out"]
        assert "hi" in str(result)
