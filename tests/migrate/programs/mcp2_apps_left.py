# only: rewrite
# notes: apps.add_resource(…): write @apps.page(uri), or apps.add_page(uri, path)
# notes: visibility=… was left out: write audience="model" or audience="app"
# notes: permissions=… was left out: write permissions=['camera', …] of the page
from mcp.server.apps import Apps, ResourcePermissions
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.resources import FunctionResource

AUDIENCE = ["app"]
ASKED = {"camera": {}}
apps = Apps()


@apps.tool(resource_uri="ui://clock/page.html", visibility=AUDIENCE)
def get_time() -> str:
    return "12:00"


apps.add_resource(FunctionResource.from_function(lambda: "<html>", uri="ui://clock/page.html", name="page"))
apps.add_html_resource("ui://clock/b.html", "<!doctype html>", permissions=ResourcePermissions(**ASKED))

mcp = MCPServer("clock", extensions=[apps])
