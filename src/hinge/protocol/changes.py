"""Changes that servers publish and clients receive. They say that something changed, not how."""

from __future__ import annotations

import msgspec


class Changed(msgspec.Struct, frozen=True):
    """Something changed.

    Args:
        kind: `"tools"`, `"prompts"` or `"resources"` (the lists), `"resource"` (the one named by `uri`), or a kind of an
            extension, with `uri` as its key.
        uri: The resource, or the key.
    """

    kind: str
    uri: str | None = None


def covers(watched: str, changed: str) -> bool:
    """Whether a subscription to one URI covers a change of another: the same one, or one below it."""
    return changed == watched or (
        changed.startswith(watched) and (watched.endswith("/") or changed[len(watched)] in "/?#")
    )


class ChangesLost(msgspec.Struct, frozen=True):
    """Changes may have been lost: read everything again that is subscribed to.

    Args:
        reason: Why.
    """

    reason: str = ""
