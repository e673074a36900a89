# lists: add
# becomes: allowed_hosts=["notes.example.com", "notes.example.com:*"], allowed_origins=["https://app.example.com"]
# becomes: routes={"/health": Route("/health", health, methods=["GET"])}
# becomes: app = Starlette(routes=[Mount("/", app=inner)])
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount

from mcp.server import MCPServer
from mcp.server.transport_security import TransportSecuritySettings

mcp = MCPServer("notes")


@mcp.tool()
def add(a: int, b: int) -> int:
    return a + b


@mcp.custom_route("/health", methods=["GET"])
async def health(request: Request) -> Response:
    return JSONResponse({"status": "ok"})


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(mcp.session_manager.run())
        yield


security = TransportSecuritySettings(
    allowed_hosts=["notes.example.com", "notes.example.com:*"], allowed_origins=["https://app.example.com"]
)
inner = mcp.streamable_http_app(transport_security=security)
app = Starlette(routes=[Mount("/", app=inner)], lifespan=lifespan)
