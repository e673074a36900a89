"""What LangChain's tools, messages and blobs are made of."""

import asyncio
import base64
from typing import Any

import pytest

pytest.importorskip("langchain_core")

from langchain_core.messages import AIMessage, HumanMessage

from gemel import Client, DefinitionError
from gemel.adapters import langchain
from gemel.sync import Client as SyncClient
from tests.adapters.server import PNG, SHORT_NAME, odd_server, server

DATA = base64.b64encode(PNG).decode()


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_call", "id": "1", "name": name, "args": arguments}


async def test_a_result_is_text_or_blocks_and_its_structured_content_is_the_artifact() -> None:
    async with Client(server) as client:
        tools = {tool.name: tool for tool in await langchain.tools(client)}
        assert tools["add"].metadata == {"readOnlyHint": True}
        assert tools["add"].description == "Add two integers."
        added = await tools["add"].ainvoke(call("add", a=2, b=3))
        assert (added.content, added.artifact) == ("5", {"structured_content": 5})
        weather = await tools["weather"].ainvoke(call("weather", city="Oslo"))
        assert weather.artifact == {"structured_content": {"city": "Oslo", "celsius": 21.5}}
        failed = await tools["fail"].ainvoke(call("fail", reason="no tea"))
        assert (failed.status, failed.content) == ("error", "it failed: no tea")
        mixed = (await tools["mixed"].ainvoke(call("mixed"))).content
        assert [block["type"] for block in mixed] == ["text", "image", "file", "text", "file", "text"]
        assert (mixed[1]["base64"], mixed[1]["mime_type"]) == (DATA, "image/png")
        assert mixed[3]["text"] == "tea, rice"
        with pytest.raises(DefinitionError, match="use `ainvoke`, or sync_tools"):
            tools["add"].invoke(call("add", a=2, b=3))


def test_tools_without_async_can_be_awaited_too() -> None:
    with SyncClient(server) as client:
        (tool,) = langchain.sync_tools(client, include=["add"])
        assert tool.invoke(call("add", a=2, b=3)).content == "5"
        assert asyncio.run(tool.ainvoke(call("add", a=2, b=3))).content == "5"


async def test_prompts_are_messages_and_resources_blobs() -> None:
    async with Client(server) as client:
        asked, answered = await langchain.messages(client, "cook", {"dish": "rice"})
        (blob,) = await langchain.blobs(client, await client.list_resources())
    assert (type(asked), asked.text) == (HumanMessage, "How is rice cooked?")
    assert (type(answered), answered.text) == (AIMessage, "Slowly.")
    assert (blob.as_string(), blob.mimetype, blob.metadata) == ("two bags", "text/plain", {"uri": "pantry://tea"})


async def test_a_name_that_models_do_not_take_is_a_short_one() -> None:
    async with Client(odd_server) as client:
        (tool,) = await langchain.tools(client)
        assert tool.name == SHORT_NAME
        assert (await tool.ainvoke(call(tool.name))).content == "found"
        (plain,) = await langchain.tools(client, model_names=False)
        assert plain.name == "files.read"
