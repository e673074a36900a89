"""What a server says of itself, computed once per change of its registry and shared by all its connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from hinge.protocol.calls import EraName
from hinge.schema.base import SERVER_INFO, Implementation
from hinge.schema.lifecycle import ServerCapabilities
from hinge.schema.revisions import HANDSHAKE_REVISIONS, STATELESS_REVISIONS


class ServerDescription:
    """Identity, instructions, eras and capabilities, which are asked for at each `initialize` and discovery."""

    __slots__ = ("capabilities", "eras", "extensions", "info", "instructions", "log_level", "result_meta", "revisions")

    def __init__(
        self,
        info: Implementation,
        capabilities: Callable[[], ServerCapabilities],
        *,
        eras: tuple[EraName, ...] = ("2025", "2026"),
        instructions: str | None = None,
        log_level: str | None = "info",
    ) -> None:
        self.info = info
        self.capabilities = capabilities
        #: The settings of the extensions that are announced in an era, by their ids (EXT-01, EXT-03).
        self.extensions: Callable[[EraName], dict[str, dict[str, Any]]] = lambda era: {}
        self.eras = eras
        #: All supported revisions, newest first: the same list in discovery and in errors (T-07).
        self.revisions: tuple[str, ...] = (STATELESS_REVISIONS[::-1] if "2026" in eras else ()) + (
            HANDSHAKE_REVISIONS[::-1] if "2025" in eras else ()
        )
        self.instructions = instructions
        #: What a handshake client hears of that never set a level; None for silence (LOG-03, B-015).
        self.log_level = log_level
        #: The `_meta` of a stateless result that has none of its own (REQM-07), encoded once.
        self.result_meta: dict[str, Any] = {SERVER_INFO: msgspec.Raw(msgspec.json.encode(info))}

    def capabilities_in(self, era: EraName) -> ServerCapabilities:
        """The capabilities with the extensions of this era."""
        found = self.capabilities()
        extensions = self.extensions(era)
        return msgspec.structs.replace(found, extensions=extensions) if extensions else found
