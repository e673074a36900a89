# only: rewrite
# notes: @server.tool(app=…): write apps = server.add_extension(Apps()) where the server is made
# notes: `fastmcp.apps.approval.Approval`: await ctx.elicit(question, bool) in the tool
# notes: Server(providers=…): use include(), mount(), add_files() or add_skills()
from fastmcp import FastMCP
from fastmcp.apps import AppConfig
from fastmcp.apps.approval import Approval

CONFIG = AppConfig(resource_uri="ui://shapes/view.html")
mcp = FastMCP("apps", providers=[Approval()])


@mcp.tool(app=CONFIG)
def draw() -> str:
    return "drawn"


def register(server: FastMCP) -> None:
    @server.tool(app=AppConfig(resource_uri="ui://shapes/view.html"))
    def show() -> str:
        return "shown"
