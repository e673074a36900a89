"""What a client agreed with its server: the era, the revision, who the server is and what it offers."""

from __future__ import annotations

from typing import Any

from hinge.client.connection import Link
from hinge.client.negotiation import Discovery
from hinge.client.targets import words_of
from hinge.errors import NotSent, shorten
from hinge.protocol.eras.base import EraName
from hinge.schema.base import Implementation
from hinge.schema.lifecycle import ServerCapabilities


class Agreed:
    """The part of a client that is known once it has connected."""

    _link: Link
    _target: Any

    @property
    def discovery(self) -> Discovery:
        """What the server turned out to be; save it to connect later without a round trip. Raises NotSent before that."""
        if self._link.found is None:
            raise NotSent("The client is not connected: use `async with Client(…)` or await `connect()`")
        return self._link.found

    @property
    def era(self) -> EraName:
        """The era in use."""
        return self.discovery.era

    @property
    def protocol_version(self) -> str:
        """The revision in use."""
        return self.discovery.revision

    @property
    def server_info(self) -> Implementation | None:
        """Who the server says it is; display data."""
        return self.discovery.server_info

    @property
    def server_capabilities(self) -> ServerCapabilities:
        """What the server offers."""
        return self.discovery.capabilities

    def _described(self) -> str:
        """The server in words: what it calls itself, which anybody may, and where it was found."""
        found = self._link.found
        name = found.server_info.name if found is not None and found.server_info is not None else "a server"
        return f"{shorten(name)} ({words_of(self._target)})"

    @property
    def instructions(self) -> str | None:
        """How the server wants to be used, in its own words."""
        return self.discovery.instructions

    @property
    def mirrors(self) -> bool:
        """Whether tool arguments go into headers: the stateless era over HTTP (HDR-13)."""
        found = self._link.found
        return found is not None and found.era == "2026" and self._link.on_http

    def server_extension(self, extension_id: str) -> dict[str, Any] | None:
        """The server's settings of an extension, None if it doesn't offer it (EXT-04)."""
        offered = self.discovery.capabilities.extensions
        return offered.get(extension_id) if offered else None
