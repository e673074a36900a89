"""What a server says of itself, in each era."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from gemel import Implementation
from gemel.protocol.description import ServerDescription
from gemel.protocol.eras.handshake import HANDSHAKE
from gemel.protocol.eras.stateless import STATELESS
from gemel.protocol.scopes import ScopeHierarchy
from gemel.schema.lifecycle import ListChanged, ServerCapabilities
from tests.fuzz.ends import ME, description_of
from tests.support import HANDSHAKE_REVISIONS, SERVER_INFO, STATELESS_REVISIONS

BOTH = (HANDSHAKE, STATELESS)


@pytest.mark.parametrize(
    ("eras", "revisions"),
    [
        (("2025", "2026"), (*STATELESS_REVISIONS[::-1], *HANDSHAKE_REVISIONS[::-1])),
        (("2025",), HANDSHAKE_REVISIONS[::-1]),
        (("2026",), STATELESS_REVISIONS[::-1]),
    ],
)
def test_it_lists_the_revisions_of_its_eras_newest_first(eras: Any, revisions: tuple[str, ...]) -> None:
    assert description_of(eras).revisions == revisions
    assert list(revisions) == sorted(revisions, reverse=True)


def test_capabilities_are_looked_up_when_they_are_asked_for() -> None:
    """A registry may grow while the server runs."""
    found = [ServerCapabilities(), ServerCapabilities(tools=ListChanged())]
    description = ServerDescription(ME, lambda: found.pop(0), eras=BOTH)
    assert description.capabilities_for(HANDSHAKE).tools is None
    assert description.capabilities_for(HANDSHAKE).tools is not None


def test_extensions_are_offered_by_era_and_only_where_there_are_any() -> None:
    """EXT-01."""
    description = ServerDescription(ME, ServerCapabilities, eras=BOTH)
    assert description.capabilities_for(STATELESS).extensions is None
    description.extensions = lambda era: {"extensions": {"com.example/x": {}}} if era is STATELESS else {}
    assert description.capabilities_for(STATELESS).extensions == {"com.example/x": {}}
    assert description.capabilities_for(HANDSHAKE).extensions is None


def test_its_identity_is_written_once() -> None:
    """REQM-07."""
    description = ServerDescription(Implementation(name="a", version="1", title="A"), ServerCapabilities, eras=BOTH)
    assert json.loads(msgspec.json.encode(description.result_meta)) == {
        SERVER_INFO: {"name": "a", "version": "1", "title": "A"}
    }


def test_what_it_was_made_with_is_what_others_find() -> None:
    hierarchy = ScopeHierarchy({"admin": ["read"]})
    description = ServerDescription(ME, ServerCapabilities, eras=BOTH, log_level="error", scope_hierarchy=hierarchy)
    assert (description.log_level, description.scope_hierarchy) == ("error", hierarchy)
