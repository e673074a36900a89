"""The server side of Streamable HTTP and HTTP+SSE, as an ASGI app and on connections of our own."""
