# only: rewrite
# becomes: mcp.run("http", allowed_hosts=["*"], host="127.0.0.1", port=8001
# becomes: async with other.open():
# notes: every Host is accepted, as before
# notes: events are kept for replay by themselves
import contextlib

from elsewhere import events, other

from mcp.server.fastmcp import FastMCP
from mcp.server.transport_security import TransportSecuritySettings

mcp = FastMCP(
    "notes",
    host="127.0.0.1",
    port=8001,
    event_store=events,
    transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
)


@mcp.tool()
def add(a: int, b: int) -> int:
    return a + b


@contextlib.asynccontextmanager
async def lifespan(app):
    async with mcp.session_manager.run(), other.open():
        yield


if __name__ == "__main__":
    mcp.run("streamable-http")
