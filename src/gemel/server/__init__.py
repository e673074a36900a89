"""The server side: a registry of handlers, shared by all connections."""
