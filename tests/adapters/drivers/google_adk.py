"""An agent of Google ADK with a scripted model."""

import json
from collections.abc import AsyncIterator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types
from pydantic import Field

from gemel.adapters.google_adk import AdkToolset
from tests.adapters.conversation import Call, Conversation, connected


class Scripted(BaseLlm):
    model: str = "scripted"
    script: list[Call]
    offered: dict[str, Any] = Field(default_factory=dict)

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncIterator[LlmResponse]:
        declared = [one for tool in llm_request.config.tools or () for one in tool.function_declarations]
        self.offered.clear()
        self.offered.update({one.name: one.parameters_json_schema for one in declared})
        if self.script:
            name, arguments = self.script.pop(0)
            part = types.Part(function_call=types.FunctionCall(name=name, args=arguments))
        else:
            part = types.Part(text="done")
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def scripted(script: list[Call]) -> Scripted:
    return Scripted(script=list(script))


async def run(target: Any, script: list[Call], **options: Any) -> Conversation:
    model = scripted(script)
    async with connected(target) as client:
        agent = LlmAgent(name="tester", model=model, tools=[AdkToolset(client, **options)])
        runner = InMemoryRunner(agent)
        session = await runner.session_service.create_session(app_name=runner.app_name, user_id="me")
        message = types.Content(role="user", parts=[types.Part(text="go")])
        told, answer = [], ""
        async for event in runner.run_async(user_id="me", session_id=session.id, new_message=message):
            for response in event.get_function_responses():
                media = [part.inline_data.mime_type for part in response.parts or ()]
                told.append(json.dumps(response.response) + "".join(media))
            for part in event.content.parts if event.content else ():
                answer = part.text or answer
    return Conversation(told, answer, model.offered)
