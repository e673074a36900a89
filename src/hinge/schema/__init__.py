"""The typed messages of MCP in their newest shape: data only, one file per feature. `revisions.py` says what is newer than what."""
