# lists: get_time refresh
# call: get_time {} = 12:00
# call: refresh {} = fresh
# read: ui://clock/page.html = <!doctype html><title>Clock</title>
# read: ui://clock/small.html = <!doctype html><title>Small</title>
# becomes: @apps.tool(ui="ui://clock/page.html", audience="app")
# becomes: permissions=["clipboardWrite"]
# becomes: apps.add_page("ui://clock/small.html", "<!doctype html><title>Small</title>", name="small")
# becomes: if not Apps.shown_by(ctx)
# notes: neither list nor call the tools with audience='app'
from mcp.server.apps import APP_MIME_TYPE, EXTENSION_ID, Apps, ResourceCsp, ResourcePermissions, client_supports_apps
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resources import TextResource

apps = Apps()


@apps.tool(resource_uri="ui://clock/page.html", title="Time", visibility=["model", "app"])
def get_time(ctx: Context) -> str:
    """The time."""
    if not client_supports_apps(ctx):
        assert EXTENSION_ID.endswith("/ui") and APP_MIME_TYPE.startswith("text/html")
    return "12:00"


@apps.tool(resource_uri="ui://clock/page.html", visibility=["app"])
def refresh() -> str:
    """Read the time again."""
    return "fresh"


apps.add_html_resource(
    "ui://clock/page.html",
    "<!doctype html><title>Clock</title>",
    title="Clock",
    csp=ResourceCsp(connect_domains=["https://time.example.org"]),
    permissions=ResourcePermissions(clipboard_write={}),
    prefers_border=True,
)
apps.add_resource(
    TextResource(uri="ui://clock/small.html", name="small", text="<!doctype html><title>Small</title>")
)

mcp = MCPServer("clock", extensions=[apps])
