"""The published revisions in order, and which behaviour came or left with which. Revision names compare like dates."""

from __future__ import annotations

from typing import Literal, get_args

FIRST = "2024-11-05"
V2025_03 = "2025-03-26"
V2025_06 = "2025-06-18"
V2025_11 = "2025-11-25"
V2026_07 = "2026-07-28"

#: The handshake revisions, oldest first. The list is closed: a name that isn't here is no handshake revision (C-032).
HANDSHAKE_REVISIONS = (FIRST, V2025_03, V2025_06, V2025_11)
#: The stateless revisions, oldest first.
STATELESS_REVISIONS = (V2026_07,)
REVISIONS = HANDSHAKE_REVISIONS + STATELESS_REVISIONS

Behaviour = Literal["batches", "argument results", "version header", "priming event"]

_WINDOWS: dict[str, tuple[str, str]] = {
    # BASE-11, BASE-13
    "batches": (V2025_03, V2025_03),
    # TOOL-20, TOOL-21: bad arguments are a result that the model reads, no protocol error
    "argument results": (V2025_11, V2026_07),
    # LHTTP-27
    "version header": (V2025_06, V2026_07),
    # LHTTP-08: a stream opens with an id and empty data
    "priming event": (V2025_11, V2025_11),
}
assert set(_WINDOWS) == set(get_args(Behaviour))


def knows(revision: str, behaviour: Behaviour) -> bool:
    """Whether the revision has this behaviour."""
    first, last = _WINDOWS[behaviour]
    return first <= revision <= last
