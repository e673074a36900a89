# answers: {}
# call: declared {} = ["elicitation"]
# becomes: if declares(ctx.client_capabilities, capability)
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import ClientCapabilities, ElicitationCapability, RootsCapability, SamplingCapability

mcp = MCPServer("features")


@mcp.tool()
def declared(ctx: Context) -> list[str]:
    wanted = {
        "elicitation": ClientCapabilities(elicitation=ElicitationCapability()),
        "sampling": ClientCapabilities(sampling=SamplingCapability()),
        "roots": ClientCapabilities(roots=RootsCapability()),
        "extension": ClientCapabilities(extensions={"com.example/a": {}}),
    }
    return [name for name, capability in wanted.items() if ctx.session.check_client_capability(capability)]
