# call: save {"name": "short", "instruction": "Be short."} = "saved"
# call: save {"name": "short", "instruction": "Be very short."} = "saved"
# prompt: short {"text": "Hello"} = Be very short. Hello
# prompt: greet {"name": "Ada"} = Hello Ada
# read: text://motto = Read more.
# read: text://count = 3
# becomes: with suppress(KeyError):
# becomes: mcp.prompt(template, name=name, description=instruction)
# becomes: mcp.resource("text://motto", name="motto", mime_type="text/plain")(lambda: "Read more.")
from contextlib import suppress

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.prompts.base import AssistantMessage, Prompt, UserMessage
from mcp.server.mcpserver.resources import FunctionResource, TextResource

mcp = MCPServer("library")


@mcp.tool()
def save(name: str, instruction: str) -> str:
    def template(text: str) -> str:
        return f"{instruction} {text}"

    with suppress(ValueError):
        mcp.remove_prompt(name)
    mcp.add_prompt(Prompt.from_function(template, name=name, description=instruction))
    return "saved"


@mcp.prompt()
def greet(name: str) -> list[UserMessage | AssistantMessage]:
    return [AssistantMessage("Whom?"), UserMessage(f"Hello {name}")]


def count() -> str:
    return "3"


mcp.add_resource(TextResource(uri="text://motto", name="motto", text="Read more."))
mcp.add_resource(FunctionResource(uri="text://count", name="count", fn=count))
