"""The server that the agents of all frameworks meet."""

import base64
from dataclasses import dataclass

from gemel import (
    AudioContent,
    Context,
    EmbeddedResource,
    Image,
    ImageContent,
    Message,
    ResourceContents,
    ResourceLink,
    Server,
    TextContent,
    ToolError,
)
from gemel.client.group.names import name_for_models

server = Server("pantry", version="1.0", instructions="Count before you cook.")

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@dataclass
class Weather:
    city: str
    celsius: float


@server.tool(annotations={"read_only_hint": True})
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@server.tool
async def weather(city: str) -> Weather:
    """The weather of a city."""
    return Weather(city, 21.5)


@server.tool
async def fail(reason: str) -> str:
    """Fail."""
    raise ToolError(f"it failed: {reason}")


@server.tool(name="get-total")
async def get_total(prices: list[float], tax: float | None = None) -> str:
    """The sum of prices."""
    return f"total {sum(prices) + (tax or 0):g}"


@server.tool
async def names(config: str, run_manager: str, callbacks: str, input: str, tool: str, name: str) -> str:
    """Arguments that are called like parameters of frameworks."""
    return " ".join((config, run_manager, callbacks, input, tool, name))


@server.tool
async def picture() -> Image:
    """A picture."""
    return Image(data=PNG, format="png")


@server.tool
async def mixed() -> list[TextContent | ImageContent | AudioContent | EmbeddedResource | ResourceLink]:
    """One block of each kind."""
    data = base64.b64encode(PNG).decode()
    return [
        TextContent(text="see"),
        ImageContent(data=data, mime_type="image/png"),
        AudioContent(data=data, mime_type="audio/wav"),
        EmbeddedResource(resource=ResourceContents(uri="pantry://list", text="tea, rice", mime_type="text/plain")),
        EmbeddedResource(resource=ResourceContents(uri="pantry://pdf", blob=data, mime_type="application/pdf")),
        ResourceLink(uri="pantry://tea", name="tea"),
    ]


@server.tool
async def asks(ctx: Context) -> str:
    """Ask the user, and report progress."""
    await ctx.report_progress(1, 2)
    return f"Hello {await ctx.elicit('Your name?', str)}"


@server.resource("pantry://tea", mime_type="text/plain")
async def tea() -> str:
    """How much tea there is."""
    return "two bags"


@server.prompt
async def cook(dish: str) -> list[Message]:
    """Talk about a dish."""
    return [Message(f"How is {dish} cooked?"), Message("Slowly.", role="assistant")]


#: A server whose tool has a name that models don't take, and the name that it gets.
odd_server = Server("odd")
odd_server.tool(lambda: "found", name="files.read")
SHORT_NAME = name_for_models("files.read")


if __name__ == "__main__":
    server.run()
