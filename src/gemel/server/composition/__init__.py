"""Servers made of other servers: mounting, namespaces, changed tools."""
