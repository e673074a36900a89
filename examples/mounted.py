"""An MCP server mounted in a web application. Run `uvicorn mounted:app` in this directory, then
`gemel call http://127.0.0.1:8000/tools/mcp add a=2 b=3`. FastAPI uses the same `mount`.
"""

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from gemel import Server

server = Server("calculator", version="1.0")


@server.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def home(request: Request) -> PlainTextResponse:
    """A page of the application."""
    return PlainTextResponse("The MCP endpoint is /tools/mcp")


app = Starlette(routes=[Route("/", home), Mount("/tools", server.http_app())])
