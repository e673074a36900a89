"""The program whose files are kept: a server with tasks and a policy, and the values that a program puts into a backend.

It uses public names only, so that every later version can run it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gemel import Context, Server, Tasks
from gemel.auth import Tokens
from gemel.backends import Backend

#: For the tasks, which are kept until they are read by a later version.
CENTURIES = 1e10
#: How often the step of a task has run in this process.
RAN: list[int] = []
VALUE, ENTRIES = b'{"rooms":7}', [b"first", b"second", bytes(range(256))]
RESOURCE = "https://notes.example/mcp"
LOGIN = Tokens(
    access_token="an access token",
    refresh_token="a refresh token",
    expires_at=1_800_000_000.0,
    issued_at=1_799_996_400.0,
    scopes=("notes", "offline_access"),
    issuer="https://login.example",
    token_endpoint="https://login.example/token",
    client={"client_id": "notes client"},
)
CONFIGURATION: Mapping[str, Any] = {
    "mcpServers": {
        "office": {"command": "${OFFICE_PYTHON}", "args": ["${OFFICE_FILE}"], "env": {"OFFICE": "green"}},
        "shop": {"type": "http", "url": "${SHOP_URL:-http://127.0.0.1:9/mcp}", "headers": {"X-Team": "green"}},
    }
}
POLICY = """\
default = "deny"

[[rule]]
name = "small groups"
tool = "book"
arguments.people = { min = 1, max = 4 }
effect = "allow"
"""


def written_program(folder: Path) -> Path:
    """A file that starts the server; it needs nothing but Gemel and this checkout."""
    root = str(Path(__file__).parents[2])
    file = folder / "office.py"
    file.write_text(f"import sys\n\nsys.path.insert(0, {root!r})\n{_START}")
    return file


_START = """
from tests.upgrade.program import make_server

server = make_server()

if __name__ == "__main__":
    server.run()
"""


def count(year: int) -> int:
    """The step of a task."""
    RAN.append(year)
    return year % 100


def make_server(backend: Backend | None = None) -> Server[Any]:
    """A server whose tasks are in the backend, in memory without one."""
    server: Server[Any] = Server("office", version="1.0", backend=backend)
    server.add_extension(Tasks(ttl=CENTURIES, max_ttl=CENTURIES))

    @server.tool(task=True)
    async def report(year: int, ctx: Context, ask: bool = False) -> str:
        """Write the report of a year."""
        pages = await ctx.step(count, year)
        if ask and await ctx.elicit("Add a summary?", bool):
            return f"{pages} pages and a summary"
        return f"{pages} pages"

    @server.tool
    def book(people: int) -> str:
        """Book a table."""
        return f"A table for {people}"

    @server.resource("notes://today")
    def today() -> str:
        """The note of today."""
        return "Water the plants"

    @server.prompt
    def letter(to: str) -> str:
        """A letter."""
        return f"Write to {to}"

    return server
