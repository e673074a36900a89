# fails: check {} = too small
# becomes: raise ToolError("too small")
# becomes: raise InvalidParams("not here")
from mcp.server.fastmcp import FastMCP
from mcp.shared.exceptions import McpError
from mcp.types import INVALID_PARAMS, ErrorData

mcp = FastMCP("errors")


def refuse() -> None:
    raise McpError(ErrorData(code=INVALID_PARAMS, message="not here"))


@mcp.tool()
def check() -> str:
    raise McpError(ErrorData(code=INVALID_PARAMS, message="too small"))
