"""The tools of MCP servers in the form of agent frameworks: one module for each, loaded when it is imported."""
