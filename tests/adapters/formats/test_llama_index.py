"""What LlamaIndex's tools, messages and documents are made of."""

import asyncio

import pytest

pytest.importorskip("llama_index.core")

from gemel import Client, DefinitionError
from gemel.adapters import llama_index
from gemel.sync import Client as SyncClient
from tests.adapters.server import SHORT_NAME, odd_server, server


async def test_outputs_have_blocks_and_errors() -> None:
    async with Client(server) as client:
        tools = {tool.metadata.get_name(): tool for tool in await llama_index.tools(client)}
        added = await tools["add"].acall(a=2, b=3)
        assert (added.content, added.raw_output, added.is_error) == ("5", 5, False)
        assert (await tools["weather"].acall(city="Oslo")).raw_output == {"city": "Oslo", "celsius": 21.5}
        failed = await tools["fail"].acall(reason="no tea")
        assert (failed.content, failed.is_error) == ("it failed: no tea", True)
        mixed = await tools["mixed"].acall()
        kinds = [block.block_type for block in mixed.blocks]
        assert kinds == ["text", "image", "audio", "text", "document", "text"]
        function = tools["get-total"].metadata.to_openai_tool()["function"]
        assert function["parameters"]["properties"]["prices"]["type"] == "array"
        assert "prices" in tools["get-total"].metadata.fn_schema_str
        with pytest.raises(DefinitionError, match="use `acall`, or sync_tools"):
            tools["add"].call(a=2, b=3)


def test_tools_without_async_can_be_awaited_too() -> None:
    with SyncClient(server) as client:
        (tool,) = llama_index.sync_tools(client, include=["add"])
        assert tool(a=2, b=3).content == "5"
        assert asyncio.run(tool.acall(a=2, b=3)).content == "5"


async def test_prompts_are_messages_and_resources_documents() -> None:
    async with Client(server) as client:
        messages = await llama_index.messages(client, "cook", {"dish": "rice"})
        (document,) = await llama_index.documents(client, ["pantry://tea"])
    assert [(message.role.value, message.content) for message in messages] == [
        ("user", "How is rice cooked?"),
        ("assistant", "Slowly."),
    ]
    assert (document.text, document.id_) == ("two bags", "pantry://tea")


async def test_a_name_that_models_do_not_take_is_a_short_one() -> None:
    async with Client(odd_server) as client:
        (tool,) = await llama_index.tools(client)
        assert tool.metadata.name == SHORT_NAME
        assert (await tool.acall()).content == "found"
