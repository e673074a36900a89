"""A REST API with a token as tools, without the operations that delete. TRACKER_TOKEN is the token."""

import os
from pathlib import Path

from gemel import Server

server = Server.from_openapi(
    Path(__file__).with_name("tracker.json"),
    base_url=os.environ.get("TRACKER_URL"),
    headers={"Authorization": f"Bearer {os.environ['TRACKER_TOKEN']}"},
    operations=lambda operation: operation.method != "DELETE",
)

if __name__ == "__main__":
    server.run()
