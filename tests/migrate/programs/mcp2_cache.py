# lists: now
# call: now {} = noon
# becomes: cache={"tools/list": CacheHint(ttl=60, scope="public"), "resources/list": CacheHint(ttl=HALF / 1000)}
from mcp.server import CacheHint, MCPServer

HALF = 500

mcp = MCPServer("clock", cache_hints={"tools/list": CacheHint(60_000, "public"), "resources/list": CacheHint(ttl_ms=HALF)})


@mcp.tool()
def now() -> str:
    return "noon"
