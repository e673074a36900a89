"""`gemel dev`: an inspector of MCP servers. A web app that connects to one server in both eras; see docs/reference/dev.md."""
