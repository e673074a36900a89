# lists: greet
# call: greet {"name": "Ann"} = Hi Ann
# becomes: @mcp.request("completion/complete")
from mcp.server.mcpserver import MCPServer
from mcp.types import Completion, CompletionArgument, CompletionContext, PromptReference, ResourceTemplateReference

mcp = MCPServer("greeter")


@mcp.tool()
def greet(name: str) -> str:
    return f"Hi {name}"


@mcp.prompt()
def letter(language: str) -> str:
    return f"Write a letter in {language}."


@mcp.completion()
async def complete(
    ref: PromptReference | ResourceTemplateReference, argument: CompletionArgument, context: CompletionContext | None
) -> Completion | None:
    if isinstance(ref, PromptReference) and (context is None or not context.arguments):
        return Completion(values=[one for one in ("English", "Estonian") if one.startswith(argument.value)])
    return None
