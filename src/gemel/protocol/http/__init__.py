"""HTTP as MCP uses it, without I/O: headers, media types, server-sent events."""
