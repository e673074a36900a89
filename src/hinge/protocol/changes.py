"""Hints that something changed: what servers publish and clients hear. A hint says "look again", not what changed."""

from __future__ import annotations

import msgspec


class Changed(msgspec.Struct, frozen=True):
    """Something changed. `kind` is "tools", "prompts" or "resources" (the lists), "resource" (one, named by `uri`), or an
    extension's own word, with `uri` as its key."""

    kind: str
    uri: str | None = None


def covers(watched: str, changed: str) -> bool:
    """Whether a change of one URI concerns who watches the other: the same, or below it."""
    return changed == watched or (
        changed.startswith(watched) and (watched.endswith("/") or changed[len(watched)] in "/?#")
    )


class ChangesLost(msgspec.Struct, frozen=True):
    """Hints may have been lost: look again at everything that is listened to. `reason` says why."""

    reason: str = ""
