"""An agent of OpenAI Agents with a scripted model."""

import json
from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage, set_tracing_disabled
from agents.items import ToolCallOutputItem
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from gemel.adapters.openai_agents import AgentsServer
from tests.adapters.conversation import Call, Conversation, connected

set_tracing_disabled(True)


class Scripted(Model):
    def __init__(self, script: list[Call]) -> None:
        self.script = list(script)
        self.offered: dict[str, Any] = {}

    async def get_response(
        self, system_instructions: Any, input: Any, model_settings: Any, tools: Any, *more: Any, **options: Any
    ) -> ModelResponse:
        self.offered = {tool.name: tool.params_json_schema for tool in tools}
        if self.script:
            name, arguments = self.script.pop(0)
            item: Any = ResponseFunctionToolCall(
                name=name, arguments=json.dumps(arguments), call_id=f"call-{len(self.script)}", type="function_call"
            )
        else:
            text = ResponseOutputText(text="done", type="output_text", annotations=[])
            item = ResponseOutputMessage(id="1", content=[text], role="assistant", status="completed", type="message")
        return ModelResponse(output=[item], usage=Usage(), response_id=None)

    def stream_response(self, *arguments: Any, **options: Any) -> Any:
        raise NotImplementedError


def scripted(script: list[Call]) -> Scripted:
    return Scripted(script)


async def run(target: Any, script: list[Call], **options: Any) -> Conversation:
    model = scripted(script)
    async with connected(target) as client:
        agent = Agent("tester", model=model, mcp_servers=[AgentsServer(client, **options)])
        result = await Runner.run(agent, "go", run_config=RunConfig(tracing_disabled=True))
    told = [json.dumps(item.output) for item in result.new_items if isinstance(item, ToolCallOutputItem)]
    return Conversation(told, result.final_output, model.offered)
