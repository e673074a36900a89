# lists: list_resources read_resource
# call: list_resources {} = "[\n  {\n    \"uri\": \"config://app\",\n    \"name\": \"app\",\n    \"description\": \"The settings.\",\n    \"mime_type\": \"text/plain\"\n  },\n  {\n    \"uri_template\": \"user://{name}\",\n    \"name\": \"user\",\n    \"description\": \"A user.\"\n  }\n]"
# call: read_resource {"uri": "config://app"} = "{\"debug\": false}"
# call: read_resource {"uri": "user://ann"} = "user ann"
# becomes: mcp.include(resource_tools(structured_text=True))
# differs: description differs
from fastmcp import FastMCP
from fastmcp.server.transforms import ResourcesAsTools

mcp = FastMCP("settings")


@mcp.resource("config://app", mime_type="text/plain")
def app() -> str:
    """The settings."""
    return '{"debug": false}'


@mcp.resource("user://{name}")
def user(name: str) -> str:
    """A user."""
    return f"user {name}"


mcp.add_transform(ResourcesAsTools(mcp))
