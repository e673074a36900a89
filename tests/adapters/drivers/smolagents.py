"""An agent of smolagents, in a thread, with a scripted model."""

import asyncio
from collections.abc import Mapping
from typing import Any

from smolagents import LogLevel, Model, ToolCallingAgent
from smolagents.models import ChatMessage, ChatMessageToolCall, ChatMessageToolCallFunction, MessageRole

from gemel.adapters import smolagents
from gemel.sync import Client, ClientGroup
from tests.adapters.conversation import Call, Conversation


class Scripted(Model):
    def __init__(self, script: list[Call]) -> None:
        super().__init__()
        self.script = [*script, ("final_answer", {"answer": "done"})]
        self.offered: dict[str, Any] = {}

    def generate(self, messages: Any, tools_to_call_from: Any = None, **options: Any) -> ChatMessage:
        self.offered = {tool.name: {"properties": tool.inputs} for tool in tools_to_call_from}
        name, arguments = self.script.pop(0)
        call = ChatMessageToolCall(ChatMessageToolCallFunction(arguments, name), f"call-{len(self.script)}", "function")
        return ChatMessage(MessageRole.ASSISTANT, "", [call])


class Writes(Model):
    """A model that writes a program."""

    def __init__(self, code: str) -> None:
        super().__init__()
        self.code = code

    def generate(self, messages: Any, **options: Any) -> ChatMessage:
        return ChatMessage(MessageRole.ASSISTANT, f"Thought: easy.\n<code>\n{self.code}\n</code>")


def scripted(script: list[Call]) -> Scripted:
    return Scripted(script)


async def run(target: Any, script: list[Call], **options: Any) -> Conversation:
    return await asyncio.to_thread(_run, target, script, options)


def _run(target: Any, script: list[Call], options: dict[str, Any]) -> Conversation:
    if not isinstance(target, Client | ClientGroup):
        with ClientGroup(target) if isinstance(target, Mapping) else Client(target) as client:
            return _run(client, script, options)
    model = scripted(script)
    agent = ToolCallingAgent(smolagents.tools(target, **options), model, verbosity_level=LogLevel.OFF)
    answer = str(agent.run("go"))
    steps = [step for step in agent.memory.steps if getattr(step, "tool_calls", None) or getattr(step, "error", None)]
    told = [str(step.error.message if step.error else step.observations) for step in steps][:-1]
    return Conversation(told, answer, model.offered)
