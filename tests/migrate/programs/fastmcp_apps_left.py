# only: rewrite
# notes: @server.tool(app=…): write apps = server.add_extension(Apps()) where the server is made
# notes: a server has one object of apps: register the tools and pages of both at one
# notes: @server.tool(app=True): return a PrefabApp or a component of Prefab
# notes: @apps.page(uri): return the HTML document, a str
# becomes: @mcp.resource("ui://shapes/raw", mime_type="text/html")
# notes: `fastmcp.apps.approval.Approval`: await ctx.elicit(question, bool) in the tool
# notes: Server(providers=…): use include(), mount(), add_files() or add_skills()
from fastmcp import FastMCP, FastMCPApp
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


@mcp.resource("ui://shapes/raw", mime_type="text/html")
def raw() -> str:
    return "<b>raw</b>"


@mcp.resource("ui://shapes/bytes")
def as_bytes() -> bytes:
    return b"<!doctype html>"


@mcp.tool(app=True)
def numbers() -> dict[str, int]:
    return {"a": 1}


app = FastMCPApp("other")
mcp.add_provider(app)
