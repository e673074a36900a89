"""The client side of Streamable HTTP and HTTP+SSE."""
