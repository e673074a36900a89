"""An agent of LangChain with a scripted model."""

from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field

from gemel.adapters import langchain
from tests.adapters.conversation import Call, Conversation, connected


class Scripted(BaseChatModel):
    script: list[Call]
    offered: dict[str, Any] = Field(default_factory=dict)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        functions = [convert_to_openai_tool(tool)["function"] for tool in tools]
        self.offered.update({one["name"]: one["parameters"] for one in functions})
        return self

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> ChatResult:
        if self.script:
            name, arguments = self.script.pop(0)
            message = AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": f"call-{len(self.script)}"}])
        else:
            message = AIMessage("done")
        return ChatResult(generations=[ChatGeneration(message=message)])


def scripted(script: list[Call]) -> Scripted:
    return Scripted(script=list(script))


async def run(target: Any, script: list[Call], **options: Any) -> Conversation:
    model = scripted(script)
    async with connected(target) as client:
        agent = create_agent(model, await langchain.tools(client, **options))
        state = await agent.ainvoke({"messages": [("user", "go")]})
    told = [str(message.content) for message in state["messages"] if isinstance(message, ToolMessage)]
    return Conversation(told, state["messages"][-1].text, model.offered)
