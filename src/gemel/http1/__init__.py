"""HTTP/1.1 over asyncio and httptools, server and client. Imports nothing of MCP."""
