"""What OpenAI Agents' server is made of."""

import pytest

pytest.importorskip("agents")

from gemel import Client, ClientGroup
from gemel.adapters.openai_agents import AgentsServer
from tests.adapters.drivers.openai_agents import run
from tests.adapters.server import SHORT_NAME, odd_server, server


async def test_it_has_prompts_and_resources() -> None:
    async with Client(server) as client:
        adapted = AgentsServer(client)
        await adapted.connect()
        assert adapted.name == "pantry"
        assert [prompt.name for prompt in (await adapted.list_prompts()).prompts] == ["cook"]
        asked = (await adapted.get_prompt("cook", {"dish": "rice"})).messages[0]
        assert asked.content.text == "How is rice cooked?"
        assert [one.name for one in (await adapted.list_resources()).resources] == ["tea"]
        assert (await adapted.list_resource_templates()).model_dump(by_alias=True)["resourceTemplates"] == []
        assert (await adapted.read_resource("pantry://tea")).contents[0].text == "two bags"
        result = (await adapted.call_tool("weather", {"city": "Oslo"})).model_dump(by_alias=True)
        assert result["structuredContent"] == {"city": "Oslo", "celsius": 21.5}
        assert (await adapted.call_tool("fail", {"reason": "x"})).model_dump(by_alias=True)["isError"] is True
        await adapted.cleanup()
        await client.ping()


async def test_the_model_gets_images() -> None:
    conversation = await run(server, [("picture", {})])
    assert "data:image/png;base64," in conversation.told[0]


async def test_structured_content_may_replace_the_text() -> None:
    conversation = await run(server, [("weather", {"city": "Oslo"})], use_structured_content=True)
    assert conversation.told == [r'"{\"city\": \"Oslo\", \"celsius\": 21.5}"']


def test_a_group_has_a_name() -> None:
    assert AgentsServer(ClientGroup({"a": server})).name == "gemel"
    assert AgentsServer(ClientGroup({"a": server}), name="both").name == "both"


async def test_a_name_that_models_do_not_take_is_a_short_one() -> None:
    async with Client(odd_server) as client:
        adapted = AgentsServer(client)
        (tool,) = await adapted.list_tools()
        assert tool.name == SHORT_NAME
        result = (await adapted.call_tool(tool.name, {})).model_dump()
        assert result["content"][0]["text"] == "found"
