"""Typed Python modules for servers: each tool, prompt and resource template becomes a method with types."""
