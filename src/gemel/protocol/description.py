"""What a server says about itself: identity, capabilities, revisions; one object that all its connections share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from gemel.protocol.eras.base import Era
from gemel.protocol.records import RefusedMessage
from gemel.protocol.scopes import NO_HIERARCHY, ScopeHierarchy
from gemel.schema.base import SERVER_INFO, Implementation
from gemel.schema.lifecycle import ServerCapabilities


class ServerDescription:
    """Identity, instructions, eras and capabilities; capabilities are computed for each `initialize` and discovery."""

    __slots__ = (
        "ask",
        "capabilities",
        "eras",
        "extensions",
        "info",
        "instructions",
        "log_level",
        "on_refused",
        "result_meta",
        "revisions",
        "scope_hierarchy",
    )

    def __init__(
        self,
        info: Implementation,
        capabilities: Callable[[], ServerCapabilities],
        *,
        eras: tuple[Era, ...],
        instructions: str | None = None,
        log_level: str | None = "info",
        scope_hierarchy: ScopeHierarchy = NO_HIERARCHY,
    ) -> None:
        self.capabilities = capabilities
        #: What extensions add to the capabilities in an era, by member.
        self.extensions: Callable[[Era], dict[str, Any]] = lambda era: {}
        #: Called with each message that is refused before any middleware sees it.
        self.on_refused: Callable[[RefusedMessage], None] | None = None
        #: Asks people elsewhere than at their clients, as `gemel.server.elicitation.elsewhere` defines it.
        self.ask: object = None
        #: The eras that are served, the oldest first.
        self.eras = eras
        #: All supported revisions, newest first: the same list in discovery and in errors.
        self.revisions: tuple[str, ...] = tuple(revision for era in eras[::-1] for revision in era.revisions[::-1])
        self.instructions = instructions
        #: The level of log messages for handshake clients that never set one; None for no messages.
        self.log_level = log_level
        #: What the scopes of its callers include.
        self.scope_hierarchy = scope_hierarchy
        self.identify(info)

    def identify(self, info: Implementation) -> None:
        """Set the identity that clients see."""
        self.info = info
        #: The `_meta` of a stateless result that has none of its own, encoded once.
        self.result_meta: dict[str, Any] = {SERVER_INFO: msgspec.Raw(msgspec.json.encode(info))}

    def capabilities_for(self, era: Era) -> ServerCapabilities:
        """The capabilities, with what the extensions of this era add."""
        capabilities = self.capabilities()
        added = self.extensions(era)
        return msgspec.structs.replace(capabilities, **added) if added else capabilities
