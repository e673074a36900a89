"""The backend of a part of authorization: an object that was passed, or one that is opened here and closed with the server."""

from __future__ import annotations

from gemel.backends import Backend, backend_for


class Backing:
    """Holds a backend. One that is named by a URL is closed when the server stops, and opened again if it serves again.

    Args:
        source: The backend, its URL, or None for the memory of this process.

    Raises:
        DefinitionError: The URL is unknown.
    """

    def __init__(self, source: Backend | str | None) -> None:
        self.backend = backend_for(source)
        #: None for what others close, and for memory, which would be lost.
        self._url = source if isinstance(source, str) and source != "memory://" else None

    async def close(self) -> None:
        """Close the backend if it was opened here."""
        if self._url is not None:
            backend, self.backend = self.backend, backend_for(self._url)
            await backend.close()
