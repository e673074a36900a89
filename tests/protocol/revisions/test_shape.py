"""What is written in the newest shape and leaves for an older peer is what that peer's revision published, no more."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from gemel import CreateMessageResult, ElicitUrlParams, Implementation
from gemel.protocol.description import ServerDescription
from gemel.protocol.eras.detect import ERAS
from gemel.protocol.eras.stateless import STATELESS
from gemel.protocol.revisions.adapt import TooNew, known_in, shape
from gemel.schema.lifecycle import DiscoverResult, InitializeParams, InitializeResult, ServerCapabilities
from gemel.schema.revisions import TYPES, knows, within
from gemel.schema.subscriptions import ListenResult
from tests.schema.instances import MODELS, drawn, full
from tests.support import (
    CLIENT_CAPABILITIES,
    HANDSHAKE_REVISIONS,
    PROTOCOL_VERSION,
    REVISIONS,
    SUBSCRIPTION_ID,
    V2026_07,
    Model,
    Result,
)
from tests.wire_schema import problems
from tests.wire_table import Member, read_table

sparing = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])

DESCRIPTION = ServerDescription(Implementation(name="s", version="1"), ServerCapabilities, eras=tuple(ERAS.values()))
ENVELOPE = {PROTOCOL_VERSION: V2026_07, CLIENT_CAPABILITIES: {}}
#: In the stateless revision no requests, but what a result asks for.
ASKED = frozenset({"elicitation/create", "sampling/createMessage", "roots/list"})
NO_META = Member("_meta", True, "object", frozenset())
NAMES = {
    "ResourceContents": "TextResourceContents|BlobResourceContents",
    "NotificationParams": "EmptyNotificationParams",
    "InitializedParams": "EmptyNotificationParams",
}
#: Not by themselves on the wire: what others build upon, what is only read, what is split up by what holds it.
CONCRETE = sorted(
    MODELS.keys() - {"CacheableResult", "InputRequest", "Page", "RequestMeta", "Result", "SamplingMessage"}
)

#: Not dressed for a revision without a handshake.
HANDSHAKE = {"InitializeParams", "InitializeResult"}


def wire(value: Any) -> Any:
    return json.loads(msgspec.json.encode(value))


def made(kind: type[Model], revision: str) -> Model:
    """Everything is set, as far as it can be at once."""
    value = full(kind)
    if isinstance(value, InitializeParams | InitializeResult):
        value.protocol_version = revision  # it is dressed for the revision that it names
    if isinstance(value, CreateMessageResult) and not knows(revision, "several blocks"):
        assert isinstance(value.content, list)
        value.content = value.content[:1]
    return value


def as_sent(value: Any, revision: str) -> Any:
    """What leaves: shaped, and in the stateless revision with what the era itself writes."""
    bare = isinstance(value, Result) and not known_in(type(value), "result_type", revision)
    shaped = shape(value, revision)
    return shaped if bare or revision != V2026_07 else STATELESS.finish_result(value, revision, DESCRIPTION.result_meta)


def told(value: Model, revision: str) -> list[str]:
    """What the published revision has against a shaped value."""
    name = type(value).__name__
    members = wire(as_sent(value, revision))
    kind = read_table().kinds.get(name)
    if kind is not None and revision == V2026_07 and not kind.in_revision(revision).get("_meta", NO_META).optional:
        members.setdefault("_meta", ENVELOPE)  # the client writes it on every request
    if type(value).__struct_config__.tag is not None and members.get("type") != type(value).__struct_config__.tag:
        name = "TextContent"  # a stand-in
    return problems(NAMES.get(name, name), members, revision, name)


def sayable(name: str, revision: str) -> bool:
    """Whether the revision has the type, or something that stands in for it, or is named by the value itself."""
    kind = MODELS[name]
    return kind.__struct_config__.tag is not None or within(revision, TYPES.get(name, (REVISIONS[0], REVISIONS[-1])))


def test_values_with_everything_set_are_shaped_to_what_each_revision_published() -> None:
    """What a revision has no place for is refused. The given value stays: a handler may give it to clients of both eras.

    Table 4.C, NAME-02, CONT-02, CONT-03, CONT-05, TOOL-05, TOOL-13, RES-02, PRM-02, PROG-05, SAMP-02, ELIC-03.
    """
    for name in CONCRETE:
        for revision in HANDSHAKE_REVISIONS if name in HANDSHAKE else REVISIONS:
            value = made(MODELS[name], revision)
            before = msgspec.json.encode(value)
            if sayable(name, revision):
                assert not told(value, revision), (name, revision)
                assert wire(shape(value, revision)) == wire(shape(value, revision)), (name, revision)
            else:
                with pytest.raises(TooNew, match=revision):
                    shape(value, revision)
            assert msgspec.json.encode(value) == before, (name, revision)


@sparing
@given(st.sampled_from(CONCRETE).flatmap(lambda name: drawn(MODELS[name])), st.sampled_from(REVISIONS))
def test_any_value_is_shaped_to_what_the_revision_published(value: Model, revision: str) -> None:
    """Table 4.C."""
    if isinstance(value, InitializeParams | InitializeResult):
        revision = value.protocol_version
    assume(sayable(type(value).__name__, revision))
    assume(not _unmade(value))
    try:
        assert not told(value, revision)
    except TooNew:
        assert isinstance(value, CreateMessageResult)
        assert isinstance(value.content, list)


def _unmade(value: Model) -> bool:
    """Values that no revision allows, and that shaping leaves alone."""
    if isinstance(value, ElicitUrlParams):
        return value.elicitation_id is None
    if isinstance(value, ListenResult):
        return SUBSCRIPTION_ID not in (value.meta or {})
    return isinstance(value, CreateMessageResult) and value.content == []


def test_the_newest_revision_keeps_everything_that_it_has_a_place_for() -> None:
    for name in filter(lambda name: sayable(name, V2026_07), CONCRETE):
        value = full(MODELS[name])
        shaped = shape(value, V2026_07)
        for field in msgspec.structs.fields(MODELS[name]):
            kept = known_in(MODELS[name], field.name, V2026_07)
            if kept and not any(gone in str(field.type) for gone in ("Capabilit", "Tool]")):
                assert getattr(shaped, field.name) == getattr(value, field.name), (name, field.name)
            if not kept:
                assert getattr(shaped, field.name) in (None, UNSET), (name, field.name)


def test_the_newest_capabilities_and_tools_lose_only_what_was_taken_back() -> None:
    """TOOL-05: `execution` and `tasks` belong to one revision."""
    tools = wire(full(MODELS["ListToolsResult"]))
    del tools["tools"][0]["execution"]
    assert wire(shape(full(MODELS["ListToolsResult"]), V2026_07)) == tools
    found = wire(full(DiscoverResult))
    del found["capabilities"]["tasks"]
    assert wire(shape(full(DiscoverResult), V2026_07)) == found


@pytest.mark.parametrize("revision", HANDSHAKE_REVISIONS)
def test_nothing_of_the_stateless_era_leaves_in_a_handshake_result(revision: str) -> None:
    """Table 4.C: `resultType`, `ttlMs`, `cacheScope`, the server's identity in `_meta`."""
    for name, kind in MODELS.items():
        if not issubclass(kind, Result) or not sayable(name, revision) or name == "CreateMessageResult":
            continue
        sent = wire(shape(full(kind), revision))
        assert not sent.keys() & {"resultType", "ttlMs", "cacheScope"}
        assert sent.get("_meta", {}).keys() <= {"com.example/x"}
