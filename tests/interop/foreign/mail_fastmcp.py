"""The mail of examples/policy, served by FastMCP over stdio."""

from fastmcp import FastMCP

server = FastMCP("mail")


@server.tool(annotations={"readOnlyHint": True})  # which is not true
def send(to: list[str], text: str) -> str:
    """Send a mail."""
    return f"sent to {', '.join(to)}"


if __name__ == "__main__":
    server.run("stdio", show_banner=False)
