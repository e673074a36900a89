"""An agent of LlamaIndex with a scripted model."""

import asyncio
from typing import Any

from llama_index.core.agent.workflow import FunctionAgent, ToolCallResult
from llama_index.core.base.llms.types import ChatMessage, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM

from gemel.adapters import llama_index
from tests.adapters.conversation import Call, Conversation, connected


def scripted(script: list[Call]) -> MockFunctionCallingLLM:
    left = list(script)

    def answer(messages: Any, **options: Any) -> ChatMessage:
        if not left:
            return ChatMessage(role="assistant", content="done")
        name, arguments = left.pop(0)
        block = ToolCallBlock(tool_call_id=f"call-{len(left)}", tool_name=name, tool_kwargs=arguments)
        return ChatMessage(role="assistant", blocks=[block])

    return MockFunctionCallingLLM(response_generator=answer)


async def run(target: Any, script: list[Call], **options: Any) -> Conversation:
    async with connected(target) as client:
        tools = await llama_index.tools(client, **options)
        handler = FunctionAgent(tools=tools, llm=scripted(script), streaming=False).run("go")
        try:
            events = [event async for event in handler.stream_events() if isinstance(event, ToolCallResult)]
            result = await handler
        except asyncio.CancelledError:
            await handler.cancel_run()
            raise
    told = [str(event.tool_output.content) for event in events]
    offered = {tool.metadata.get_name(): tool.metadata.get_parameters_dict() for tool in tools}
    return Conversation(told, str(result.response.content), offered)
