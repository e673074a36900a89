"""Typed Python modules for servers: what a server lists becomes functions with types. Nothing of a server's words is code."""
