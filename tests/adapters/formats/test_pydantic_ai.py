"""What Pydantic AI's toolset and messages are made of."""

from typing import Any

import pytest

pytest.importorskip("pydantic_ai")

from pydantic_ai import Agent, UnexpectedModelBehavior
from pydantic_ai.messages import BinaryContent, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

from gemel import Client, DefinitionError, Server
from gemel.adapters.pydantic_ai import PydanticToolset, messages
from tests.adapters.server import PNG, SHORT_NAME, odd_server, server


async def returned(client: Client, name: str, **arguments: Any) -> Any:
    """What a tool returns to an agent."""

    def answer(history: Any, info: Any) -> ModelResponse:
        part = ToolCallPart(name, arguments) if len(history) == 1 else TextPart("done")
        return ModelResponse(parts=[part])

    result = await Agent(FunctionModel(answer), toolsets=[PydanticToolset(client)]).run("go")
    (part,) = [part for message in result.all_messages() for part in message.parts if isinstance(part, ToolReturnPart)]
    return part.content


async def test_results_are_structured_or_text_and_binary_content() -> None:
    async with Client(server) as client:
        assert await returned(client, "add", a=2, b=3) == 5
        assert await returned(client, "weather", city="Oslo") == {"city": "Oslo", "celsius": 21.5}
        assert await returned(client, "get-total", prices=[1, 2]) == "total 3"
        text, image, audio, contents, pdf, link = await returned(client, "mixed")
    assert (text, contents, link) == ("see", "tea, rice", "[link to pantry://tea]")
    kinds = [(part.media_type, part.data) for part in (image, audio, pdf)]
    assert kinds == [("image/png", PNG), ("audio/wav", PNG), ("application/pdf", PNG)]


@pytest.mark.parametrize(("tool_error", "fails"), [("retry", True), ("failed", False)])
async def test_errors_count_as_retries_or_not(tool_error: Any, fails: bool) -> None:
    def answer(history: Any, info: Any) -> ModelResponse:
        part = ToolCallPart("fail", {"reason": "x"}) if len(history) < 8 else TextPart("done")
        return ModelResponse(parts=[part])

    async with Client(server) as client:
        agent = Agent(FunctionModel(answer), toolsets=[PydanticToolset(client, tool_error=tool_error)])
        if fails:
            with pytest.raises(UnexpectedModelBehavior):
                await agent.run("go")
        else:
            assert (await agent.run("go")).output == "done"


async def test_a_change_of_the_list_is_seen_in_the_next_step() -> None:
    changing = Server("changing")

    @changing.tool
    def open() -> str:
        """Add a tool."""
        changing.tool(lambda: "inside", name="look")
        return "opened"

    offered: list[list[str]] = []

    def answer(history: Any, info: Any) -> ModelResponse:
        offered.append([tool.name for tool in info.function_tools])
        return ModelResponse(parts=[ToolCallPart("open", {}) if len(offered) == 1 else TextPart("done")])

    async with Client(changing) as client:
        await Agent(FunctionModel(answer), toolsets=[PydanticToolset(client)]).run("go")
    assert offered == [["open"], ["open", "look"]]


async def test_the_model_gets_instructions_only_if_they_are_trusted() -> None:
    told: list[str | None] = []

    def answer(history: Any, info: Any) -> ModelResponse:
        told.append(info.instructions)
        return ModelResponse(parts=[TextPart("done")])

    async with Client(server) as client:
        for instructions in (False, True):
            await Agent(FunctionModel(answer), toolsets=[PydanticToolset(client, instructions=instructions)]).run("go")
    assert told == [None, "Count before you cook."]


async def test_prompts_are_messages() -> None:
    async with Client(server) as client:
        asked, answered = await messages(client, "cook", {"dish": "rice"})
    assert isinstance(asked, ModelRequest)
    assert asked.parts[0].content == ["How is rice cooked?"]
    assert isinstance(answered, ModelResponse)
    assert answered.parts[0].content == "Slowly."
    assert BinaryContent is not None


def test_a_wrong_option_is_refused() -> None:
    wrong: Any = "ignore"
    with pytest.raises(DefinitionError, match="tool_error"):
        PydanticToolset(Client(server), tool_error=wrong)


async def test_a_name_that_models_do_not_take_is_a_short_one() -> None:
    returned: list[Any] = []
    offered: list[str] = []

    def answer(history: Any, info: Any) -> ModelResponse:
        offered.extend(tool.name for tool in info.function_tools)
        returned.extend(part.content for part in history[-1].parts if isinstance(part, ToolReturnPart))
        return ModelResponse(parts=[TextPart("done") if returned else ToolCallPart(info.function_tools[0].name, {})])

    async with Client(odd_server) as client:
        await Agent(FunctionModel(answer), toolsets=[PydanticToolset(client)]).run("go")
    assert (returned, set(offered)) == (["found"], {SHORT_NAME})
