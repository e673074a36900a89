# lists: add ping
# call: ping {} = pong
# fails: ping {"fail": true} = told to
# prompt: hello {"name": "Ann"} = Hello, Ann
# read: text://a = about text://a
# becomes: @server.request("tools/call")
import mcp.types as types
from mcp.server.lowlevel import Server
from pydantic import AnyUrl

TOOLS = {
    name: types.Tool(name=name, description=f"Do {name}.", inputSchema={"type": "object", "properties": {}})
    for name in ("ping", "add")
}


def build() -> Server:
    server = Server("elsewhere")

    @server.list_tools()
    async def list_tools() -> list[types.Tool]:
        return list(TOOLS.values())

    @server.call_tool()
    async def call_tool(name: str, arguments: dict) -> list[types.TextContent]:
        if arguments.get("fail"):
            raise ValueError("told to")
        return [types.TextContent(type="text", text="pong")]

    @server.list_prompts()
    async def list_prompts() -> list[types.Prompt]:
        return [types.Prompt(name="hello", arguments=[types.PromptArgument(name="name", required=True)])]

    @server.get_prompt()
    async def get_prompt(name: str, arguments: dict[str, str] | None) -> types.GetPromptResult:
        content = types.TextContent(type="text", text=f"Hello, {(arguments or {})['name']}")
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=content)])

    @server.list_resources()
    async def list_resources() -> list[types.Resource]:
        return [types.Resource(uri=AnyUrl("text://a"), name="a", mimeType="text/plain")]

    @server.read_resource()
    async def read_resource(uri: AnyUrl) -> str:
        return f"about {uri}"

    return server


mcp = build()
