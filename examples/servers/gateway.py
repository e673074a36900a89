"""All servers of a host's configuration as one. Those that can't be reached are named in the log, and tried again."""

import os

from gemel import Server

server = Server.from_config(os.environ.get("GATEWAY", "mcp.json"))

if __name__ == "__main__":
    server.run()
