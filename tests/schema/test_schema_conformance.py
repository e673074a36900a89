"""Every message of every method, with everything set and with as little as can be, in every revision that knows it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import msgspec
import pydantic
import pytest
from mcp_types import methods

from gemel import CreateMessageParams, CreateMessageResult, Implementation, InputRequiredResult
from gemel.protocol.description import ServerDescription
from gemel.protocol.eras.detect import ERAS
from gemel.protocol.eras.stateless import STATELESS
from gemel.protocol.revisions.adapt import known_in, shape
from gemel.schema.lifecycle import InitializeParams, InitializeResult, ServerCapabilities
from gemel.schema.methods import METHODS, Method, method_in
from gemel.schema.revisions import knows
from gemel.schema.subscriptions import ListenResult
from tests.schema.instances import full, least
from tests.support import (
    CLIENT_CAPABILITIES,
    PROTOCOL_VERSION,
    REVISIONS,
    SUBSCRIPTION_ID,
    V2025_11,
    V2026_07,
    Model,
    Result,
    jsonrpc,
)
from tests.wire_schema import Side, adapter, check_message
from tests.wire_table import read_table

DESCRIPTION = ServerDescription(Implementation(name="s", version="1"), ServerCapabilities, eras=tuple(ERAS.values()))
ENVELOPE = {PROTOCOL_VERSION: V2026_07, CLIENT_CAPABILITIES: {}}
#: In the stateless revision no requests, but what a result asks for.
ASKED = ("elicitation/create", "sampling/createMessage", "roots/list")

Make = Callable[[type[Model]], Model]


def made(make: Make, kind: type[Model], revision: str) -> Model:
    """An instance, in words that the revision has."""
    value = make(kind)
    if isinstance(value, InitializeParams | InitializeResult):
        value.protocol_version = revision  # it is dressed for the revision that it names
    if isinstance(value, CreateMessageResult) and not knows(revision, "several blocks"):
        assert isinstance(value.content, list)
        value.content = value.content[:1]
    if isinstance(value, ListenResult) and value.meta is None:
        value.meta = {SUBSCRIPTION_ID: 1}  # the subscription writes it
    return value


def as_sent(value: Model, revision: str) -> Any:
    """What leaves: shaped, and in the stateless revision with what the era itself writes."""
    bare = isinstance(value, Result) and not known_in(type(value), "result_type", revision)
    shaped = shape(value, revision)
    return shaped if bare or revision != V2026_07 else STATELESS.finish_result(value, revision, DESCRIPTION.result_meta)


def messages(row: Method, revision: str, make: Make) -> Iterator[tuple[Side, bytes, str | None]]:
    """The message of a method and its answer: who sends it, what it is, what it answers."""
    sides: tuple[Side, ...] = ("client", "server") if row.sender == "both" else (row.sender,)
    for side in sides:
        if read_table().row(side, row.name, revision) is None:
            continue
        params = as_sent(made(make, row.params, revision), revision)
        if row.result is None:
            yield side, jsonrpc.encode_notification(row.name, params), None
            continue
        if revision == V2026_07:
            params = {
                **json.loads(msgspec.json.encode(params)),
                "_meta": ENVELOPE,
            }  # the client writes it on every request
        yield side, jsonrpc.encode_request(1, row.name, params), None
        other: Literal["client", "server"] = "server" if side == "client" else "client"
        yield other, jsonrpc.encode_response(1, as_sent(made(make, row.result, revision), revision)), row.name


CALLS = [
    (name, revision)
    for name in METHODS
    for revision in REVISIONS
    if method_in(name, revision) and not (name in ASKED and revision == V2026_07)
]
extents = pytest.mark.parametrize("make", [full, least], ids=["all of it", "least of it"])


@extents
@pytest.mark.parametrize(("method", "revision"), CALLS)
def test_a_message_passes_both_judges(method: str, revision: str, make: Make) -> None:
    """Table 4.C: by the table of all revisions, and by the published models."""
    found = list(messages(METHODS[method], revision, make))
    assert found
    for side, data, answers in found:
        check_message(side, data, revision, answers=answers)


@pytest.mark.parametrize("mode", ["auto", "required", "none", "any", ""])
def test_whether_a_model_must_use_tools_is_said_in_three_ways(mode: Any) -> None:
    """SAMP-08."""
    text = json.dumps({"messages": [], "maxTokens": 1, "tools": [], "toolChoice": {"mode": mode}})
    if mode in ("auto", "required", "none"):
        read = msgspec.json.decode(text, type=CreateMessageParams)
        assert json.loads(msgspec.json.encode(shape(read, V2025_11)))["toolChoice"] == {"mode": mode}
        check_message("server", jsonrpc.encode_request(1, "sampling/createMessage", read), V2025_11)
    else:
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(text, type=CreateMessageParams)


@extents
@pytest.mark.parametrize("method", [name for name, row in METHODS.items() if row.may_ask])
def test_a_call_that_needs_answers_first_says_so_in_the_published_words(method: str, make: Make) -> None:
    """MRTR-04."""
    data = jsonrpc.encode_response(1, as_sent(made(make, InputRequiredResult, V2026_07), V2026_07))
    check_message("server", data, V2026_07, answers=method)


def surface(side: Side, message: Mapping[str, Any], answers: str | None) -> Any:
    if answers is not None:
        return (methods.SERVER_RESULTS if side == "server" else methods.CLIENT_RESULTS), answers
    if "id" in message:
        return (methods.CLIENT_REQUESTS if side == "client" else methods.SERVER_REQUESTS), message["method"]
    return (methods.CLIENT_NOTIFICATIONS if side == "client" else methods.SERVER_NOTIFICATIONS), message["method"]


def extended(value: Any) -> Any:
    """A message without the extensions that its revision agreed on later."""
    if isinstance(value, dict):
        return {key: extended(item) for key, item in value.items() if key != "extensions"}
    return [extended(item) for item in value] if isinstance(value, list) else value


@extents
@pytest.mark.parametrize(
    ("method", "revision"), [call for call in CALLS if call[1] >= V2025_11 and call[0] not in ASKED]
)
def test_the_published_models_lose_nothing_of_a_message(method: str, revision: str, make: Make) -> None:
    """The models drop what they don't know: what comes back whole holds nothing that is unknown to its revision."""
    for side, data, answers in messages(METHODS[method], revision, make):
        message = json.loads(data)
        models, name = surface(side, message, answers)
        subject = extended(message if answers is None else message["result"])
        if method == "notifications/elicitation/complete":
            subject["params"].pop("_meta", None)  # its published params leave out what all notifications may carry
        judge: pydantic.TypeAdapter[Any] = adapter(models[name, revision])
        read = judge.validate_python(subject, by_name=False)
        assert judge.dump_python(read, mode="json", by_alias=True, exclude_unset=True) == subject


def test_every_method_of_every_revision_is_among_them() -> None:
    """Ours and the published ones are the same. Tasks are an extension here; its tests hold its messages to the table."""
    core = [row for row in read_table().rows if "tasks" not in row.method.split("/")]
    published = {(row.method, revision) for row in core for revision in row.window}
    assert set(CALLS) == published
