"""The backend of a part of authorization: one that was passed, one that is opened here, or that of the server."""

from __future__ import annotations

from gemel.backends import Backend, ServerBackend, backend_for


class Backing:
    """Holds a backend. One that is named by a URL is closed when the server stops, and opened again if it serves again.

    Args:
        source: The backend, its URL, or None for that of the server, if other processes share it, else the memory of this one.

    Raises:
        DefinitionError: The URL is unknown.
    """

    def __init__(self, source: Backend | str | None) -> None:
        self._source = source
        self._server: ServerBackend | None = None
        self.backend = backend_for(source)

    def use_backend(self, server: ServerBackend) -> None:
        """Keep things under the name of a server. The first one counts."""
        if self._server is None:
            self._server = server
            # What strangers store takes no room of the server in memory.
            self.backend = server if self._source is None and server.shared else server.part_of(self.backend)

    def missed_by_others(self, what: str) -> str:
        """What other processes miss, if it is in the memory of this one; else ""."""
        return "" if self.backend.shared else what

    async def close(self) -> None:
        """Close the backend if it was opened here. Memory is kept."""
        if isinstance(self._source, str) and self._source != "memory://":
            backend, opened = self.backend, backend_for(self._source)
            self.backend = opened if self._server is None else self._server.part_of(opened)
            await backend.close()
