"""Where a client becomes a server: what one MCP server offers is offered again, to clients of either era."""
