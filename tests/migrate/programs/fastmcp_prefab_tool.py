# lists: again chart plain
# call: plain {} = 1
# becomes: apps = mcp.add_extension(PrefabApps())
# becomes: @apps.ui(name="chart")
# becomes: @apps.ui
from prefab_ui.components import Column, Heading

from fastmcp import FastMCP

mcp = FastMCP("Chart")


@mcp.tool(app=True, name="chart")
def sales(stacked: bool = False) -> Column:
    """Show a chart."""
    with Column() as view:
        Heading("Sales")
    return view


@mcp.tool
def again() -> Column | None:
    """Show another one."""
    with Column() as view:
        Heading("Again")
    return view


@mcp.tool
def plain() -> int:
    """Count."""
    return 1
