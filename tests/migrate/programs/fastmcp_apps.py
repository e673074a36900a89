# lists: draw refresh show
# call: draw {} = drawn
# call: refresh {} = fresh
# call: show {} = shown
# read: ui://shapes/view.html = <!doctype html><title>Shapes</title>
# read: ui://shapes/plain.html = <!doctype html><title>Plain</title>
# becomes: shapes_apps = shapes.add_extension(Apps())
# becomes: @apps.page("ui://shapes/plain.html")
# becomes: permissions=["camera", "clipboardWrite"]
# becomes: @apps.tool(ui=VIEW)
# notes: AppConfig(prefers_border=…) of a tool was left out: give it to @apps.page(…)
from fastmcp import FastMCP
from fastmcp.apps import AppConfig, ResourceCSP, ResourcePermissions

VIEW = "ui://shapes/view.html"
mcp = FastMCP("apps")


@mcp.tool(app=AppConfig(resource_uri=VIEW))
def draw() -> str:
    """Draw a shape."""
    return "drawn"


@mcp.tool(app=AppConfig(resource_uri=VIEW, visibility=["app"], prefers_border=True))
def refresh() -> str:
    """Draw it again."""
    return "fresh"


@mcp.tool(app=AppConfig(resource_uri="ui://shapes/plain.html", visibility=["app", "model"]), tags={"a"})
def show() -> str:
    """Show it."""
    return "shown"


@mcp.resource(
    VIEW,
    app=AppConfig(
        csp=ResourceCSP(resource_domains=["https://cdn.example.org"]),
        permissions=ResourcePermissions(camera={}, clipboard_write={}),
    ),
)
def view() -> str:
    """The page."""
    return "<!doctype html><title>Shapes</title>"


@mcp.resource("ui://shapes/plain.html")
def plain() -> str:
    """The other page."""
    return "<!doctype html><title>Plain</title>"


shapes = FastMCP("shapes")


@shapes.resource("ui://other/page.html")
def other() -> str:
    """A page of another server."""
    return "<!doctype html><title>Other</title>"
