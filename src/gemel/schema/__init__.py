"""The typed messages of MCP in their newest shape: data, one file per feature. `revisions.py` says what came when."""
