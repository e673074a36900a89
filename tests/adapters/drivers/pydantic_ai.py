"""An agent of Pydantic AI with a scripted model."""

from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, RetryPromptPart, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

from gemel.adapters.pydantic_ai import PydanticToolset
from tests.adapters.conversation import Call, Conversation, connected


def scripted(script: list[Call], offered: dict[str, Any] | None = None) -> FunctionModel:
    left = list(script)

    def answer(messages: Any, info: Any) -> ModelResponse:
        if offered is not None:
            offered.clear()
            offered.update({tool.name: tool.parameters_json_schema for tool in info.function_tools})
        return ModelResponse(parts=[ToolCallPart(*left.pop(0)) if left else TextPart("done")])

    return FunctionModel(answer)


async def run(target: Any, script: list[Call], **options: Any) -> Conversation:
    offered: dict[str, Any] = {}
    async with connected(target) as client:
        agent = Agent(scripted(script, offered), toolsets=[PydanticToolset(client, **options)])
        result = await agent.run("go")
    told = [
        part.model_response() if isinstance(part, RetryPromptPart) else str(part.content)
        for message in result.all_messages()
        for part in message.parts
        if isinstance(part, ToolReturnPart | RetryPromptPart)
    ]
    return Conversation(told, result.output, offered)
