"""Faults of peers: steps that go wrong whoever stands at the other end, each with what the peer does.

An excuse names as little as it can; None stands for any. The runner says so when one was not needed.
"""

from dataclasses import dataclass

from tests.interop.judge import Cell


@dataclass(frozen=True)
class Excuse:
    """The cells and the step that it is for, and why."""

    why: str
    step: str
    client: str | None = None
    server: str | None = None
    transport: str | None = None
    era: str | None = None
    sometimes: bool = False
    """Whether the step goes well now and then."""

    def __str__(self) -> str:
        named = (self.client, self.server, self.transport, self.era)
        return f"{self.step} of {' '.join(one for one in named if one)}: {self.why}"

    def covers(self, cell: Cell, step: str) -> bool:
        """Whether it is for this step of this cell."""
        pairs = (
            (self.client, cell.client),
            (self.server, cell.server),
            (self.transport, cell.transport),
            (self.era, cell.era),
        )
        return step == self.step and all(wanted in (None, found) for wanted, found in pairs)


_CAPPED = "the client caps an SSE event at 1 MiB and fails the call; this server's answers come as one"
_MISSING = "the server says -32602 in the handshake era, too, whose revisions want -32002"

EXCUSES = (
    *(
        Excuse("the client reads the first page of a list only", "list_tools", client=client)
        for client in ("llamaindex", "google-adk", "mcp-use")
    ),
    Excuse(
        "the client drops a notification that is directly followed by the result, as the server behind the proxy sends it",
        "progress",
        client="typescript",
        server="proxy",
        era="2025",
        sometimes=True,
    ),
    Excuse(
        "the client reports progress of its own between the rounds of a call",
        "progress",
        client="typescript",
        server="proxy",
        era="2026",
        sometimes=True,
    ),
    *(
        Excuse(_CAPPED, "huge", client=client, server=server, transport="http", era="2025")
        for client in ("python", "fastmcp")
        for server in ("python", "typescript", "fastmcp")
    ),
    *(
        Excuse("the client fails if an answer comes while it closes", "close", client=client, transport="stdio")
        for client in ("mcp-1.12", "mcp-1.26")
    ),
    Excuse(
        "the client raises its own error for -32002, which says -32602", "read_missing", client="typescript", era="2025"
    ),
    Excuse(_MISSING, "read_missing", server="python", era="2025"),
    Excuse(_MISSING, "read_missing", server="fastmcp", era="2025"),
    Excuse(_MISSING, "read_missing", server="typescript", era="2025"),
    Excuse("the server answers with code 0, or -32603, where -32602 is meant", "prompt_missing", server="python"),
    Excuse("the server answers with code 0, or -32603, where -32602 is meant", "prompt_incomplete", server="python"),
    Excuse("the server completes the argument of an unknown prompt to nothing", "complete_nothing", server="fastmcp"),
)


def excused(cell: Cell, step: str) -> Excuse | None:
    """The excuse for a step that went wrong, if there is one."""
    return next((excuse for excuse in EXCUSES if excuse.covers(cell, step)), None)
