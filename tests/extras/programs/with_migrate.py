"""A program for FastMCP becomes one for Gemel."""

from gemel.migrate import migrate_source

OLD = """from fastmcp import FastMCP

mcp = FastMCP("shop")


@mcp.tool
def tea() -> str:
    # Water first.
    return "tea"
"""

new = migrate_source(OLD).source
assert "from gemel import Server" in new, new
assert "# Water first." in new, new
